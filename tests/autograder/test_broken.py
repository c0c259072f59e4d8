"""Broken submissions end in a valid result, in time, with the parts that are whole graded right."""

from __future__ import annotations

import json
import time

import jsonschema
import pytest

from autograder.grade import Outcome
from autograder.paths import ROOT
from autograder.report import gradescope

from .broken import broken
from .submissions import SMALL, graded

SCHEMA = json.loads((ROOT / "tests" / "autograder" / "gradescope_schema.json").read_text())
ALL = 300
SOME = [number for number in range(23) if number not in (2, 6, 11)]  # which take longest
BUDGET = 60.0  # seconds for one grading; an honest one takes two or three
OVER = 20.0  # what ends then has to be ended, on a busy machine


def grade(number: int, problems: list[str]) -> None:
    variant = broken(number)
    started = time.monotonic()
    result = graded(variant.files, problems, manifest=SMALL, budget=BUDGET)
    assert time.monotonic() - started < BUDGET + OVER, variant.story
    jsonschema.validate(gradescope.results(result), SCHEMA)
    assert result.points == sum(problem.points for problem in SMALL.problems), variant.story
    for row in result.rows:
        assert row.outcome is not Outcome.GRADER_FAULT, f"{variant.story}: {row.staff}"
    for problem in SMALL.problems:
        if problem.id in problems and problem.module in variant.whole:
            outcomes = {row.outcome for row in result.rows_of(problem.id)}
            assert outcomes == {Outcome.PASSED}, f"{variant.story}: {problem.id} {outcomes}"


@pytest.mark.slow
@pytest.mark.parametrize("number", SOME)
def test_a_broken_module_costs_its_own_part_alone(number: int) -> None:
    """Its own problem, and one of another module."""
    problems = [problem.id for problem in SMALL.problems]
    place = number % len(problems)
    grade(number, [problems[place], problems[place - 2]])


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("number", range(ALL))
def test_a_broken_module_costs_nothing_in_any_other(number: int) -> None:
    grade(number, [problem.id for problem in SMALL.problems])


def test_variants_are_broken_in_many_ways_and_always_the_same() -> None:
    variants = [broken(number) for number in range(ALL)]
    assert [one.files for one in variants[:20]] == [broken(number).files for number in range(20)]
    assert len({one.story for one in variants}) > ALL * 0.9
    assert {one.module for one in variants} == {problem.module for problem in SMALL.problems}
    assert all(one.whole for one in variants)
