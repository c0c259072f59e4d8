# The grading image, for CPU and GPU machines; see image/README.md.
#
#     docker build --tag grader .                                       torch with CUDA and NCCL
#     docker build --tag grader --build-arg VARIANT=cpu \
#         --build-arg PIP_EXTRA_INDEX_URL=... .                         a third of the size
#
# BASE may be any image with apt or with Python 3.11 or newer: Gradescope's
# (gradescope/autograder-base), one with CUDA, or the slim Python that is the default. Neither an
# entry point nor a command is set, since Gradescope brings its own.
ARG BASE=python:3.11-slim
FROM ${BASE}

# What takes minutes comes first, and depends on what seldom changes.
ARG VARIANT=cuda
ARG PIP_EXTRA_INDEX_URL
ARG PIP_CONFIG_FILE
COPY pyproject.toml constraints.txt image/install.sh /autograder/install/
RUN sh /autograder/install/install.sh /autograder/install "$VARIANT" && rm -r /autograder/install

# .dockerignore lets through what the grader consists of, and nothing else.
COPY . /autograder/source
RUN sh /autograder/source/image/lock.sh

# The course's secret, if it is to travel in the image: --secret id=course-secret,src=FILE and
# --build-arg PRIVATE=WORD. Builders look a layer up by its arguments and not by its secrets: without
# a word, or with the word of another secret, they would take the layer that they have.
ARG PRIVATE
RUN --mount=type=secret,id=course-secret \
    if [ -n "$PRIVATE" ] || [ -e /run/secrets/course-secret ]; then \
        install -m 600 /run/secrets/course-secret /autograder/private/course-secret; fi

ENV AUTOGRADER_PRIVATE=/autograder/private
# After an hour for the first time, so that no grading is disturbed. (With a start period it would be
# every five seconds from the start on.)
HEALTHCHECK --interval=1h --timeout=2m \
    CMD ["/autograder/python/bin/python", "-I", "-m", "autograder", "doctor", "--official"]
