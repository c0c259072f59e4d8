"""Checks of problem broadcast_parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from autograder.failure import CheckFailed
from autograder.inputs import integers_by_rank
from autograder.judge import Answer, Case, Judge, array
from autograder.overlap import gradient_messages
from autograder.problem import problem
from autograder.training import LAYERS, Weight, distinct
from multirank import Facts, explain

FROZEN = (Weight("embedding.weight", (3, 4), trainable=False), *LAYERS[1:])
TIED = (*LAYERS[:3], Weight("head.weight", same_as="embedding.weight"), LAYERS[4])
BUFFERS = (
    Weight("norm.running_mean", (7,)),
    Weight("norm.batches", (), "int64"),
    Weight("mask", (5, 2), "uint8"),
    Weight("rotary.cache", (6,), "float64"),
)
NOT_SAVED = ("rotary.cache",)  # not part of the state_dict


@dataclass(frozen=True)
class Broadcast:
    """One call. buffers: of which the values are whole numbers, as all are."""

    world_size: int = 4
    src: int = 0
    weights: Sequence[Weight] = LAYERS
    buffers: Sequence[Weight] = ()
    members: tuple[int, ...] | None = None

    @property
    def group(self) -> tuple[int, ...]:
        return self.members or tuple(range(self.world_size))

    @property
    def held(self) -> list[Weight]:
        """Everything that has values of its own."""
        return [*distinct(self.weights), *self.buffers]


@problem("broadcast_parameters", share="3/10")
def test_parameters(judge: Judge) -> None:
    """The parameters of one rank, on 1 to 4 ranks."""
    for call in (Broadcast(4, 0), Broadcast(3, 2), Broadcast(2, 1), Broadcast(1, 0)):
        require_broadcast(judge, call)


@problem("broadcast_parameters", share="1/5")
def test_buffers(judge: Judge) -> None:
    """Buffers too: integers, and those that are not part of the state_dict."""
    require_broadcast(judge, Broadcast(3, 1, buffers=BUFFERS))


@problem("broadcast_parameters", share="3/20")
def test_frozen_and_mixed(judge: Judge) -> None:
    """Parameters that are not trainable, and of several dtypes."""
    mixed = (Weight("gate.weight", (5,), "bfloat16"), Weight("norm.weight", (3, 3), "float64"))
    require_broadcast(judge, Broadcast(3, 0, weights=(*FROZEN, *mixed)))


@problem("broadcast_parameters", share="3/20", kind="edges")
def test_sub_group(judge: Judge) -> None:
    """In a sub-group, where src is a global rank."""
    require_broadcast(judge, Broadcast(4, 3, members=(1, 3)))
    require_broadcast(judge, Broadcast(4, 2, members=(0, 2, 3)))


@problem("broadcast_parameters", share="1/5", kind="cost")
def test_traffic(judge: Judge) -> None:
    """The bytes of all parameters and buffers, each once; tied weights are one parameter."""
    call = Broadcast(3, 0, weights=TIED, buffers=BUFFERS)
    answer = require_broadcast(judge, call)
    total = sum(one.nbytes for one in call.held)
    for rank in call.group:
        sent = gradient_messages(answer.trace.of_rank(rank), distinct(call.weights))
        if (moved := sum(one.nbytes for one in sent)) > total:
            raise CheckFailed(
                f"rank {rank}: {moved:,} bytes are communicated; all parameters and buffers "
                f"together have {total:,}"
            )


def require_broadcast(judge: Judge, call: Broadcast) -> Answer:
    """Everything must be as on src, on every rank.

    Raises:
        CheckFailed: it is not.
    """
    rng = judge.seed.generator(str(call))
    drawn = {one.name: _values(rng, one, len(call.group)) for one in call.held}
    inputs: list[dict[str, Any] | None] = [None] * call.world_size
    for place, rank in enumerate(call.group):
        own = {name: values[place] for name, values in drawn.items()}
        inputs[rank] = {
            "parameters": [one.described() for one in call.weights],
            "values": own,
            "buffers": [
                {"name": one.name, "persistent": one.name not in NOT_SAVED} for one in call.buffers
            ],
            "buffer_values": own,
            "src": call.src,
        }
    facts = {"world size": str(call.world_size), "src": str(call.src)}
    facts |= {"group": str(list(call.members))} if call.members else {}
    case = Case("ddp", "broadcast_parameters", call.world_size, call.members)
    (answer,) = judge.run(case, [inputs], facts=[facts])
    for one in call.held:
        _require_same(call, one, drawn[one.name], answer)
    return answer


def _values(rng: np.random.Generator, one: Weight, n: int) -> list[torch.Tensor]:
    low, high = (0, 255) if one.dtype == "uint8" else (-100, 100)
    drawn = integers_by_rank(rng, n, one.shape, one.dtype, low, high)
    return [torch.from_numpy(np.asarray(own)).to(getattr(torch, one.dtype)) for own in drawn]


def _require_same(
    call: Broadcast, one: Weight, drawn: Sequence[torch.Tensor], answer: Answer
) -> None:
    kind = "buffer" if one in call.buffers else "parameter"
    wanted = drawn[call.group.index(call.src)]
    found = []
    for rank in call.group:
        held = answer.get(rank, "held", dict).get(one.name)
        if not isinstance(held, torch.Tensor):
            raise CheckFailed(f"rank {rank} gave no answer")
        if held.shape != wanted.shape or held.dtype != wanted.dtype:
            raise CheckFailed(f"on rank {rank}, {kind} `{one.name}` has another shape or dtype")
        found.append(array(held).values)
    for rank, own in zip(call.group, found, strict=True):
        if not np.array_equal(own, array(wanted).values):
            given = [array(tensor).values for tensor in drawn]
            facts = Facts(
                function="broadcast",
                ranks=call.group,
                world_size=call.world_size,
                root=call.src,
                before=given,
                received=[bool(answer.trace.of_rank(rank)) for rank in call.group],
            )
            raise CheckFailed(
                f"on rank {rank}, {kind} `{one.name}` is not that of rank {call.src}",
                causes=explain(found, [array(wanted).values] * len(found), given, facts).causes,
            )
