"""The decorator that makes a pytest test a graded check: `@problem("all_reduce", share="1/5")`.

It puts gradescope-utils' decorators (weight, number, visibility) on the test, with values from the
manifest, and notes what the grader needs: which problem, what share of its points, what kind.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

from gradescope_utils.autograder_utils import decorators as gradescope

from autograder.grade import Kind
from autograder.manifest import Manifest, load_problems
from autograder.paths import REFERENCE

_Test = TypeVar("_Test", bound=Callable[..., Any])


@dataclass(frozen=True)
class Share:
    """What one check is of its problem.

    problem_id: the problem. fraction: the part of its points. kind: what it looks at.
    function: the function of the problem that it calls. title: what students read.
    """

    problem_id: str
    fraction: Fraction
    kind: Kind
    function: str
    title: str


def problem(
    problem_id: str, *, share: str, kind: Kind = "values", function: str | None = None
) -> Callable[[_Test], _Test]:
    """Marks a test as a check of a problem, worth `share` (such as "3/20") of its points.

    kind: "values", "edges", "cost" or "order"; see `FAIR_SHARES` in autograder/grading.py.
    function: the function it is about; None: the first one that the problem asks for.

    The first line of the test's docstring becomes its title.
    """
    asked = _manifest().problem(problem_id)
    fraction = Fraction(share)

    def decorate(test: _Test) -> _Test:
        if not test.__doc__:
            raise ValueError(f"check {test.__name__} has no docstring to take its title from")
        title = test.__doc__.strip().splitlines()[0]
        title = title if title.endswith("...") else title.removesuffix(".")
        test.share = Share(problem_id, fraction, kind, function or asked.names[0], title)  # type: ignore[attr-defined]
        for decorator in (
            gradescope.weight(float(asked.points * fraction)),
            gradescope.number(asked.number),
            gradescope.visibility("visible"),
        ):
            test = decorator(test)
        return test

    return decorate


@functools.cache
def _manifest() -> Manifest:
    return load_problems(REFERENCE)
