"""The trusted comparison: are these the values that were asked for?

It sees only arrays that the grader itself built from bytes, never an object of a submission's, and
every condition is written so that a NaN fails it. Messages never hold an expected value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

# Distance from 1.0 to the next number, for each floating dtype that a check may use.
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass(frozen=True, eq=False)
class Array:
    """A tensor's values beside the name of its dtype, since numpy has no bfloat16.

    dtype: the name torch gives it ("float32", "bfloat16", "int64", "bool", ...).
    values: that shape. Integers and bools in numpy's dtype of the same name; floating ones in
        float16, float32 or float64, converted exactly.

    Raises ValueError when these disagree, which is a mistake of the grader's own.
    """

    dtype: str
    shape: tuple[int, ...]
    values: npt.NDArray[Any]

    def __post_init__(self) -> None:
        if type(self.values) is not np.ndarray:
            raise ValueError(f"values must be a plain numpy array, not {type(self.values)}")
        if self.values.shape != self.shape:
            raise ValueError(f"values have shape {self.values.shape}, declared is {self.shape}")
        held = self.values.dtype
        if self.dtype in EPSILON:
            fits = held in (np.float16, np.float32, np.float64)
        else:
            fits = held.kind in "iub" and held.name == self.dtype
        if not fits:
            raise ValueError(f"values held as {held} cannot stand for dtype {self.dtype!r}")


@dataclass(frozen=True, eq=False)
class Tolerance:
    """The largest absolute error allowed: one number, or one for each element."""

    limit: float | npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        if not np.all(np.isfinite(self.limit)) or not np.all(np.asarray(self.limit) >= 0):
            raise ValueError("a tolerance must be finite and not negative")


def float_tolerance(
    reference_error: float | npt.NDArray[np.float64],
    dtype: str,
    terms: int,
    scale: float | npt.NDArray[np.float64],
) -> Tolerance:
    """What any sensible order of the same sums may be off by, against a float64 oracle.

    reference_error: the reference's own distance from the oracle.
    terms: how many terms each element sums (k). Rounding errors add up like a random walk.
    scale: the size of what is summed, such as the sum of the terms' absolute values.

    Returns max(4 x reference_error, 8 eps sqrt(k) x scale), element by element.
    """
    if terms < 1:
        raise ValueError(f"a sum has at least one term, not {terms}")
    rounding = 8 * EPSILON[dtype] * math.sqrt(terms) * np.abs(np.asarray(scale, np.float64))
    return Tolerance(np.maximum(4 * np.abs(np.asarray(reference_error, np.float64)), rounding))


@dataclass(frozen=True)
class Mismatch:
    """How an output differs. `str()` says it to a student, without any expected value."""

    what: Literal["shape", "dtype", "not finite", "values"]
    first: int | None
    """The first wrong element, counted in the flattened tensor; None for shape and dtype."""
    wrong: int
    size: int
    detail: str = ""

    def __str__(self) -> str:
        if self.what in ("shape", "dtype"):
            return self.detail
        verb = "is" if self.wrong == 1 else "are"
        fault = "wrong" if self.what == "values" else "NaN or infinite"
        if self.size == 1:
            return f"the only element is {fault}"
        if self.wrong == self.size:
            return f"all {self.size} elements are {fault}"
        return (
            f"{self.wrong} of {self.size} elements {verb} {fault}, "
            f"the first at flat index {self.first}"
        )


def mismatch(actual: Array, expected: Array, tolerance: Tolerance | None) -> Mismatch | None:
    """The first kind of difference: shape, dtype, finiteness, values. None where there is none.

    tolerance: None asks for equality. Floating values are compared in float64, integers as
        integers, whose tolerance must be None.

    Raises ValueError when `expected` is not finite: no submission should be judged by it.
    """
    if not np.all(np.isfinite(expected.values)):
        raise ValueError(
            "the expected values are not finite: a fault of the check, not of anyone's work"
        )
    size = expected.values.size
    if actual.shape != expected.shape:
        detail = f"has shape {actual.shape} where {expected.shape} was asked for"
        return Mismatch("shape", None, size, size, detail)
    if actual.dtype != expected.dtype:
        detail = f"has dtype {actual.dtype} where {expected.dtype} was asked for"
        return Mismatch("dtype", None, size, size, detail)
    finite = np.isfinite(actual.values)
    if not np.all(finite):
        return _elements("not finite", ~finite)
    right = _right(actual, expected, tolerance)
    return None if np.all(right) else _elements("values", ~right)


def _right(actual: Array, expected: Array, tolerance: Tolerance | None) -> npt.NDArray[np.bool_]:
    """Which elements are as asked for."""
    if expected.dtype not in EPSILON:
        if tolerance is not None:
            raise ValueError(f"{expected.dtype} is compared exactly: a tolerance has no place here")
        return np.asarray(actual.values == expected.values)
    a, e = actual.values.astype(np.float64), expected.values.astype(np.float64)
    if tolerance is None:
        return np.asarray(a == e)
    with np.errstate(over="ignore"):
        return np.asarray(np.abs(a - e) <= tolerance.limit)


def _elements(what: Literal["not finite", "values"], wrong: npt.NDArray[np.bool_]) -> Mismatch:
    places = np.flatnonzero(wrong)
    return Mismatch(what, int(places[0]), len(places), wrong.size)
