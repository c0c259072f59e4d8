"""Checks of functions whose right value is a formula of plain numbers.

The grader works the formula out for itself, in fractions. Where results are wrong it tells which
other convention leads to just these numbers: bits for bytes, one pass for three.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Any

from autograder.failure import CheckFailed
from autograder.judge import Case, Judge

RELATIVE_ERROR = 1e-9
_CASE = Case("accounting", "answers", world_size=1, process_group=False)

Arguments = Mapping[str, Any]
Value = Fraction | int | tuple[int, ...]
Function = Callable[..., Value]


@dataclass(frozen=True)
class Mistake:
    """A convention that somebody may have had in mind.

    cause: completes "consistent with ...".
    leads_to: the result, of the call's arguments; or by what factor it differs from the right one.
    """

    cause: str
    leads_to: Function | Fraction | int


@dataclass(frozen=True)
class Formula:
    """A function of the assignment: its name, its right value by its arguments, known mistakes."""

    function: str
    value: Function
    mistakes: tuple[Mistake, ...] = ()


@dataclass(frozen=True)
class BadCall:
    """A call that must raise ValueError. what: is wrong with it, in words."""

    function: str
    arguments: Arguments
    what: str


BITS = Mistake("bits where bytes are asked for", 8)
ELEMENTS = Mistake("elements where bytes are asked for: one of 16 bits has 2 bytes", Fraction(1, 2))
GIGABYTES = Mistake("gigabytes where bytes are asked for", Fraction(1, 10**9))
GIBIBYTES = Mistake("GiB (1024**3 bytes) where bytes are asked for", Fraction(1, 1024**3))
PREFIX_1024 = Mistake(
    "a factor of 1024 for each step of a prefix: a GB has 1000**3 bytes", Fraction(1024, 1000) ** 3
)
BYTES = (BITS, GIGABYTES, GIBIBYTES, PREFIX_1024)
PERCENT = Mistake("a percentage where a fraction is asked for", 100)


def require_numbers(
    judge: Judge, calls: Sequence[tuple[Formula, Arguments]], bad: Sequence[BadCall] = ()
) -> None:
    """Makes the calls in one process; all results must be right, and every bad call refused.

    Raises:
        CheckFailed: at the first function that is not as it should be.
    """
    inputs = {
        "calls": [[formula.function, dict(arguments)] for formula, arguments in calls],
        "bad": [[one.function, dict(one.arguments)] for one in bad],
    }
    (answer,) = judge.run(_CASE, [[inputs]])
    numbers, raised = answer.plain(0, "numbers"), answer.plain(0, "raised")
    if len(numbers) != len(calls) or len(raised) != len(bad):
        raise CheckFailed("rank 0 gave no answer")
    answers = [
        _Answer(formula, arguments, _floats(found))
        for (formula, arguments), found in zip(calls, numbers, strict=True)
    ]
    for _, group in groupby(answers, key=lambda one: one.formula):
        _require(list(group))
    for one, found in zip(bad, raised, strict=True):
        if found != "ValueError":
            raise CheckFailed(
                f"{one.function} with {one.what} must raise ValueError; it raised {found}"
            )


@dataclass(frozen=True)
class _Answer:
    """What came of one call."""

    formula: Formula
    arguments: Arguments
    found: tuple[float, ...]

    @property
    def expected(self) -> tuple[Fraction | int, ...]:
        return _each(self.formula.value(**self.arguments))

    @property
    def right(self) -> bool:
        return self.is_near(self.expected)

    def is_near(self, wanted: Sequence[Fraction | int]) -> bool:
        return len(self.found) == len(wanted) and all(
            math.isclose(one, float(other), rel_tol=RELATIVE_ERROR, abs_tol=0 if other else 1e-12)
            for one, other in zip(self.found, wanted, strict=True)
        )

    def is_explained_by(self, mistake: Mistake) -> bool:
        try:
            if callable(mistake.leads_to):
                return self.is_near(_each(mistake.leads_to(**self.arguments)))
        except ZeroDivisionError:  # it leads to nothing at all
            return False
        return self.is_near([mistake.leads_to * one for one in self.expected])


def _require(answers: Sequence[_Answer]) -> None:
    """All answers of one function must be right; else which mistake leads to all that it says."""
    wrong = [one for one in answers if not one.right]
    if not wrong:
        return
    formula = wrong[0].formula
    if any(len(one.found) != len(one.expected) for one in wrong):
        kind = "other than it should" if any(one.found for one in wrong) else "no number"
        raise CheckFailed(f"{formula.function} returns {kind}; see its docstring")
    causes = dict.fromkeys(
        mistake.cause
        for mistake in formula.mistakes
        if all(one.is_explained_by(mistake) for one in answers)
    )
    raise CheckFailed(
        f"{formula.function}: {len(wrong)} of {len(answers)} results are wrong"
        f"{_by_what_factor(wrong)}",
        causes=[f"consistent with {cause}" for cause in causes][:2],
    )


def _by_what_factor(wrong: Sequence[_Answer]) -> str:
    """By what factor they are off, if it is one: it tells much, and nothing of what is expected."""
    if any(len(one.expected) != 1 or not one.expected[0] for one in wrong):
        return ""
    factors = [one.found[0] / float(one.expected[0]) for one in wrong]
    if not all(math.isclose(one, factors[0], rel_tol=RELATIVE_ERROR) for one in factors):
        return ""
    return f", {factors[0]:.4g} times what is right" + (" each" if len(factors) > 1 else "")


def _each(value: Value) -> tuple[Fraction | int, ...]:
    return value if isinstance(value, tuple) else (value,)


def _floats(found: object) -> tuple[float, ...]:
    """What the case tells of a result, without whatever it does not put there."""
    if not isinstance(found, list):
        return ()
    return tuple(one for one in found if isinstance(one, float))
