"""What is measured has the machine to itself, and whoever waits is not charged for it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from autograder import turns
from autograder.paths import ROOT
from autograder.turns import Turns

_HOLDS = """
import sys, time
from pathlib import Path
from autograder.turns import Turns
with Turns(Path(sys.argv[1])).beside_others():
    print("in", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "turns"


def in_a_thread(turn: Turns, done: list[str], name: str, alone: bool) -> threading.Thread:
    def run() -> None:
        with turn.beside_others(), ExitStack() as inside:
            if alone:
                inside.enter_context(turn.alone())
            done.append(name)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_checks_run_side_by_side(folder: Path) -> None:
    one, two = Turns(folder), Turns(folder)
    with one.beside_others(), two.beside_others():
        assert one.waited + two.waited < 1


def test_who_measures_waits_for_the_others_and_then_nobody_comes_in(folder: Path) -> None:
    first, measures, late = Turns(folder), Turns(folder), Turns(folder)
    done: list[str] = []
    with first.beside_others():
        alone = in_a_thread(measures, done, "alone", True)
        time.sleep(0.2)
        waits = in_a_thread(late, done, "late", False)
        time.sleep(0.2)
        assert done == [], "the late one would make the other wait for ever"
    alone.join(10)
    waits.join(10)
    assert done == ["alone", "late"]
    assert measures.waited > 0.3
    assert late.waited > 0.1


def test_a_grader_that_dies_lets_the_others_go_on(folder: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDS, str(folder)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"in\n"
    ours = Turns(folder)
    threading.Timer(0.3, holder.kill).start()
    with ours.beside_others(), ours.alone():
        assert 0.1 < ours.waited < 10
    holder.wait()
    holder.stdout.close()


def test_patience_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 0.2)
    one, two = Turns(folder), Turns(folder)
    with one.beside_others(), two.beside_others(), two.alone():
        assert 0.1 < two.waited < 5


def test_where_there_can_be_no_lock_nobody_waits(tmp_path: Path) -> None:
    turn = Turns(tmp_path / "missing" / "folder")
    with turn.beside_others(), turn.alone():
        assert turn.waited < 1


def test_a_folder_of_somebody_elses_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    turn = Turns(tmp_path / "link")
    with turn.beside_others():
        assert not list(tmp_path.glob("gate"))
