"""results.json of a PrairieLearn external grader.

The format: docs/externalGrading.md of PrairieLearn. A file beyond a megabyte is lost there, so long
texts give way; where the grader failed, or nothing could be graded, the attempt does not count.
"""

from __future__ import annotations

import json
from typing import Any

from autograder.grade import Outcome, points_text
from autograder.record import Check, Record

MOST_BYTES = 900_000  # of the megabyte
_NUL = "\0"
_SHORTER = (4000, 1000, 300, 100, 0)  # characters of each text, as many as fit


def convert(record: Record) -> dict[str, Any]:
    """The whole of results.json."""
    if reason := _why_not_gradable(record):
        return {"gradable": False, "format_errors": [_text(reason)]}
    for most in _SHORTER:
        results = _results(record, most)
        if len(json.dumps(results).encode()) <= MOST_BYTES:
            break
    return results


def _why_not_gradable(record: Record) -> str:
    if record.not_counted.of:
        return "\n".join(record.sentences)
    if record.checks and all(check.outcome is Outcome.BLOCKED for check in record.checks):
        return record.checks[0].message
    return ""


def _results(record: Record, most: int) -> dict[str, Any]:
    total = record.points.of
    return {
        "gradable": True,
        "score": float(record.final.of / total) if total else 0.0,
        "message": _text(record.sentences[0]) if record.sentences else "",
        "output": _text("\n".join(record.sentences[1:]), 10_000),
        "tests": [_test(check, most) for check in record.checks],
    }


def _test(check: Check, most: int) -> dict[str, Any]:
    return {
        "name": f"{check.number} {check.title}",
        "description": ", ".join(f"{name}: {value}" for name, value in check.facts.items()),
        # Without either on any test, PrairieLearn shows no points at all.
        "points": float(check.score.of),
        "max_points": float(check.points.of),
        "message": _text(f"{check.outcome.value}: {points_text(check.score.of)} points"),
        "output": _text("\n".join(filter(None, [check.told, check.log])), most),
    }


def _text(text: str, most: int = 4000) -> str:
    text = text.replace(_NUL, "")
    return text if len(text) <= most else text[:most] + ("\n[cut]" if most else "")
