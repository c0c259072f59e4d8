#!/bin/sh
# Makes private what no submission may read, and open what its ranks import. For the Docker image and
# for Gradescope's setup.sh, after the source has been laid in /autograder/source.
set -eu
cd /autograder/source
install -m 755 image/run_autograder /autograder/run_autograder
chown -R 0:0 .
chmod 755 /autograder /autograder/source
chmod -R u=rwX,go= .
chmod 755 .
chmod -R go+rX multirank
mkdir -p -m 700 /autograder/private /autograder/results /autograder/submission
# Bytecode, since a container may be read-only.
/autograder/python/bin/python -m compileall -q autograder multirank reference
chmod -R go+rX multirank
