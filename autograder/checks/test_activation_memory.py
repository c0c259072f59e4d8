"""Checks of problem activation_memory."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from autograder.closed_form import BYTES, ELEMENTS, BadCall, Formula, Mistake, require_numbers
from autograder.judge import Judge
from autograder.problem import problem

PLAIN: dict[str, Any] = {}


def _kept(
    batch: int,
    sequence: int,
    hidden: int,
    heads: int,
    tensor_parallel: int = 1,
    sequence_parallel: bool = False,
    recomputation: str = "none",
    *,
    whole: int = 10,
    inside: int = 24,
    squared: int = 5,
) -> Fraction:
    """With these multiples of sbh left whole and shared, and of the scores' elements."""
    sbh, scores = sequence * batch * hidden, heads * sequence**2 * batch
    if recomputation == "full":
        whole, inside, squared = 2, 0, 0
    if recomputation == "selective":
        squared = 0
    t = tensor_parallel
    left = Fraction(whole * sbh, t if sequence_parallel else 1)
    return left + Fraction(inside * sbh + squared * scores, t)


KEPT = Formula(
    "activation_bytes",
    _kept,
    (
        Mistake(
            "34 sbh, without the a s^2 of attention", lambda **given: _kept(**given, squared=0)
        ),
        Mistake(
            "a single head: each has scores of its own",
            lambda **given: _kept(**given | {"heads": 1}),
        ),
        Mistake(
            "scores and softmax without the mask of their dropout: 5 bytes for each of them",
            lambda **given: _kept(**given, squared=4),
        ),
        Mistake(
            "no layer norms: they keep 4 sbh, whole on every device",
            lambda **given: _kept(**given, whole=6),
        ),
        Mistake(
            "everything shared out: tensor parallelism leaves 10 sbh whole",
            lambda **given: _kept(**given | {"sequence_parallel": True}),
        ),
        Mistake(
            "10 sbh left whole with sequence parallelism too: it shares them out",
            lambda **given: _kept(**given | {"sequence_parallel": False}),
        ),
        Mistake(
            "no tensor parallelism",
            lambda **given: _kept(**given | {"tensor_parallel": 1}),
        ),
        Mistake("no recomputation", lambda **given: _kept(**given | {"recomputation": "none"})),
        Mistake(
            "full recomputation that keeps nothing: the layer's input is needed to begin from",
            lambda **given: _kept(**given) if given.get("recomputation") != "full" else 0,
        ),
        Mistake(
            "full recomputation that shares out the layer's input: without sequence parallelism it "
            "is whole",
            lambda **given: _kept(
                **given
                | {
                    "sequence_parallel": given.get("sequence_parallel", False)
                    or given.get("recomputation") == "full"
                }
            ),
        ),
        ELEMENTS,
        *BYTES,
    ),
)


@problem("activation_memory", share="3/10")
def test_one_device(judge: Judge) -> None:
    """What a layer keeps on one device."""
    _require(judge, [PLAIN, {"recomputation": "none"}, {"sequence_parallel": False}])


@problem("activation_memory", share="3/10")
def test_parallel(judge: Judge) -> None:
    """With tensor parallelism, and with sequence parallelism too."""
    sizes = ({"tensor_parallel": t} for t in (2, 4, 8))
    _require(judge, [one | more for one in sizes for more in ({}, {"sequence_parallel": True})])


@problem("activation_memory", share="1/4")
def test_recomputation(judge: Judge) -> None:
    """With selective and full recomputation, alone and with parallelism."""
    _require(
        judge,
        [
            {"recomputation": how} | more
            for how in ("selective", "full")
            for more in (
                {},
                {"tensor_parallel": 4},
                {"tensor_parallel": 8, "sequence_parallel": True},
            )
        ],
    )


@problem("activation_memory", share="3/20", kind="edges")
def test_refusals(judge: Judge) -> None:
    """Bad arguments raise ValueError."""
    good = {"batch": 1, "sequence": 1, "hidden": 1, "heads": 1}
    require_numbers(
        judge,
        [(KEPT, good)],
        [
            BadCall("activation_bytes", good | {"sequence": 0}, "no tokens"),
            BadCall("activation_bytes", good | {"heads": -1}, "less than no head"),
            BadCall("activation_bytes", good | {"tensor_parallel": 0}, "no devices"),
            BadCall("activation_bytes", good | {"recomputation": "some"}, "an unknown word"),
        ],
    )


def _require(judge: Judge, settings: Iterable[dict[str, Any]]) -> None:
    rng = judge.seed.generator()
    require_numbers(judge, [(KEPT, _shape(rng) | more) for more in settings])


def _shape(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "batch": int(rng.integers(1, 9)),
        "sequence": 512 * int(rng.integers(1, 17)),
        "hidden": 128 * int(rng.integers(8, 99)),
        "heads": 8 * int(rng.integers(1, 13)),
    }
