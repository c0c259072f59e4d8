"""The checks: each mistake loses what it should, and every right solution keeps full marks."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from autograder import collective
from autograder.grade import Outcome, Row

from .submissions import (
    ALL,
    ALTERNATIVES,
    MISTAKES,
    Alternative,
    Mistake,
    graded,
    patched,
    rows_of,
)


def cases(variants: list[Any]) -> list[Any]:
    marks = {True: [pytest.mark.slow], False: []}
    return [pytest.param(one, id=one.name, marks=marks[one.slow]) for one in variants]


@pytest.fixture(autouse=True)
def _cheaper(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ratios to the bounds are the same for 1 MiB."""
    monkeypatch.setattr(collective, "LARGE", 1 << 20)


@pytest.mark.parametrize("mistake", cases(MISTAKES))
def test_a_mistake_loses_its_own_checks_and_no_others(mistake: Mistake) -> None:
    files = patched(mistake.patches, file=mistake.file)
    rows = rows_of(graded(files, [mistake.problem]), mistake.problem)
    wrong = {name: row for name, row in rows.items() if row.outcome is not Outcome.PASSED}
    expected = set(rows) if mistake.loses == ALL else mistake.loses
    assert set(wrong) == expected, told(rows)
    assert not any(row.outcome is Outcome.GRADER_FAULT for row in rows.values()), told(rows)
    assert mistake.message in next(iter(wrong.values())).message
    shown = [cause for row in rows.values() for cause in row.causes]
    for cause in shown:
        assert any(part in cause for part in mistake.causes), cause
    for part in mistake.causes:
        assert any(part in cause for cause in shown), f"{part!r} is told nowhere"


@pytest.mark.parametrize("alternative", cases(ALTERNATIVES))
def test_a_right_solution_of_another_kind_gets_full_marks(alternative: Alternative) -> None:
    files = patched(alternative.patches, alternative.modules, alternative.file)
    rows = rows_of(graded(files, [alternative.problem]), alternative.problem)
    part = {name: row.score / row.points for name, row in rows.items()}
    expected = {name: Fraction(alternative.but.get(name, "1")) for name in rows}
    assert part == expected, told(rows)


def told(rows: dict[str, Row]) -> str:
    return "\n".join(
        f"{name}: {row.outcome.value}\n{row.message}\n{row.staff}" for name, row in rows.items()
    )
