"""The folder for tools that look for copied work: what was handed in, and what everybody has."""

from __future__ import annotations

import shlex
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from autograder.paths import ASSIGNMENT, module_files

from .batches import Batch


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    (tmp_path / "class").mkdir()
    return Batch(tmp_path / "class", tmp_path / "out")


def content(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.suffix == ".py"}


def test_each_submission_has_a_folder_and_the_stubs_are_the_base(batch: Batch) -> None:
    batch.submit("anna", score=1)
    batch.submit("bert", score=0)
    (batch.path / "carl.zip").write_bytes(b"no archive")
    batch.run()
    top = batch.out / "similarity"
    assert content(top / "base") == module_files(ASSIGNMENT)
    assert {one.name: content(one) for one in (top / "submissions").iterdir()} == {
        name: content(batch.path / name) for name in ("anna", "bert")
    }


def test_it_is_as_the_class_is_now(batch: Batch) -> None:
    for name in ("anna", "bert", "carl"):
        batch.submit(name, score=1)
    batch.run()
    submissions = batch.out / "similarity" / "submissions"
    (submissions / "notes.txt").touch()
    before = (submissions / "carl" / "collectives.py").stat().st_ino
    shutil.rmtree(batch.path / "anna")
    batch.submit("bert", score=0)
    (batch.path / "bert" / "more.py").write_text("pass\n")
    batch.run()
    assert {one.name for one in submissions.iterdir()} == {"bert", "carl", "notes.txt"}
    assert content(submissions / "bert") == content(batch.path / "bert")
    assert (submissions / "carl" / "collectives.py").stat().st_ino == before


def test_the_commands_name_every_file_of_the_base(batch: Batch) -> None:
    """MOSS takes one file for each -b: what follows it is a submission."""
    batch.submit("anna")
    batch.run()
    top = batch.out / "similarity"
    lines = [shlex.split(line) for line in (top / "README.txt").read_text().splitlines()]
    (moss,) = [line for line in lines if line[:2] == ["perl", "moss.pl"]]
    base = [word for before, word in pairwise(moss) if before == "-b"]
    assert base == sorted(f"base/{name}" for name in module_files(ASSIGNMENT))
    assert [word for word in moss if word.endswith(".py") and word not in base] == [
        "submissions/*/*.py"
    ]
    (jplag,) = [line for line in lines if line[:1] == ["java"]]
    assert jplag[jplag.index("-bc") + 1] == "base"
