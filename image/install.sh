#!/bin/sh
# Makes /autograder/python, a virtual environment with all that the grader needs, and nothing that is
# needed only to install it. For the Docker image and for Gradescope's setup.sh.
#
#     install.sh DIRECTORY [cuda|cpu]
#
# DIRECTORY holds pyproject.toml and constraints.txt, whose pins are kept. `cuda` is torch with CUDA
# and NCCL, which also runs on machines without a GPU; `cpu` is about a third of its size. Where pip
# finds packages is for its own configuration to say (pip.conf, PIP_EXTRA_INDEX_URL and the like);
# `cpu` needs a source of torch's wheels for CPUs, which pytorch.org names.
set -eu
directory=$1
variant=${2:-cuda}
place=/autograder/python

good() { "$1" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; }
some_python() { for name in python3 python3.13 python3.12 python3.11; do good $name && echo $name && break; done; }

python=$(some_python || true)
if [ -z "$python" ]; then
    apt-get update -qq
    # Which of these a distribution has, and in a version that is new enough, differs.
    for name in python3.11 python3; do
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            $name $name-venv ca-certificates && python=$(some_python) && [ -n "$python" ] && break
    done
    rm -rf /var/lib/apt/lists/*
fi
[ -n "$python" ] || { echo "Python 3.11 or newer is needed in the base image."; exit 1; }

"$python" -m venv "$place"
"$place/bin/python" - "$directory" "$variant" > /tmp/requirements.txt <<'END'
import re, sys, tomllib
from pathlib import Path

directory, variant = Path(sys.argv[1]), sys.argv[2]
project = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
pins = (directory / "constraints.txt").read_text()
torch = re.search(r"^torch==(.+)$", pins, re.MULTILINE)[1]
wanted = [*project["dependencies"], *project["optional-dependencies"]["staff"]]
# Exactly this build: "2.13.0" alone would also be satisfied by "2.13.0+cpu".
print({"cuda": f"torch==={torch}", "cpu": f"torch==={torch}+cpu"}[variant])
print("\n".join(one for one in wanted if not one.startswith("torch==")))
END
"$place/bin/pip" install --quiet --no-cache-dir --disable-pip-version-check --root-user-action=ignore \
    --constraint "$directory/constraints.txt" --requirement /tmp/requirements.txt
rm /tmp/requirements.txt
"$place/bin/python" - "$variant" <<'END'
import sys
import torch

wanted = sys.argv[1] == "cuda"
if (torch.version.cuda is not None) != wanted:
    sys.exit(f"pip found torch {torch.__version__}, which is not the variant {sys.argv[1]}")
if wanted and not torch.distributed.is_nccl_available():
    sys.exit("this torch was built without NCCL")
END
packages=$("$place/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# The grader is found wherever one stands, and without anything in the current folder being imported.
echo /autograder/source > "$packages/autograder.pth"
# What is there to build and to test with.
rm -rf "$packages/torch/include" "$packages/torch/test"
"$place/bin/pip" uninstall --quiet --yes pip setuptools 2> /dev/null || true
