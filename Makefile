# Every target sets up what it needs, on a fresh machine with Python 3.11 or newer, make, and git.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/ready

.PHONY: help venv grade test lint selfcheck image handout nightly clean

help:  ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

venv: $(READY)  ## the virtual environment alone, in .venv

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[staff,dev]'
	@touch $@

grade: $(READY)  ## grade reference/ as if it were a submission
	$(RUN) -m autograder grade reference

test: $(READY)  ## all tests that need no root and no patience
	$(RUN) -m pytest -n 2 --dist loadfile -m "not slow" --implementation=reference

lint: $(READY)  ## style, types, and whether assignment/ is up to date
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(RUN) -m autograder stubs --check

selfcheck: $(READY)  ## a change of the grader: do mistakes still lose, and right solutions keep?
	$(RUN) -m autograder selfcheck --quick

image: $(READY)  ## build the grading image and grade in it (root, Debian; five minutes)
	.ci/image

handout: $(READY)  ## the handout and the staff guide: handouts/*.pdf and handout.html
	$(RUN) -m handouts.build

# In pieces of at most 45 minutes. A piece that this commit has passed is not done again, so that
# whoever was interrupted goes on where they were.
NIGHT = .nightly/$(shell git rev-parse --short HEAD)
PARTS := collectives bandwidth ddp tensor_parallel pipeline accounting
BENCHMARKS := launch confinement recording collectives ddp tensor_parallel pipeline throughput class
PASSED = @mkdir -p $(@D) && touch $@

OFTEN := tests/autograder/test_measured_often.py
MEASURED := reference clones unchunked gathers
ATTACKS := tests/autograder/attacks
MODES := full container none
ALONE := $(OFTEN) $(ATTACKS) tests/autograder/test_broken.py tests/autograder/test_fuzz.py
MODULES := launch collectives bandwidth ddp tensor_parallel pipeline_parallel accounting
PIECES = tests broken fuzz image $(MODES:%=attacks-%) $(MEASURED:%=often-%) \
	$(PARTS:%=selfcheck-%) $(BENCHMARKS:%=benchmark-%) $(MODULES:%=mutation-%)
nightly: $(PIECES:%=$(NIGHT)/%)  ## what is too slow for every commit

$(NIGHT)/tests: $(READY)
	$(RUN) -m pytest -m slow --implementation=reference $(ALONE:%=--ignore=%)
	$(PASSED)

$(NIGHT)/image: $(READY)
	.ci/image --nightly
	$(PASSED)

$(NIGHT)/often-%: $(READY)
	$(RUN) -m pytest $(OFTEN) -m nightly -k "$*"
	$(PASSED)

$(NIGHT)/broken: $(READY)
	$(RUN) -m pytest tests/autograder/test_broken.py -m ""
	$(PASSED)

$(NIGHT)/fuzz: $(READY)
	$(RUN) -m pytest tests/autograder/test_fuzz.py -m ""
	$(PASSED)

$(NIGHT)/attacks-container: $(READY)
	PYTHON=$(RUN) $(ATTACKS)/in_docker.sh
	$(PASSED)

$(NIGHT)/attacks-%: $(READY)
	$(RUN) -m pytest $(ATTACKS) -m "" -k "$*"
	$(PASSED)

$(NIGHT)/selfcheck-%: $(READY)
	$(RUN) -m autograder selfcheck --part $*
	$(PASSED)

$(NIGHT)/mutation-%: $(READY)
	$(RUN) -m autograder mutate --module $* --minutes 40
	$(PASSED)

$(NIGHT)/benchmark-%: $(READY)
	$(RUN) -m benchmarks.$*
	$(PASSED)

clean:  ## remove what was built here
	rm -rf $(VENV) graded .nightly .pytest_cache .mypy_cache .ruff_cache *.egg-info
