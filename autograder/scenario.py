"""Scenarios of the collectives: inputs for every rank, and what must come out, in closed form.

A scenario is data: which function, how many ranks, which sub-group, what shape, dtype and layout.
`draw` turns it into inputs from the check's seed, and computes the expected values with numpy, from
the definition of the function and not from any implementation of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from autograder.compare import EPSILON, Array
from autograder.inputs import Op, exact_bound, integers_by_rank
from autograder.judge import Case, tensor

Values = npt.NDArray[Any]

AROUND = 99  # as in autograder/cases/collectives.py
ROOTED = ("broadcast", "scatter", "gather", "reduce")
REDUCING = ("reduce", "reduce_scatter", "all_reduce")
IN_PLACE = ("broadcast", "reduce", "all_reduce")  # the result goes where the input was
_NUMPY_OPS: dict[str, Callable[..., Values]] = {
    "sum": np.add,
    "avg": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


@dataclass(frozen=True)
class Scenario:
    """One call of a collective.

    shape: of the smaller of its tensors: all_gather's input, reduce_scatter's output, one piece of
        scatter and gather, the tensor of the others. For all_to_all: of one row of the tensors.
    members: global ranks of the sub-group; None: all ranks, as the default group.
    root: global rank, for the functions that have one.
    splits: for all_to_all, splits[i][j] rows go from member i to member j; None: `rows` to each.
    layout: of all tensors in memory: "plain", "strided", "transposed", "expanded" (inputs only).
    """

    function: str
    world_size: int
    shape: tuple[int, ...] = (5,)
    op: Op = "sum"
    root: int = 0
    dtype: str = "float32"
    members: tuple[int, ...] | None = None
    layout: str = "plain"
    rows: int = 2
    splits: tuple[tuple[int, ...], ...] | None = None

    @property
    def group(self) -> tuple[int, ...]:
        """The global ranks that take part."""
        return self.members or tuple(range(self.world_size))

    @property
    def facts(self) -> dict[str, str]:
        """What a student is told about it."""
        facts = {"world size": str(self.world_size), "dtype": self.dtype, "shape": str(self.shape)}
        if self.function in REDUCING:
            facts["operation"] = self.op.upper()
        if self.function in ROOTED:
            facts["root"] = str(self.root)
        if self.members:
            facts["group"] = str(list(self.members))
        if self.layout != "plain":
            facts["layout"] = self.layout
        return facts

    def __str__(self) -> str:
        told = ", ".join(f"{name} {value}" for name, value in self.facts.items())
        return f"{self.function} ({told})"

    def draw(self, rng: np.random.Generator) -> Drawn:
        """Inputs and expected outputs. Values differ by rank and by index."""
        return _DRAWERS.get(self.function, _draw_elementwise)(self, rng)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Inputs for a case, by global rank, and what each member's outputs must be.

    contributions: what each member put in, in group order, for the search of likely causes; None
        where it put in nothing.
    expected: for each member, in group order, its named outputs; a list stands for several tensors.
    """

    case: Case
    inputs: list[dict[str, Any] | None]
    contributions: list[Values | None]
    expected: list[dict[str, Array | list[Array]]]


ALLOWED = frozenset({"send", "recv"})


def _drawn(
    scenario: Scenario,
    inputs: Sequence[dict[str, Any]],
    contributions: Sequence[Values | None],
    results: Sequence[Values | list[Values] | None],
    untouched: Sequence[Values | list[Values] | None],
) -> Drawn:
    """Puts together what the drawers below have worked out, member by member."""
    by_rank: list[dict[str, Any] | None] = [None] * scenario.world_size
    for rank, given in zip(scenario.group, inputs, strict=True):
        by_rank[rank] = _shared_inputs(scenario) | given
    expected = [
        {
            name: _arrays(scenario, values)
            for name, values in (("result", result), ("input", read_only))
            if values is not None
        }
        for result, read_only in zip(results, untouched, strict=True)
    ]
    case = Case(
        "collectives",
        scenario.function,
        scenario.world_size,
        scenario.members,
        allowed=ALLOWED,
    )
    return Drawn(case, by_rank, list(contributions), expected)


def _shared_inputs(scenario: Scenario) -> dict[str, Any]:
    given: dict[str, Any] = {"layout": scenario.layout}
    if scenario.function in ROOTED:
        given["root"] = scenario.root
    if scenario.function in REDUCING:
        given["op"] = scenario.op.upper()
    return given


def _arrays(scenario: Scenario, values: Values | list[Values]) -> Array | list[Array]:
    if isinstance(values, list):
        return [_array(scenario, one) for one in values]
    return _array(scenario, values)


def _array(scenario: Scenario, values: Values) -> Array:
    held = np.asarray(values, np.float64 if scenario.dtype in EPSILON else scenario.dtype)
    return Array(scenario.dtype, held.shape, held)  # of a sum of scalars numpy makes no array


def _numbers(scenario: Scenario, rng: np.random.Generator, shape: tuple[int, ...]) -> list[Values]:
    """Each member's whole numbers, exact under the scenario's reduction in every order."""
    n = len(scenario.group)
    multiple = 12 if scenario.op == "avg" else 1
    # Integers that float32 cannot hold: a detour through it must show.
    most = 1 << (20 if scenario.dtype in EPSILON else 40)
    bound = min(exact_bound(scenario.dtype, n, scenario.op, multiple), most)
    low = 1 if scenario.op == "product" else -bound
    if scenario.dtype == "uint8":
        low = 0
    if scenario.layout == "expanded":
        first = integers_by_rank(rng, n, (1, *shape[1:]), scenario.dtype, low, bound, multiple)
        return [np.broadcast_to(values, shape).copy() for values in first]
    return integers_by_rank(rng, n, shape, scenario.dtype, low, bound, multiple)


def _combine(scenario: Scenario, values: Sequence[Values]) -> Values:
    """The reduction of all members' values, exactly."""
    wide = [one.astype(np.float64 if scenario.dtype in EPSILON else np.int64) for one in values]
    total = wide[0]
    for one in wide[1:]:
        total = _NUMPY_OPS[scenario.op](total, one)
    return total / len(wide) if scenario.op == "avg" else total


def _to(scenario: Scenario, values: Values) -> Any:
    return tensor(values, scenario.dtype)


def _draw_elementwise(scenario: Scenario, rng: np.random.Generator) -> Drawn:
    """broadcast, reduce and all_reduce: a tensor of one shape everywhere, in place."""
    given = _numbers(scenario, rng, scenario.shape)
    results: list[Values | None] = [None] * len(given)
    untouched: list[Values | None] = [None] * len(given)
    if scenario.function == "all_reduce":
        results = [_combine(scenario, given)] * len(given)
    elif scenario.function == "broadcast":
        results = [given[scenario.group.index(scenario.root)]] * len(given)
    else:
        root = scenario.group.index(scenario.root)
        results[root] = _combine(scenario, given)
        untouched = [None if place == root else own for place, own in enumerate(given)]
    inputs = [{"tensor": _to(scenario, own)} for own in given]
    return _drawn(scenario, inputs, given, results, untouched)


def _draw_scatter(scenario: Scenario, rng: np.random.Generator) -> Drawn:
    pieces = _numbers(scenario, rng, scenario.shape)  # one for each member, all at the root
    like = _to(scenario, np.zeros(scenario.shape))
    root = scenario.group.index(scenario.root)
    inputs = [
        {"like": like, "pieces": [_to(scenario, piece) for piece in pieces] if i == root else []}
        for i in range(len(pieces))
    ]
    untouched = [pieces if i == root else [] for i in range(len(pieces))]
    whole = np.concatenate([piece.ravel() for piece in pieces])
    contributions = [whole if i == root else None for i in range(len(pieces))]
    return _drawn(scenario, inputs, contributions, pieces, untouched)


def _draw_gather(scenario: Scenario, rng: np.random.Generator) -> Drawn:
    given = _numbers(scenario, rng, scenario.shape)
    root = scenario.group.index(scenario.root)
    results = [given if i == root else [] for i in range(len(given))]
    inputs = [{"tensor": _to(scenario, own)} for own in given]
    return _drawn(scenario, inputs, given, results, given)


def _draw_all_gather(scenario: Scenario, rng: np.random.Generator) -> Drawn:
    given = _numbers(scenario, rng, scenario.shape)
    whole = np.concatenate(given)
    inputs = [{"tensor": _to(scenario, own), "output_shape": list(whole.shape)} for own in given]
    return _drawn(scenario, inputs, given, [whole] * len(given), given)


def _draw_reduce_scatter(scenario: Scenario, rng: np.random.Generator) -> Drawn:
    n = len(scenario.group)
    first, *rest = scenario.shape
    given = _numbers(scenario, rng, (n * first, *rest))
    parts = np.split(_combine(scenario, given), n)
    inputs = [{"tensor": _to(scenario, own), "output_shape": list(scenario.shape)} for own in given]
    return _drawn(scenario, inputs, given, parts, given)


def _draw_all_to_all(scenario: Scenario, rng: np.random.Generator) -> Drawn:
    n = len(scenario.group)
    splits = np.array(scenario.splits or [[scenario.rows] * n] * n)
    most = int(splits.sum(axis=1).max())
    drawn = _numbers(scenario, rng, (most, *scenario.shape))
    given = [own[: splits[i].sum()] for i, own in enumerate(drawn)]
    starts = np.hstack([np.zeros((n, 1), int), splits.cumsum(axis=1)])
    results = [
        np.concatenate([given[i][starts[i, j] : starts[i, j + 1]] for i in range(n)])
        for j in range(n)
    ]
    uneven = scenario.splits is not None
    inputs = [
        {
            "tensor": _to(scenario, given[i]),
            "output_shape": list(results[i].shape),
            "output_splits": splits[:, i].tolist() if uneven else None,
            "input_splits": splits[i].tolist() if uneven else None,
        }
        for i in range(n)
    ]
    return _drawn(scenario, inputs, given, results, given)


_DRAWERS: dict[str, Callable[[Scenario, np.random.Generator], Drawn]] = {
    "scatter": _draw_scatter,
    "gather": _draw_gather,
    "all_gather": _draw_all_gather,
    "reduce_scatter": _draw_reduce_scatter,
    "all_to_all": _draw_all_to_all,
}


def on(scenario: Scenario, **changes: Sequence[Any]) -> list[Scenario]:
    """The scenario with one field changed to each of several values: `on(s, world_size=(1, 2))`."""
    ((name, values),) = changes.items()
    return [replace(scenario, **{name: value}) for value in values]
