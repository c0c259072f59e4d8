"""The staff guide's page on adding a problem, followed from start to finish in a copy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autograder.paths import ROOT
from handouts.build import marked

pytestmark = [pytest.mark.slow, pytest.mark.nightly]  # half a minute
_ROOMS = ("reference", "assignment", "autograder", "multirank", "tests/assignment")
_BEFORE = {"reference/accounting.py": "# --- Given: what is refused"}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with everything in its place that the page tells to put there."""
    copy = tmp_path_factory.mktemp("added")
    for room in _ROOMS:
        shutil.copytree(ROOT / room, copy / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(ROOT / "pyproject.toml", copy / "pyproject.toml")
    for one in marked("staff", "<sample>"):
        file, piece = copy / one["value"]["file"], one["value"]["piece"] + "\n"
        there = file.read_text() if file.exists() else ""
        before = _BEFORE.get(one["value"]["file"])
        if before is not None:
            assert there.count(before) == 1
            file.write_text(there.replace(before, f"{piece}\n\n{before}"))
        else:
            file.write_text(f"{there}\n\n{piece}" if there else piece)
    problems = copy / "reference" / "problems.toml"
    first, sep, rest = problems.read_text().partition('id = "state_memory"')
    problems.write_text(first + sep + rest.replace("points = 2", "points = 1", 1))
    mutants = copy / "autograder" / "selfcheck" / "mutants" / "__init__.py"
    text = mutants.read_text().replace("    bytes_moved,\n", "    bytes_moved,\n    NEW,\n", 1)
    text = text.replace("        placement,\n", "        placement,\n        NEW,\n")
    mutants.write_text(text.replace("NEW", "checkpoint_interval"))
    assert _run(copy, "-m", "autograder", "stubs").returncode == 0
    return copy


def _run(copy: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(copy), "AUTOGRADER_PRIVATE": str(copy / "own")}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(("package", "points"), [("reference", 1), ("assignment", 0)])
def test_the_reference_gets_the_new_point_and_the_stub_does_not(
    copy: Path, package: str, points: int
) -> None:
    out = copy / f"graded-{package}"
    done = _run(copy, *("-m", "autograder", "grade", package, "--only", "6.7", "--out", str(out)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((out / "results.json").read_text())["score"] == points


def test_the_mutant_loses_the_new_check_and_is_told_why(copy: Path) -> None:
    program = """
from autograder import manifest
from autograder.paths import REFERENCE
from autograder.selfcheck.mutants import checkpoint_interval
from autograder.selfcheck.trial import graded
import multirank
if __name__ == "__main__":
    multirank.start()
    (variant,) = checkpoint_interval.MUTANTS
    grade = graded(manifest.load(REFERENCE), variant.files, variant.problems)
    (row,) = grade.rows_of("checkpoint_interval")
    print(row.score, row.message, row.causes)
"""
    (copy / "lose.py").write_text(program)
    done = _run(copy, "lose.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0 ")
    assert "half an interval, which a failure loses" in done.stdout


def test_the_public_test_passes_on_the_reference(copy: Path) -> None:
    line = ("-m", "pytest", "tests/assignment/test_accounting.py", "-k", "checkpoint")
    done = _run(copy, *line, "--implementation", "reference")
    assert "1 passed" in done.stdout
