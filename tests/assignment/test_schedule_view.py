"""The command that draws schedules, `python -m assignment.schedule_view`."""

from __future__ import annotations

import importlib
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from multirank import Mark, Trace

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def view(implementation: str) -> Any:
    return importlib.import_module(f"{implementation}.schedule_view")


@pytest.fixture
def schedule(view: Any) -> list[list[Any]]:
    """Two stages and two micro-batches, one after the other: nobody wrote it to be fast."""
    return [[view.Action(kind, i) for i in range(2) for kind in "FB"] for _ in range(2)]


def test_every_pass_starts_when_its_stage_and_what_it_needs_are_done(
    view: Any, schedule: list[list[Any]]
) -> None:
    panel = view.plan(schedule, "Slow")
    found = {(box.stage, str(box.action)): (box.start, box.end) for box in panel.boxes}
    assert found == {
        **{(0, "F0"): (0, 1), (1, "F0"): (1, 2), (1, "B0"): (2, 3), (0, "B0"): (3, 4)},
        **{(0, "F1"): (4, 5), (1, "F1"): (5, 6), (1, "B1"): (6, 7), (0, "B1"): (7, 8)},
    }
    assert (panel.stages, panel.end, panel.bubble) == (2, 8, 0.5)


def test_the_text_has_a_line_for_each_stage_and_a_column_for_each_unit_of_time(
    view: Any, schedule: list[list[Any]]
) -> None:
    assert view.text(view.plan(schedule, "Slow"), columns=80) == [
        "time     0              5",
        "stage 0  F0 .  .  B0 F1 .  .  B1",
        "stage 1  .  F0 B0 .  .  F1 B1 .",
    ]


def test_a_narrow_terminal_gets_no_text(view: Any, schedule: list[list[Any]]) -> None:
    (line,) = view.text(view.plan(schedule, "Slow"), columns=20)
    assert "too narrow for its 8 units" in line


def test_the_picture_has_every_pass_with_its_number(view: Any, schedule: list[list[Any]]) -> None:
    panel = view.Panel("A < B", view.plan(schedule, "").boxes, [1, 1])
    svg = ElementTree.fromstring(view.draw([panel, panel]))
    told = [title.text for title in svg.iter(f"{SVG}title")]
    assert len(told) == 2 * 8
    assert "F1 on stage 1, from 5 to 6" in told
    texts = [text.text for text in svg.iter(f"{SVG}text")]
    assert texts.count("A < B: 8 units of time, 50.0% of it idle") == 2
    assert texts.count("most in flight") == 2


def test_what_was_measured_is_in_units_of_a_pass(view: Any) -> None:
    unit = view.PASS_SECONDS
    spans = [(0, "F0", 5.0, 6.0), (1, "F0", 6.0, 7.5), (1, "B0", 7.5, 8.5), (0, "B0", 9.0, 10.0)]
    marks = [
        Mark(rank, kind, label, moment * unit)
        for rank, label, *moments in spans
        for kind, moment in zip(("begin", "end"), moments, strict=True)
    ]
    boxes = view.measured(Trace(marks=marks)).boxes
    found = [(box.stage, str(box.action), box.start, box.end) for box in boxes]
    right = [(rank, label, start - 5, end - 5) for rank, label, start, end in spans]
    for one, other in zip(found, right, strict=True):
        assert one[:2] == other[:2]
        assert one[2:] == pytest.approx(other[2:])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["gpipe", "--stages", "0"], "at least one stage"),
        (["1f1b", "--microbatches", "0"], "one micro-batch"),
        (["gpipe", "--stages", "100", "--microbatches", "100"], "too many"),
        (["gpipe", "--stages", "17", "--run"], "at most 16"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    view: Any, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        view.main(arguments)
    assert told in capsys.readouterr().err


def test_a_schedule_that_cannot_run_is_shown_with_the_reason(
    view: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    backward_first = [view.Action("B", 0), view.Action("F", 0)]
    monkeypatch.setitem(view.SCHEDULES, "gpipe", lambda stage, p, m: backward_first)
    with pytest.raises(SystemExit) as stopped:
        view.main(["gpipe", "--stages", "2", "--out", str(tmp_path / "no.svg")])
    assert "B0 comes before F0" in str(stopped.value)
    assert "stage 1  B0 F0" in capsys.readouterr().out
    assert not (tmp_path / "no.svg").exists()


@pytest.mark.parametrize("missing", ["gpipe", "peak_in_flight", "bubble_fraction"])
def test_what_is_not_written_yet_is_named(
    view: Any,
    missing: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def unwritten(*_: Any) -> Any:
        raise NotImplementedError(f"Problem 5.0, {missing}: not written yet")

    given = {
        "gpipe": lambda stage, p, m: [view.Action(kind, i) for kind in "FB" for i in range(m)],
        "peak_in_flight": lambda schedule: [2, 2],
        "bubble_fraction": lambda schedule: 1 / 3,
        missing: unwritten,
    }
    monkeypatch.setitem(view.SCHEDULES, "gpipe", given["gpipe"])
    monkeypatch.setattr(view, "peak_in_flight", given["peak_in_flight"])
    monkeypatch.setattr(view, "bubble_fraction", given["bubble_fraction"])
    arguments = [
        *("gpipe", "--stages", "2", "--microbatches", "2"),
        "--out",
        str(tmp_path / "a.svg"),
    ]
    if missing == "gpipe":
        with pytest.raises(SystemExit, match=r"^Problem 5.0, gpipe: not written yet. It is needed"):
            view.main(arguments)
    else:
        view.main(arguments)
        assert f"{missing} is not written yet" in capsys.readouterr().out
        assert (tmp_path / "a.svg").exists()
