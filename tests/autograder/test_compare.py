"""What is wrong is found, what is right is left alone, and no NaN passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autograder.compare import EPSILON, Array, Mismatch, Tolerance, float_tolerance, mismatch

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
FLOATS = hnp.arrays(np.float32, SHAPES, elements=st.floats(-1e6, 1e6, width=32))


def array(values: Any, dtype: str = "float32") -> Array:
    held = np.asarray(values, "float32" if dtype == "bfloat16" else dtype)
    return Array(dtype, held.shape, held)


def what(actual: Any, expected: Any, dtype: str = "float32", limit: float | None = None) -> Any:
    tolerance = None if limit is None else Tolerance(limit)
    found = mismatch(array(actual, dtype), array(expected, dtype), tolerance)
    return None if found is None else found.what


@given(FLOATS)
def test_equal_values_match(values: npt.NDArray[np.float32]) -> None:
    assert mismatch(array(values), array(values.copy()), None) is None
    assert mismatch(array(values), array(values.copy()), Tolerance(0.0)) is None


@given(FLOATS, st.data())
def test_one_bad_element_anywhere_is_found_and_placed(
    values: npt.NDArray[np.float32], data: st.DataObject
) -> None:
    if values.size == 0:
        return
    place = data.draw(st.integers(0, values.size - 1))
    bad = data.draw(st.sampled_from([np.nan, np.inf, -np.inf, 3e6]))
    actual = values.copy()
    actual.reshape(-1)[place] = bad
    for tolerance in (None, Tolerance(1.0), Tolerance(np.ones(values.shape))):
        found = mismatch(array(actual), array(values), tolerance)
        kind = "values" if np.isfinite(bad) else "not finite"
        assert found is not None
        assert (found.what, found.first, found.wrong, found.size) == (kind, place, 1, values.size)


def test_a_shape_that_would_broadcast_does_not_match() -> None:
    assert what([1.0], [1.0, 1.0], limit=9.0) == "shape"
    assert what(1.0, [1.0], limit=9.0) == "shape"
    assert what(np.zeros((0, 3)), np.zeros((3, 0))) == "shape"


def test_shape_is_told_before_dtype_and_dtype_before_values() -> None:
    assert mismatch(array([np.nan, 1], "float64"), array([1.0]), None) == Mismatch(
        "shape", None, 1, 1, "has shape (2,) where (1,) was asked for"
    )
    found = mismatch(array([np.nan], "bfloat16"), array([1.0]), None)
    assert found is not None
    assert found.what == "dtype"
    assert what([np.nan, 5.0], [1.0, 1.0]) == "not finite"


def test_an_empty_tensor_matches_an_empty_tensor_of_its_shape() -> None:
    assert what(np.zeros((0, 3)), np.zeros((0, 3))) is None


def test_the_sign_of_zero_does_not_matter() -> None:
    assert what([-0.0], [0.0]) is None


def test_large_integers_are_not_rounded() -> None:
    assert what([2**60 + 1], [2**60], "int64") == "values"
    assert what([2**60], [2**60], "int64") is None


def test_integers_are_never_compared_within_a_tolerance() -> None:
    with pytest.raises(ValueError, match="exactly"):
        what([1], [1], "int64", limit=1.0)


def test_bools_are_compared() -> None:
    assert what([True, False], [True, True], "bool") == "values"


def test_equality_sees_one_bit() -> None:
    assert what([np.nextafter(np.float32(1), np.float32(2))], [1.0]) == "values"


def test_a_difference_too_large_for_a_float_is_wrong() -> None:
    assert what([1.7e308], [-1.7e308], "float64", limit=1e300) == "values"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_expected_values_that_are_not_finite_are_the_graders_fault(bad: float) -> None:
    with pytest.raises(ValueError, match="fault of the check"):
        what([bad], [bad])


@pytest.mark.parametrize("limit", [np.nan, np.inf, -1.0, np.array([0.0, np.nan])])
def test_a_tolerance_that_passes_everything_is_refused(limit: float) -> None:
    with pytest.raises(ValueError, match="tolerance"):
        Tolerance(limit)


def test_only_plain_arrays_that_are_what_they_say_are_compared() -> None:
    class Agreeable(np.ndarray[Any, Any]):
        def __eq__(self, other: object) -> bool:
            return True

    with pytest.raises(ValueError, match="plain numpy array"):
        Array("float32", (1,), np.zeros(1, np.float32).view(Agreeable))
    with pytest.raises(ValueError, match="declared"):
        Array("float32", (2,), np.zeros(1, np.float32))
    with pytest.raises(ValueError, match="cannot stand for"):
        Array("int32", (1,), np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="cannot stand for"):
        Array("float32", (1,), np.array([1.0], object))


def test_a_message_says_where_but_not_what_was_expected() -> None:
    found = mismatch(array([1.0, 2.0, 77.0]), array([1.0, 42.5, 43.5]), None)
    assert str(found) == "2 of 3 elements are wrong, the first at flat index 1"
    assert str(mismatch(array([7.0, 7.0]), array([1.0, 2.0]), None)) == "all 2 elements are wrong"
    assert str(mismatch(array([7.0]), array([1.0]), None)) == "the only element is wrong"
    found = mismatch(array([1.0, np.nan]), array([1.0, 2.0]), None)
    assert str(found) == "1 of 2 elements is NaN or infinite, the first at flat index 1"
    found = mismatch(array([1.0], "float64"), array([1.0]), None)
    assert str(found) == "has dtype float64 where float32 was asked for"


def test_the_tolerance_follows_the_reference_or_the_arithmetic_whichever_allows_more() -> None:
    arithmetic = 8 * 2.0**-23 * 4 * 10
    assert float_tolerance(0.0, "float32", 16, 10.0).limit == arithmetic
    assert float_tolerance(1.0, "float32", 16, 10.0).limit == 4.0
    by_element = float_tolerance(np.array([0.0, 1.0]), "float32", 16, np.array([10.0, 10.0]))
    assert np.array_equal(by_element.limit, [arithmetic, 4.0])


def test_a_sum_of_one_term_may_be_off_but_a_sum_of_none_is_refused() -> None:
    assert float_tolerance(0.0, "bfloat16", 1, 1.0).limit == 2.0**-4
    with pytest.raises(ValueError, match="at least one term"):
        float_tolerance(0.0, "bfloat16", 0, 1.0)


def test_any_order_of_a_sum_is_within_the_tolerance_and_a_lost_term_is_not() -> None:
    rng = np.random.default_rng(1)
    terms = rng.standard_normal((8, 1000)).astype(np.float32)
    oracle = terms.astype(np.float64).sum(axis=0)
    scale = np.abs(terms).astype(np.float64).sum(axis=0)
    forward = np.zeros(1000, np.float32)
    for term in terms:
        forward += term
    limit = float_tolerance(np.abs(forward - oracle), "float32", 8, scale)
    backward = np.zeros(1000, np.float32)
    for term in terms[::-1]:
        backward += term
    expected = array(oracle, "float64")
    assert mismatch(array(backward.astype(np.float64), "float64"), expected, limit) is None
    lost = (oracle - terms[3]).astype(np.float64)
    assert mismatch(array(lost, "float64"), expected, limit) is not None


def test_the_rounding_of_each_dtype_is_known() -> None:
    for name in ("float16", "float32", "float64"):
        assert EPSILON[name] == np.finfo(name).eps
    torch = pytest.importorskip("torch")
    assert EPSILON["bfloat16"] == torch.finfo(torch.bfloat16).eps
