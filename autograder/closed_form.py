"""Checks of functions whose right value is a formula of plain numbers.

The grader works the formula out for itself, in fractions. Where results are wrong it tells which
other convention would have led to just these numbers: bits for bytes, one pass for three.
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
    numbers, raised = answer.get(0, "numbers", list), answer.get(0, "raised", list)
    if len(numbers) != len(calls) or len(raised) != len(bad):
        raise CheckFailed("rank 0 gave no answer")
    answered = [(*call, _floats(found)) for call, found in zip(calls, numbers, strict=True)]
    for formula, group in groupby(answered, key=lambda one: one[0]):
        _require(formula, [(arguments, found) for _, arguments, found in group])
    for one, found in zip(bad, raised, strict=True):
        if found != "ValueError":
            raise CheckFailed(
                f"{one.function} with {one.what} must raise ValueError; it raised {found}"
            )


_Numbers = tuple[float, ...]


def _require(formula: Formula, answers: Sequence[tuple[Arguments, _Numbers]]) -> None:
    wrong = [
        (arguments, found)
        for arguments, found in answers
        if not _equal(found, formula.value(**arguments))
    ]
    if not wrong:
        return
    if any(len(found) != len(_each(formula.value(**arguments))) for arguments, found in wrong):
        raise CheckFailed(
            f"{formula.function} does not return what its docstring says, but {_kind(wrong)}"
        )
    causes = dict.fromkeys(m.cause for m in formula.mistakes if _explains(m, formula, wrong))
    raise CheckFailed(
        f"{formula.function}: {len(wrong)} of {len(answers)} results are wrong"
        f"{_by_what_factor(formula, wrong)}",
        causes=[f"consistent with {cause}" for cause in causes][:2],
    )


def _kind(wrong: Sequence[tuple[Arguments, _Numbers]]) -> str:
    counts = {len(found) for _, found in wrong}
    return "no number" if counts == {0} else "another number of numbers"


def _explains(
    mistake: Mistake, formula: Formula, wrong: Sequence[tuple[Arguments, _Numbers]]
) -> bool:
    """Whether it leads to every one of the wrong results."""
    try:
        return all(_equal(found, _mistaken(mistake, formula, one)) for one, found in wrong)
    except ZeroDivisionError:  # it leads to nothing at all
        return False


def _mistaken(mistake: Mistake, formula: Formula, arguments: Arguments) -> Value:
    if callable(mistake.leads_to):
        return mistake.leads_to(**arguments)
    right = formula.value(**arguments)
    assert not isinstance(right, tuple), "several numbers have no factor"
    return mistake.leads_to * right


def _by_what_factor(formula: Formula, wrong: Sequence[tuple[Arguments, _Numbers]]) -> str:
    """By what factor they are off, if it is one: it tells much, and nothing of what is expected."""
    pairs = [(found, _each(formula.value(**arguments))) for arguments, found in wrong]
    if any(len(expected) != 1 or not expected[0] or not found[0] for found, expected in pairs):
        return ""
    factors = [found[0] / float(expected[0]) for found, expected in pairs]
    if not all(math.isclose(one, factors[0], rel_tol=RELATIVE_ERROR) for one in factors):
        return ""
    return f", {factors[0]:.4g} times what is right" + (" each" if len(factors) > 1 else "")


def _floats(found: object) -> _Numbers:
    """What the case tells of a result, without whatever it does not put there."""
    if not isinstance(found, list):
        return ()
    return tuple(float(one) for one in found if isinstance(one, (int, float)))


def _each(value: Value) -> tuple[Fraction | int, ...]:
    return value if isinstance(value, tuple) else (value,)


def _equal(found: _Numbers, value: Value) -> bool:
    expected = _each(value)
    return len(found) == len(expected) and all(
        math.isclose(one, float(wanted), rel_tol=RELATIVE_ERROR, abs_tol=0 if wanted else 1e-12)
        for one, wanted in zip(found, expected, strict=True)
    )
