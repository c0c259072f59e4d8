"""Options of the tests that students run: `pytest tests/assignment --timeline DIR`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autograder.paths import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_each_test_that_ran_ranks_is_drawn(tmp_path: Path, more: list[str]) -> None:
    folder = tmp_path / "pictures"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "tests/assignment", "--implementation=reference"),
            *("-q", "-p", "no:cacheprovider", f"--timeline={folder}", *more),
            *("-k", "test_broadcast_sends_from or test_cleanup or test_setup_refuses"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    drawn = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
    assert sorted(drawn) == [
        "test_collectives-test_broadcast_sends_from_any_root.html",
        "test_launch-test_cleanup_destroys_the_group_and_does_no_harm_without_one.html",
    ]
    assert "send → 0 · " in drawn["test_collectives-test_broadcast_sends_from_any_root.html"]


@pytest.mark.parametrize(
    ("option", "told"),
    [("--fuzz=-3", "cannot be negative"), ("--timeline=README.md", "README.md is a file")],
)
def test_a_wrong_option_is_refused_before_anything_is_run(option: str, told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/assignment", "-p", "no:cacheprovider", option],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert told in done.stderr
    assert "Traceback" not in done.stderr
