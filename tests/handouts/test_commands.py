"""Every shell command of the handout and of the staff guide runs, or is looked up in --help.

how="run"    run as it stands, in a student's folder where everything is written
how="slow"   the same, by make nightly; here its options are looked up
how="help"   it needs what we may not have (GPUs, Docker): its options are looked up
how="make"   its target is in the Makefile
how="setup"  a line of the students' README, where it sets up the environment
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from typing import Any
from unittest import mock

import pytest
import torch.distributed.run
import typer

from autograder import cli
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
    """What a command says of itself; in this process where that is possible, since torch takes its
    time to be imported."""
    match command:
        case ("autograder", sub):
            commands: dict[str, Any] = vars(typer.main.get_command(cli.app))["commands"]
            return " ".join(option for one in commands[sub].params for option in one.opts)
        case ("torchrun",):
            return torch.distributed.run.get_args_parser().format_help()
        case ("pytest",):
            line = [sys.executable, "-m", "pytest", "tests/assignment", "--help"]
            done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)
            return done.stdout
        case (module,):
            told = io.StringIO()
            with (
                mock.patch.object(sys, "argv", [module, "--help"]),
                contextlib.redirect_stdout(told),
                contextlib.suppress(SystemExit),
            ):
                runpy.run_module(module, run_name="__main__")
            return told.getvalue()
        case ("docker", what):
            if shutil.which("docker") is None:
                pytest.skip("there is no docker here")
            line = ["docker", what, "--help"]
            done = subprocess.run(line, capture_output=True, text=True, check=True)
            return (
                done.stdout + " --secret"
            )  # of BuildKit, which the help of an old builder leaves out
    raise AssertionError(f"{command} is no command that the handout may use")


def _command(words: list[str]) -> tuple[str, ...]:
    """The part of a command line that has a --help."""
    match words:
        case ["python", "-m", module, *_]:
            return (module,)
        case ["pytest" | "torchrun", *_]:
            return (words[0],)
        case ["docker", ("build" | "run") as what, *_]:
            return ("docker", what)
        case ["autograder" | ".venv/bin/autograder", sub, *_]:
            return ("autograder", sub)
    raise AssertionError(f"{words[0]} is no command that the handout may use")


def test_how_a_command_is_tested_is_one_of_five_words() -> None:
    assert RUNS
    assert {run["how"] for _, run in RUNS} <= {"run", "slow", "help", "make", "setup"}
    assert all(run["needs"] for _, run in RUNS if run["how"] == "help")


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
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


@pytest.mark.parametrize("line", _lines("setup"))
def test_a_line_that_sets_up_stands_in_the_readme_that_students_get(line: str) -> None:
    readme = (ROOT / "autograder" / "release" / "student" / "README.md").read_text()
    assert line in [one.strip() for one in readme.splitlines()]


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
