"""Checks of problem pipeline_stage: one stage alone, driven by hand; no message is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autograder.failure import CheckFailed
from autograder.judge import Answer, Case, Judge
from autograder.pipeline import Action, Net, differs, gpipe, one_f_one_b
from autograder.problem import problem

PLAIN = Net(((("linear", 5), ("linear", 3)),))


@dataclass(frozen=True)
class Driven:
    """One stage, and what it is made to do.

    index: which of 4 stages. actions: forward and backward passes. sizes: of the micro-batches.
    prior: what is in every gradient before.
    """

    index: int
    actions: Sequence[Action]
    sizes: tuple[int, ...]
    net: Net = PLAIN
    prior: float | None = None

    @property
    def facts(self) -> dict[str, str]:
        """What a student is told about it."""
        return {"stage": str(self.index), "actions": str(self).partition(", ")[2]}

    def __str__(self) -> str:
        order = " ".join(f"{kind}{i}" for kind, i in self.actions)
        return f"stage {self.index} of 4, {order}"


ONE = (("F", 0), ("B", 0))
TWO = (("F", 0), ("F", 1), ("B", 0), ("B", 1))


@problem("pipeline_stage", share="2/5")
def test_one_micro_batch(judge: Judge) -> None:
    """Output, gradient of the input and gradients of the weights, for one micro-batch."""
    _drive(judge, [Driven(index, ONE, (3,)) for index in (1, 0, 3)])


@problem("pipeline_stage", share="1/4")
def test_several_in_flight(judge: Judge) -> None:
    """Several micro-batches in flight at the same time; backward in any order."""
    mixed = [("F", 1), ("F", 0), ("B", 0), ("F", 2), ("B", 2), ("B", 1)]
    orders = (TWO, mixed, gpipe(4, 4)[1], one_f_one_b(4, 6)[1])
    sizes = [(2,) * (len(actions) // 2 - 1) + (1,) for actions in orders]
    _drive(judge, [Driven(1, *one) for one in zip(orders, sizes, strict=True)])


@problem("pipeline_stage", share="1/10")
def test_gradients_are_added(judge: Judge) -> None:
    """Gradients are added to what is there, over micro-batches and from before."""
    _drive(judge, [Driven(2, TWO, (2, 2), prior=0.5)])


@problem("pipeline_stage", share="3/20", kind="edges")
def test_edges(judge: Judge) -> None:
    """Token ids; a first stage with nothing to train; outputs that are not contiguous."""
    embedding = Net(((("embedding", 4), ("linear", 3)),), (3,), "int64")
    frozen = Net(((("frozen", 4), ("frozen", 3)),))
    half_frozen = Net(((("frozen", 4), ("linear", 3), ("transpose", 0)),))
    expanded = Net(((("linear", 4), ("expand", 0)),))
    _drive(
        judge,
        [
            Driven(0, TWO, (2, 1), embedding),
            Driven(0, TWO, (2, 1), frozen),
            Driven(1, TWO, (2, 1), half_frozen),
            Driven(0, ONE, (2,), expanded),
        ],
    )


@problem("pipeline_stage", share="1/10", kind="cost")
def test_memory(judge: Judge) -> None:
    """After its backward pass, nothing of a micro-batch is kept."""
    some = [Driven(index, one_f_one_b(4, 8)[index], (2,) * 8) for index in (0, 2)]
    for driven, answer in zip(some, _drive(judge, some), strict=True):
        held, left = answer.get(0, "held", int), answer.get(0, "left", int)
        flying = 4 - driven.index
        if held > flying or left > 0:
            raise CheckFailed(
                f"{driven}: the activations of {held} micro-batches are in memory at the same "
                f"time, and of {left} in the end, where {flying} are in flight and then none",
                causes=["consistent with activations being kept after their backward pass"],
            )


def _drive(judge: Judge, some: Sequence[Driven]) -> list[Answer]:
    """Each stage must give what autograd gives for each micro-batch."""
    rng = judge.seed.generator()
    inputs = [_draw(driven, rng) for driven in some]
    calls = [[one] for one in inputs]
    case = Case("pipeline_parallel", "stage", 1, process_group=False)
    answers = judge.run(case, calls, facts=[driven.facts for driven in some])
    plain = judge.run_reference(replace(case, function="plain_stage"), calls)
    for driven, answer, expected in zip(some, answers, plain, strict=True):
        judge.note(driven.facts)
        _require(driven, answer, expected)
    return answers


def _draw(driven: Driven, rng: np.random.Generator) -> dict[str, Any]:
    net, sizes = driven.net, driven.sizes
    (weights,) = net.draw_weights(rng)
    shape = net.boundaries[-1][0]
    return {
        "layers": [kind for kind, _ in net.stages[0]],
        "weights": weights,
        "index": driven.index,
        "stages": 4,
        "input_shape": list(net.shape),
        "dtype": net.dtype,
        "actions": [list(action) for action in driven.actions],
        "inputs": net.draw_inputs(rng, sizes),
        "output_grads": [torch.from_numpy(rng.standard_normal((n, *shape))) for n in sizes],
        "prior": driven.prior,
    }


def _require(driven: Driven, answer: Answer, plain: Answer) -> None:
    calls = answer.get(0, "calls", int)
    if calls != len(driven.sizes):
        raise CheckFailed(
            f"{driven}: the module is called {calls} times, not once for each micro-batch"
        )
    if answer.get(0, "attached", bool):
        raise CheckFailed(f"{driven}: the output that forward returns must not require a gradient")
    if not answer.get(0, "untouched", bool):
        raise CheckFailed(f"{driven}: a weight that requires no gradient was given one")
    wanted = plain.outputs[0]
    prior = driven.prior or 0.0
    grads = wanted["grads"]
    causes = {
        "the last micro-batch alone": wanted["last"],
        "the last micro-batch alone, on top of what was there": [g + prior for g in wanted["last"]],
        "gradients that were there before being lost": [grad - prior for grad in grads],
        "no gradient at all": [torch.zeros_like(grad) for grad in grads],
    }
    _compare(driven, "the output", answer.get(0, "outputs", list), wanted["outputs"], {})
    given_back = answer.get(0, "input_grads", list)
    _compare(driven, "the gradient of the input", given_back, wanted["input_grads"], {})
    _compare(driven, "the gradient of weight", answer.get(0, "grads", list), grads, causes)


def _compare(
    driven: Driven,
    what: str,
    found: list[Any],
    expected: list[Tensor],
    causes: Mapping[str, list[Tensor]],
) -> None:
    if len(found) != len(expected):
        asked = "one for each micro-batch" if expected else "none, on the first stage"
        raise CheckFailed(f"{driven}: {what} must be returned {asked}")
    for number, (one, right) in enumerate(zip(found, expected, strict=True)):
        if wrong := differs(one, right, driven.net):
            raise CheckFailed(
                f"{driven}: {what} {number} is not right: {wrong}",
                causes=[
                    f"consistent with {words}"
                    for words, leads_to in causes.items()
                    if not differs(one, leads_to[number], driven.net)
                ][:1],
            )
