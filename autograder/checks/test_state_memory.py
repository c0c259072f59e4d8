"""Checks of problem state_memory."""

from __future__ import annotations

from fractions import Fraction

from autograder.closed_form import BYTES, BadCall, Formula, Mistake, require_numbers
from autograder.judge import Judge
from autograder.problem import problem

STAGES = ("ddp", "zero1", "zero2", "zero3")  # each shards one thing more than the one before
WORLD_SIZES = (2, 3, 8, 64)


def _state(
    parameters: float,
    sharding: str,
    world_size: int,
    *,
    weight: int = 2,
    gradient: int = 2,
    optimizer: int = 12,
    shift: int = 0,
) -> Fraction:
    """Bytes a device, if each parameter has so many, and `shift` things more are sharded."""
    sharded = STAGES.index(sharding) + shift
    per_parameter = sum(
        Fraction(size, world_size if place < sharded else 1)
        for place, size in enumerate((optimizer, gradient, weight))
    )
    return Fraction(parameters) * per_parameter


STATE = Formula(
    "state_bytes",
    _state,
    (
        Mistake(
            "an optimizer of 8 bytes a parameter: Adam has a master copy and two moments, 12",
            lambda **given: _state(**given, optimizer=8),
        ),
        Mistake(
            "an optimizer of 4 bytes a parameter: Adam has a master copy and two moments, 12",
            lambda **given: _state(**given, optimizer=4),
        ),
        Mistake(
            "moments of 16 bits: all three numbers of the optimizer have 32",
            lambda **given: _state(**given, optimizer=8),
        ),
        Mistake("gradients of 32 bits: they have 16", lambda **given: _state(**given, gradient=4)),
        Mistake("weights of 32 bits: they have 16", lambda **given: _state(**given, weight=4)),
        Mistake(
            "weights and gradients of 32 bits: they have 16",
            lambda **given: _state(**given, weight=4, gradient=4),
        ),
        Mistake(
            "no gradients: they have 2 bytes a parameter",
            lambda **given: _state(**given, gradient=0),
        ),
        Mistake("the optimizer alone", lambda **given: _state(**given, weight=0, gradient=0)),
        Mistake("one thing too few sharded", lambda **given: _state(**given, shift=-1)),
        Mistake("one thing too many sharded", lambda **given: _state(**given, shift=1)),
        Mistake("nothing sharded", lambda **given: _state(**given | {"sharding": "ddp"})),
        Mistake("everything sharded", lambda **given: _state(**given | {"sharding": "zero3"})),
        Mistake(
            "the total over all devices, where one device's part is asked for",
            lambda **given: given["world_size"] * _state(**given),
        ),
        Mistake(
            "bytes per parameter, where bytes of the whole model are asked for",
            lambda **given: _state(**given | {"parameters": 1}),
        ),
        *BYTES,
    ),
)


@problem("state_memory", share="1/5")
def test_ddp(judge: Judge) -> None:
    """Everything on every device."""
    _require(judge, "ddp")


@problem("state_memory", share="9/40")
def test_zero1(judge: Judge) -> None:
    """ZeRO-1: the optimizer sharded."""
    _require(judge, "zero1")


@problem("state_memory", share="9/40")
def test_zero2(judge: Judge) -> None:
    """ZeRO-2: the gradients too."""
    _require(judge, "zero2")


@problem("state_memory", share="1/5")
def test_zero3(judge: Judge) -> None:
    """ZeRO-3: the weights too."""
    _require(judge, "zero3")


@problem("state_memory", share="3/20", kind="edges")
def test_edges(judge: Judge) -> None:
    """One device holds everything, and bad arguments raise ValueError."""
    good = {"parameters": 1e9, "sharding": "zero3", "world_size": 8}
    require_numbers(
        judge,
        [(STATE, good), *((STATE, good | {"world_size": 1, "sharding": one}) for one in STAGES)],
        [
            BadCall("state_bytes", good | {"parameters": 0}, "no parameters"),
            BadCall("state_bytes", good | {"sharding": "zero4"}, "a sharding that there is not"),
            BadCall("state_bytes", good | {"world_size": 0}, "no devices"),
            BadCall("state_bytes", good | {"world_size": 2.5}, "two and a half devices"),
        ],
    )


def _require(judge: Judge, sharding: str) -> None:
    rng = judge.seed.generator()
    require_numbers(
        judge,
        [
            (
                STATE,
                {
                    "parameters": int(rng.integers(10, 10000)) * 1e8,
                    "sharding": sharding,
                    "world_size": world_size,
                },
            )
            for world_size in WORLD_SIZES
        ],
    )
