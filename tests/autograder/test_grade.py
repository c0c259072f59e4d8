"""The denominator is fixed before anything runs, and no result can move it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autograder.grade import (
    WORST_FIRST,
    About,
    Grade,
    Outcome,
    Row,
    points_text,
)
from autograder.intake import Ignored
from autograder.manifest import Problem

BROADCAST = Problem(
    "broadcast", "1.2", "collectives", "Broadcast", Fraction(2), "c", ("broadcast",)
)
REDUCE = Problem("reduce", "1.4", "collectives", "Reduce", Fraction(3), "c", ("reduce",))


def row(check_id: str, points: Fraction | int, **more: Any) -> Row:
    problem = REDUCE if check_id.startswith("reduce") else BROADCAST
    defaults = {
        "problem_id": problem.id,
        "problem_number": problem.number,
        "number": f"{problem.number}.{check_id[-1]}",
        "title": check_id,
        "kind": "values",
        "facts": {"world size": "4"},
        "rerun": "pytest tests/assignment/test_collectives.py -k " + problem.id,
    }
    return Row(check_id=check_id, points=Fraction(points), **{**defaults, **more})


def planned() -> list[Row]:
    return [row("broadcast.1", 2), *(row(f"reduce.{n}", 1) for n in (1, 2, 3))]


@pytest.fixture
def grade() -> Grade:
    return Grade([BROADCAST, REDUCE], planned(), About(course="A course"))


def test_everything_is_not_run_at_first(grade: Grade) -> None:
    assert grade.points == 5
    assert grade.earned == 0
    assert {row.outcome for row in grade.rows} == {Outcome.NOT_RUN}


def test_passing_earns_the_points_and_partial_credit_a_part(grade: Grade) -> None:
    grade.record("broadcast.1", Outcome.PARTIAL, score=Fraction(1, 3))
    grade.record("reduce.2", Outcome.PASSED)
    assert grade.earned == Fraction(4, 3)
    assert [line.earned for line in grade.problem_summary()] == [Fraction(1, 3), 1]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(Outcome), st.fractions())))
def test_no_result_moves_the_denominator_or_leaves_the_range(
    results: list[tuple[int, Outcome, Fraction]],
) -> None:
    grade = Grade([BROADCAST, REDUCE], planned(), About(course=""))
    for place, outcome, score in results:
        part = score if outcome is Outcome.PARTIAL else None
        grade.record(grade.rows[place].check_id, outcome, score=part)
    assert grade.points == 5
    assert [line.points for line in grade.problem_summary()] == [2, 3]
    assert [row.points for row in grade.rows] == [2, 1, 1, 1]
    for row in grade.rows:
        assert 0 <= row.score <= row.points
        assert (row.outcome is Outcome.PASSED) == (row.score == row.points)
        assert (row.outcome is Outcome.PARTIAL) == (0 < row.score < row.points)
    assert grade.earned == sum(line.earned for line in grade.problem_summary())


def test_partial_credit_beyond_the_points_is_cut(grade: Grade) -> None:
    row = grade.record("broadcast.1", Outcome.PARTIAL, score=Fraction(99))
    assert (row.outcome, row.score) == (Outcome.PASSED, Fraction(2))
    row = grade.record("broadcast.1", Outcome.PARTIAL, score=Fraction(-1))
    assert (row.outcome, row.score) == (Outcome.FAILED, Fraction(0))


def test_a_score_goes_with_partial_credit_alone(grade: Grade) -> None:
    with pytest.raises(ValueError, match=r"reduce\.1.*partial"):
        grade.record("reduce.1", Outcome.FAILED, score=Fraction(1))
    with pytest.raises(ValueError, match="partial"):
        grade.record("reduce.1", Outcome.PARTIAL)


def test_a_check_that_was_not_planned_cannot_be_recorded(grade: Grade) -> None:
    with pytest.raises(KeyError):
        grade.record("reduce.9", Outcome.PASSED)


def test_a_later_result_replaces_an_earlier_one_whole(grade: Grade) -> None:
    grade.record("reduce.1", Outcome.FAILED, message="wrong", log="noise", causes=["a", "b"])
    row = grade.record("reduce.1", Outcome.PASSED, seconds=0.5)
    assert (row.outcome, row.message, row.log, row.causes) == (Outcome.PASSED, "", "", ())


def test_facts_of_the_plan_stay_and_new_ones_are_added(grade: Grade) -> None:
    row = grade.record("reduce.1", Outcome.PASSED, facts={"dtype": "float32"})
    assert row.facts == {"world size": "4", "dtype": "float32"}
    assert row.rerun is not None


def test_texts_are_made_safe_on_the_way_in(grade: Grade) -> None:
    row = grade.record(
        "reduce.1",
        Outcome.FAILED,
        message="\x1b[2Jmessage\u202e",
        facts={"op\x1b[1m": "sum\n\x07"},
        causes=["cause\x9b1m"],
        log=b"\xff\x1b]0;title\x07log\n" * 1000,
        staff="staff\x00",
    )
    assert row.message == "message\ufffd"
    assert row.facts == {"world size": "4", "op": "sum \ufffd"}
    assert row.causes == ("cause",)
    assert row.log.startswith("\ufffdlog\n")
    assert len(row.log) < 20_000
    assert row.staff == "staff\ufffd"


def test_a_fault_of_the_graders_own_is_set_apart(grade: Grade) -> None:
    grade.record("broadcast.1", Outcome.PASSED)
    grade.record("reduce.1", Outcome.PASSED)
    grade.record("reduce.2", Outcome.FAILED)
    grade.record("reduce.3", Outcome.GRADER_FAULT, staff="KeyError")
    assert [grade.earned, grade.points, grade.not_counted] == [3, 5, 1]
    assert grade.sentences() == [
        "3 of 5 points.",
        "Not counted yet: 1 check (1.4.3), 1 point. The grader itself failed there: that is not "
        "your fault, and the staff will grade it again.",
    ]


def test_a_problem_is_summed_up_by_the_worst_that_happened(grade: Grade) -> None:
    grade.record("reduce.1", Outcome.PASSED, seconds=0.25)
    grade.record("reduce.2", Outcome.TIMED_OUT, seconds=5.0)
    grade.record("reduce.3", Outcome.FAILED)
    broadcast, reduce = grade.problem_summary()
    assert (broadcast.outcome, broadcast.seconds) == (Outcome.NOT_RUN, None)
    assert (reduce.number, reduce.title) == ("1.4", "Reduce")
    assert (reduce.outcome, reduce.seconds) == (Outcome.TIMED_OUT, 5.25)
    grade.record("reduce.1", Outcome.CRASHED)
    assert grade.problem_summary()[1].outcome is Outcome.CRASHED


def test_a_problem_has_passed_only_when_every_check_has(grade: Grade) -> None:
    for n in (1, 2, 3):
        assert grade.problem_summary()[1].outcome is not Outcome.PASSED
        grade.record(f"reduce.{n}", Outcome.PASSED)
    assert grade.problem_summary()[1].outcome is Outcome.PASSED


def test_every_outcome_has_its_place_in_the_order() -> None:
    assert sorted(WORST_FIRST) == sorted(Outcome)


def test_the_sentences_say_what_did_not_count_and_why() -> None:
    about = About(
        course="",
        notices=["This zip is damaged.\x1b[2J"],
        unofficial=["no uid drop", "the secret is a known one"],
        ignored=[Ignored(f"f{n}.txt", "") for n in range(9)],
    )
    rows = [*planned(), row("reduce.4", 0)]
    grade = Grade([BROADCAST, REDUCE], rows, about)
    grade.record("broadcast.1", Outcome.PARTIAL, score=Fraction(1, 3))
    grade.record("reduce.4", Outcome.NEEDS_HARDWARE)
    assert grade.sentences() == [
        "0.33 of 5 points.",
        "This zip is damaged.",
        "Not run for want of hardware: 1 check (1.4.4), 0 points.",
        "Not run: 3 checks (1.4.1, 1.4.2, 1.4.3), 3 points.",
        "This result is not official: no uid drop; the secret is a known one.",
        "Not taken from the submission: f0.txt, f1.txt, f2.txt, f3.txt, f4.txt, f5.txt, f6.txt, "
        "f7.txt and 1 more.",
    ]


def test_eight_names_are_listed_whole() -> None:
    about = About(course="", ignored=[Ignored(str(n), "") for n in range(8)])
    said = Grade([BROADCAST, REDUCE], planned(), about).sentences()[-1]
    assert said == "Not taken from the submission: 0, 1, 2, 3, 4, 5, 6, 7."


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([*planned(), row("reduce.1", 0)], "two checks"),
        ([*planned(), row("reduce.4", 1)], "worth 3 points, its checks 4"),
        (planned()[:-1], "worth 3 points, its checks 2"),
        ([*planned(), row("reduce.4", 0, problem_id="scan")], "no problem scan"),
        ([*planned()[:-1], row("reduce.3", 1, outcome=Outcome.PASSED)], "planned with a result"),
        ([*planned()[:-1], row("reduce.3", 1, score=Fraction(1))], "planned with a result"),
        ([*planned(), row("reduce.4", -1), row("reduce.5", 1)], "negative"),
    ],
)
def test_a_plan_that_does_not_add_up_is_refused(rows: list[Row], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Grade([BROADCAST, REDUCE], rows, About(course=""))


@pytest.mark.parametrize(
    ("points", "shown"),
    [
        (Fraction(0), "0"),
        (Fraction(10), "10"),
        (Fraction(100), "100"),
        (Fraction(7, 4), "1.75"),
        (Fraction(1, 2), "0.5"),
        (Fraction(1, 3), "0.33"),
    ],
)
def test_points_are_written_shortly(points: Fraction, shown: str) -> None:
    assert points_text(points) == shown
