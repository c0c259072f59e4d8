"""What students are told of functions that never return, where no rank is there to be ended."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from reference import progress
from tests.assignment import running
from tests.multirank.processes import still_running

_MODULE = """
def spin(schedule):
    while True:
        try:
            _step()
        except Exception:
            pass

def _step():
    for _ in range(1000):
        pass

def swift():
    return 1
"""


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> running.Subject:
    """A package of its own, in whose functions half a second is too long."""
    folder = tmp_path / "tried_endless"
    folder.mkdir()
    (folder / "accounting.py").write_text(_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running, "DEADLINE", 0.5)
    monkeypatch.setattr(running, "DEADLINE_AFTER_A_HANG", 0.1)
    monkeypatch.setattr(running, "_hung", set())
    return running.Subject("tried_endless", "accounting")


def said(subject: running.Subject, function: str, **arguments: Any) -> list[str]:
    with pytest.raises(pytest.fail.Exception) as caught:
        running.result(subject, function, arguments)
    return str(caught.value).splitlines()


def test_an_endless_loop_is_told_with_the_line_that_it_was_in(subject: running.Subject) -> None:
    headline, called, where = said(subject, "spin", schedule=list(range(100)))
    assert headline == "spin does not come to an end."
    assert called == "  called: spin(schedule=[0, 1, 2, 3, 4, 5, ...])"
    assert where.startswith("  after 0.5 s it was in tried_endless/accounting.py:")
    assert where.partition("accounting.py:")[2].split(": ", 1)[1] in _MODULE


def test_the_next_time_it_is_given_less(subject: running.Subject) -> None:
    said(subject, "spin", schedule=[])
    started = time.monotonic()
    assert "after 0.1 s" in said(subject, "spin", schedule=[])[2]
    assert time.monotonic() - started < 0.4


def test_a_function_that_returns_leaves_no_alarm(subject: running.Subject) -> None:
    before = signal.getsignal(signal.SIGALRM)
    assert running.result(subject, "swift", {}) == 1
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before


def test_in_another_thread_it_is_called_without_an_alarm(subject: running.Subject) -> None:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(running.result(subject, "swift", {})))
    thread.start()
    thread.join()
    assert found == [1]


_DEAF = """
import itertools, os, pathlib

def test_all():
    pathlib.Path("pid").write_text(str(os.getpid()))
    any(itertools.repeat(0))
"""


@pytest.mark.slow  # 7 s
def test_tests_that_take_far_too_long_are_ended_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests/assignment").mkdir(parents=True)
    (tmp_path / "tests/assignment/test_one.py").write_text(_DEAF)
    (tmp_path / "tests/assignment/conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--implementation')\n"
    )
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(progress, "_MINUTES", 0.1)
    with pytest.raises(progress.NoResults, match=r"not come to an end in 0\.1 min") as told:
        progress.measure(tmp_path)
    assert str(told.value).endswith("    pytest tests/assignment -v")
    assert still_running({int((tmp_path / "pid").read_text())}, within=5) == []
