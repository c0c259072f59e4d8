"""What is seen while a batch runs: on a terminal how far it is, in a file next to nothing."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from autograder.batch import conduct, live, statistics
from autograder.batch.commands import Options, run
from autograder.batch.store import Place

from .batches import Batch, names, settings

OLD, NEW = "1" * 16, "2" * 16


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    (tmp_path / "class").mkdir()
    return Batch(tmp_path / "class", tmp_path / "out")


def seen(batch: Batch, *, terminal: bool, grader: str = OLD) -> str:
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=120)
    options = Options(batch.path, batch.out, conduct.Asked(), seed=1)
    run(console, options, settings(grader=grader), batch.executor)
    return text.getvalue()


def test_a_terminal_shows_how_far_it_is(batch: Batch) -> None:
    for name in names(4):
        batch.submit(name, seconds=0.3)
    batch.submit("x-fails", faults=9)
    told = seen(batch, terminal=True)
    for said in ("running 2:", "waiting", "left", "/5", "tried again", "grader failed"):
        assert said in told, said


def test_a_file_gets_what_came_of_it_alone(batch: Batch) -> None:
    batch.submit("anna", seconds=0.1)
    told = seen(batch, terminal=False)
    assert "\x1b" not in told
    assert told.splitlines()[0] == "1 submission: 1 graded."


def test_a_check_that_fewer_pass_than_before_is_told_while_it_runs(batch: Batch) -> None:
    for name in names(6):
        batch.submit(name, seconds=0.05, **{"with": {OLD: 1, NEW: 0}})
    seen(batch, terminal=True)
    told = seen(batch, terminal=True, grader=NEW)
    assert "broadcast/first: 100% passed before, 0% now" in told
    page = (batch.out / "class.html").read_text()
    assert "A newer grading does not count" in page


def test_pass_rates_are_compared_when_there_is_news_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compared: list[object] = []

    def falls(*given: object) -> list[statistics.Fall]:
        compared.append(given)
        return []

    monkeypatch.setattr(statistics, "falls", falls)
    places = [Place(tmp_path / name) for name in names(2)]
    progress = conduct.Progress(places)
    with live.Watch(Console(file=io.StringIO(), force_terminal=True), 2, [], lambda _: None) as see:
        for count in (0, 0, 1, 1, 1, 2):
            progress.finished = places[:count]
            see(progress)
    assert len(compared) == 3


def test_a_fall_needs_a_few_results(batch: Batch) -> None:
    for name in names(statistics.FEW - 1):
        batch.submit(name, **{"with": {OLD: 1, NEW: 0}})
    seen(batch, terminal=True)
    assert "passed before" not in seen(batch, terminal=True, grader=NEW)
