#!/bin/sh
# The attacks in a real default Docker container: starts an engine of its own, makes an image of a
# bare Debian, runs what is graded in mode "container" in it, and ends the engine again. As root, on
# Debian, with docker.io, iptables and mmdebstrap installed; where these are missing it says so, and
# the container is simulated. Arguments go to pytest.
set -eu
python=${PYTHON:-.venv/bin/python}
run() { "$python" -m pytest tests/autograder/attacks -m "" -k container "$@"; }
for tool in dockerd docker iptables mmdebstrap; do
    command -v "$tool" >/dev/null && continue
    echo "*** There is no $tool: in a SIMULATED container, and in no real one."
    run "$@"
    exit
done
work=$(mktemp -d)
export DOCKER_HOST="unix://$work/docker.sock" DOCKER_CONFIG="$work/docker" HOSTILE_IMAGE=hostile-base
mmdebstrap --quiet --variant=minbase bookworm "$work/base.tar"
dockerd --data-root "$work/data" --exec-root "$work/exec" --host "$DOCKER_HOST" \
    --pidfile "$work/pid" --iptables=false --bridge=none >"$work/log" 2>&1 &
engine=$!
trap 'kill $engine; wait $engine || true; rm -rf --one-file-system "$work"' EXIT
for _ in $(seq 60); do docker version >/dev/null 2>&1 && break; sleep 1; done
docker import "$work/base.tar" "$HOSTILE_IMAGE" >/dev/null
rm "$work/base.tar"
run "$@"
