"""What a check is worth is fixed before it runs: no combination of outcomes moves it.

Whole gradings, in which the checks end as hypothesis wills; nothing of a submission's is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autograder.grade import About, Grade, Outcome
from autograder.grading import Grading, _Plugin, check_id
from autograder.inputs import known_secret
from autograder.manifest import load
from autograder.paths import REFERENCE
from autograder.probe import Probe
from autograder.report.gradescope import results
from autograder.selfcheck.trial import planned_rows

MANIFEST = load(REFERENCE)
PLANNED = planned_rows(MANIFEST)
CHECKS = [row.check_id for row in PLANNED]
A_FEW = settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def endings(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    """For every check how it ends; partial credit of any size, even one that there cannot be."""
    ended: dict[str, dict[str, Any]] = {}
    for name in CHECKS:
        outcome = draw(st.sampled_from([one for one in Outcome if one is not Outcome.NOT_RUN]))
        ended[name] = {"outcome": outcome}
        if outcome is Outcome.PARTIAL:
            ended[name]["score"] = draw(st.fractions(-2, 5))
    return ended


def graded(monkeypatch: pytest.MonkeyPatch, ended: Mapping[str, dict[str, Any]]) -> Grade:
    """Graded with these endings; what the rows are worth is looked at after every check."""
    seen: list[dict[str, Any]] = []

    def changed(grade: Grade) -> None:
        seen.append({row.check_id: row.points for row in grade.rows})

    monkeypatch.setattr(Probe, "require", lambda *_: None)
    monkeypatch.setattr(_Plugin, "_run", lambda _, item: dict(ended[check_id(item)]))
    about = About(course="A course")
    grade = Grading(MANIFEST, {}, {}, known_secret(1), about, changed=changed).run()
    assert all(points == seen[0] for points in seen)
    return grade


def require_sums(grade: Grade) -> None:
    """The points are the manifest's, and every sum of scores the same, wherever it is told."""
    assert grade.points == MANIFEST.total_points
    for problem in MANIFEST.problems:
        assert sum(row.points for row in grade.rows_of(problem.id)) == problem.points
    for row in grade.rows:
        full = row.outcome is Outcome.PASSED
        assert row.score == row.points if full else 0 <= row.score < row.points
        assert row.score == 0 or row.outcome in (Outcome.PASSED, Outcome.PARTIAL)
    assert grade.earned == sum((row.score for row in grade.rows), Fraction(0))
    told = results(grade)
    assert sum(test["max_score"] for test in told["tests"]) == pytest.approx(
        float(MANIFEST.total_points), abs=1e-9
    )
    assert sum(test["score"] for test in told["tests"]) == pytest.approx(told["score"], abs=1e-3)
    assert told["score"] == pytest.approx(float(grade.earned), abs=1e-3)


@settings(deadline=None)
@given(ended=endings())
def test_no_combination_of_outcomes_moves_what_a_check_is_worth(
    ended: dict[str, dict[str, Any]],
) -> None:
    grade = Grade(MANIFEST.problems, PLANNED, About(course="A course"))
    for name, how in ended.items():
        grade.record(name, **how)
    require_sums(grade)


@A_FEW
@given(ended=endings())
def test_nor_does_it_in_a_whole_grading(
    monkeypatch: pytest.MonkeyPatch, ended: dict[str, dict[str, Any]]
) -> None:
    require_sums(graded(monkeypatch, ended))


def test_two_timeouts_leave_the_rest_of_a_problem_not_run_but_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = {name: {"outcome": Outcome.TIMED_OUT} for name in CHECKS}
    grade = graded(monkeypatch, ended)
    assert grade.points == MANIFEST.total_points
    assert grade.earned == 0
    for problem in MANIFEST.problems:
        outcomes = [row.outcome for row in grade.rows_of(problem.id)]
        assert outcomes[:2] == [Outcome.TIMED_OUT] * 2
        assert set(outcomes[2:]) <= {Outcome.NOT_RUN}
