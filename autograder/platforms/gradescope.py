"""Gradescope's side of a grading: who handed in when, and what it is told where there is no grade.

The formats: gradescope-autograders.readthedocs.io, submission_metadata and specs.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from autograder.manifest import Course
from autograder.policy import HandedIn

NOT_YOUR_FAULT = (
    "The grader itself failed before it was done. That is not your fault and does not count; the "
    "staff will grade your work again."
)
STARTED = (
    "Your work is being graded. If this is all that you see, the grader was ended before it was "
    "done: that is not your fault and does not count, and the staff will grade your work again."
)
_YEARS = range(1970, 9000)
MOST_COUNTED = 200  # times that are handed on


class UnknownMetadata(ValueError):
    """The metadata is not what Gradescope documents."""


class _Assignment(msgspec.Struct):
    due_date: datetime | None = None


class _Previous(msgspec.Struct):
    submission_time: datetime
    score: float | str | None = None
    autograder_error: bool = False
    results: dict[str, Any] | None = None


class _Metadata(msgspec.Struct):
    created_at: datetime
    assignment: _Assignment = msgspec.field(default_factory=_Assignment)
    previous_submissions: tuple[_Previous, ...] = ()


def read(path: Path, course: Course) -> tuple[HandedIn, dict[str, Any]]:
    """When a submission came in, and the results of the one before it: of an earlier one where
    that has none, or the score alone that is known, or {}.

    course: says when work is due where Gradescope does not.

    Raises:
        UnknownMetadata: it cannot be read.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Metadata)
        when, due = _aware(found.created_at), found.assignment.due_date or course.due
        due = _aware(due) if due else None
        before = [one for one in found.previous_submissions if _aware(one.submission_time) < when]
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UnknownMetadata(f"{path.name} cannot be read: {error}") from None
    handed_in = HandedIn(when, due, _counted(before))
    return handed_in, _last_results(before)


def _aware(time: datetime) -> datetime:
    """With a time zone. Raises ValueError where days more or less would be no date any more."""
    if time.year not in _YEARS:
        raise ValueError(f"{time} is no time at which anybody hands in")
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _counted(before: list[_Previous]) -> tuple[datetime, ...]:
    """When those came in that a rate limit counts.

    Not those that the grader failed on, nor those that were refused: Gradescope hands over the
    results of the last one only, in which we noted which were counted until then.
    """
    counted: list[datetime] = []
    for one in sorted(before, key=_when):
        noted = _noted(one)
        if noted is not None:
            counted = noted
        elif not one.autograder_error and not _extra(one).get("grader_fault"):
            counted.append(_when(one))
    return tuple(counted)


def _noted(one: _Previous) -> list[datetime] | None:
    noted = _extra(one).get("counted")
    if isinstance(noted, list):
        with contextlib.suppress(TypeError, ValueError):
            return [_aware(datetime.fromisoformat(time)) for time in noted]
    return None


def _last_results(before: list[_Previous]) -> dict[str, Any]:
    latest_first = sorted(before, key=_when, reverse=True)
    for one in latest_first:
        if one.results:
            return one.results
    for one in latest_first:
        if not one.autograder_error and (score := _number(one.score)) is not None:
            return {"score": score}
    return {}


def _when(one: _Previous) -> datetime:
    return _aware(one.submission_time)


def _number(score: float | str | None) -> float | None:
    try:
        number = float("nan" if score is None else score)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _extra(one: _Previous) -> Mapping[str, Any]:
    extra = (one.results or {}).get("extra_data")
    return extra if isinstance(extra, dict) else {}


def in_words(times: Iterable[datetime]) -> list[str]:
    """The last of them, in order, as ISO 8601."""
    return [time.isoformat() for time in sorted(times)[-MOST_COUNTED:]]


# --- Results without a grade ----------------------------------------------------------------------


def started() -> dict[str, Any]:
    """Before anything is known."""
    return _message(STARTED) | {"extra_data": {"grader_fault": True}}


def refused(reason: str, last: Mapping[str, Any], handed_in: HandedIn) -> dict[str, Any]:
    """Over the rate limit: the last results stand, with the reason above them."""
    extra = last.get("extra_data")
    extra = extra if isinstance(extra, dict) else {}
    before = str(last.get("output") or "")
    if "refused" in extra:  # these stood already, with the reason of that time above them
        before = before.removeprefix(str(extra["refused"])).lstrip("\n")
    return {
        **_message(reason),
        **last,
        "output": f"{reason}\n\n{before}" if before else reason,
        "output_format": "text",
        "extra_data": {**extra, "refused": reason, "counted": in_words(handed_in.earlier)},
    }


def failed(so_far: Mapping[str, Any], handed_in: HandedIn | None) -> dict[str, Any]:
    """The grader broke down: what it had found until then stands, and nothing counts as final."""
    before = so_far.get("output") if so_far.get("tests") else None
    output = f"{NOT_YOUR_FAULT}\n\nUntil then: {before}" if before else NOT_YOUR_FAULT
    extra = so_far.get("extra_data")
    noted: dict[str, Any] = {"grader_fault": True}
    if handed_in is not None:
        noted["counted"] = in_words(handed_in.earlier)
    return {
        **_message(output),
        **{key: value for key, value in so_far.items() if key not in ("output", "extra_data")},
        "extra_data": {**(extra if isinstance(extra, dict) else {}), **noted},
    }


def _message(text: str) -> dict[str, Any]:
    return {
        "score": 0.0,
        "output": text,
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [],
    }
