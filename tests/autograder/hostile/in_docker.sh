#!/bin/sh
# The attacks in a real default Docker container: starts an engine of its own, makes an image of a
# bare Debian, runs the slow tests of mode "container" in it, and ends the engine again. As root, on
# Debian, with docker.io, iptables and mmdebstrap installed. Arguments go to pytest.
set -eu
work=$(mktemp -d)
export DOCKER_HOST="unix://$work/docker.sock" HOSTILE_IMAGE=hostile-base
mmdebstrap --quiet --variant=minbase bookworm "$work/base.tar"
dockerd --data-root "$work/data" --exec-root "$work/exec" --host "$DOCKER_HOST" \
    --pidfile "$work/pid" --iptables=false --bridge=none >"$work/log" 2>&1 &
engine=$!
trap 'kill $engine; wait $engine || true; rm -rf "$work"' EXIT
for _ in $(seq 60); do docker version >/dev/null 2>&1 && break; sleep 1; done
docker import "$work/base.tar" "$HOSTILE_IMAGE" >/dev/null
.venv/bin/python -m pytest -q tests/autograder/hostile -k "container" -m "" "$@"
