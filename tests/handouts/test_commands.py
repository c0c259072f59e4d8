"""Every shell command of the handout and of the staff guide runs, or is looked up in --help.

how="run"    run as it stands, in a student's folder where everything is written
how="slow"   the same, by make nightly; here its options are looked up
how="help"   it needs what we may not have (GPUs, Docker): its options are looked up
how="make"   its target is in the Makefile
how="shell"  sets up the shell
"""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autograder.paths import ROOT
from handouts.build import marked, write_data

from .conftest import Folder

write_data()
RUNS = [(book, one["value"]) for book in ("handout", "staff") for one in marked(book, "<run>")]


def _lines(*how: str) -> list[Any]:
    found = dict.fromkeys(
        line for _, run in RUNS if run["how"] in how for line in run["commands"].splitlines()
    )
    return [pytest.param(line, id=line) for line in found]


@functools.cache
def _help(*command: str) -> str:
    """What a command says of itself."""
    done = subprocess.run([*command, "--help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)


def _command(words: list[str]) -> tuple[str, ...]:
    """The part of a command line that has a --help, as it can be run here."""
    bin_ = Path(sys.executable).parent
    match words:
        case ["python", "-m", module, *_]:
            return (sys.executable, "-m", module)
        case ["pytest", *_]:
            return (sys.executable, "-m", "pytest", "tests/assignment")
        case ["torchrun", *_]:
            return (str(bin_ / "torchrun"),)
        case ["autograder" | ".venv/bin/autograder", sub, *_]:
            return (sys.executable, "-m", "autograder", sub)
    raise AssertionError(f"{words[0]} is no command that the handout may use")


def test_how_a_command_is_tested_is_one_of_five_words() -> None:
    assert RUNS
    assert {run["how"] for _, run in RUNS} <= {"run", "slow", "help", "make", "shell"}
    assert all(run["needs"] for _, run in RUNS if run["how"] == "help")


@pytest.mark.parametrize("line", _lines("run", "slow", "help"))
def test_a_command_exists_and_has_the_options_that_are_used(line: str) -> None:
    words = shlex.split(line)
    told = _help(*_command(words))
    for word in words[1:]:
        if word.startswith("-") and len(word) > 1 and word not in ("-m", "-k"):
            assert re.search(rf"(?<![\w-]){re.escape(word.partition('=')[0])}(?![\w-])", told), word
        if word.startswith("tests/"):
            assert (ROOT / word).exists(), word
    if words[0] == "torchrun":
        module = words[words.index("-m") + 1]
        assert (ROOT / f"{module.replace('.', '/')}.py").exists()


@pytest.mark.parametrize("line", _lines("make"))
def test_a_make_target_exists(line: str) -> None:
    subprocess.run(
        ["make", "-n", *shlex.split(line)[1:]], cwd=ROOT, check=True, capture_output=True
    )


@pytest.mark.parametrize("line", _lines("shell"))
def test_a_line_that_sets_up_the_shell_names_the_environment_of_the_makefile(line: str) -> None:
    assert line == "source .venv/bin/activate"
    assert "VENV := .venv\n" in (ROOT / "Makefile").read_text()


@pytest.mark.slow  # about 5 s each
@pytest.mark.parametrize("line", _lines("run"))
def test_a_command_runs(line: str, folder: Folder) -> None:
    done = folder.run(line)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.nightly  # up to some minutes each
@pytest.mark.parametrize("line", _lines("slow"))
def test_a_command_that_takes_long_runs(line: str, folder: Folder) -> None:
    done = folder.run(line)
    assert done.returncode == 0, done.stdout + done.stderr
