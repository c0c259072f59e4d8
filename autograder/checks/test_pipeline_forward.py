"""Checks of problem pipeline_forward."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from autograder.collective import give
from autograder.cost import worst
from autograder.failure import CheckFailed
from autograder.grading import Credit
from autograder.judge import Judge
from autograder.pipeline import (
    Net,
    Ran,
    Training,
    differs,
    even_net,
    plain_net,
    require_neighbours,
    score_boundaries,
    score_makespan,
    train,
)
from autograder.problem import problem

# Token ids go in; each boundary has its own shape and dtype; no output lies in memory as it is.
ODD_NET = Net(
    (
        (("embedding", 6), ("linear", 5), ("transpose", 0)),
        (("linear", 4), ("float32", 0)),
        (("linear", 7), ("expand", 0)),
    ),
    (3,),
    "int64",
)


@problem("pipeline_forward", share="1/2")
def test_outputs(judge: Judge) -> None:
    """The outputs of 1, 2 and 4 stages, all of another width."""
    sizes = (2, 2, 2, 2, 2)
    _require_outputs(judge, [Training(plain_net(p), [], sizes) for p in (2, 1, 4)])


@problem("pipeline_forward", share="1/5")
def test_uneven(judge: Judge) -> None:
    """A last micro-batch that is smaller, and fewer micro-batches than stages."""
    _require_outputs(
        judge,
        [
            Training(plain_net(3), [], (3, 3, 3, 1)),
            Training(plain_net(4), [], (2, 1)),
            Training(plain_net(4), [], (4,)),
        ],
    )


@problem("pipeline_forward", share="1/10", kind="edges")
def test_edges(judge: Judge) -> None:
    """Token ids, other dtypes, outputs that are not contiguous; in a sub-group."""
    _require_outputs(
        judge,
        [
            Training(ODD_NET, [], (2, 2, 1)),
            Training(plain_net(2), [], (2, 2, 1), members=(1, 3), world_size=4),
        ],
    )


@problem("pipeline_forward", share="1/5", kind="cost")
def test_cost(judge: Judge, credit: Credit) -> None:
    """The stages work at the same time; each output is sent once, to the neighbour."""
    p, m = 4, 8
    training = Training(even_net(p), [], (2,) * m, seconds=(1.0, 0.0))
    (ran,) = _require_outputs(judge, [training])
    trace = ran.answer.trace
    require_neighbours(training, trace)
    told = "messages take hardly any time"
    give(
        credit,
        worst(
            score_boundaries(training, trace, both_ways=False),
            score_makespan(training, trace, 1e-6, m + p - 1.0, told),
        ),
    )


def _require_outputs(judge: Judge, trainings: Iterable[Training]) -> list[Ran]:
    found = train(judge, "forward", trainings)
    for ran in found:
        training, ranks = ran.training, ran.training.ranks
        for stage, rank in enumerate(ranks):
            output = ran.answer.outputs[rank]
            calls = ran.answer.get(rank, "calls", int)
            if calls != len(training.sizes):
                raise CheckFailed(
                    f"{training}: stage {stage} calls its module {calls} times, not once for each "
                    "micro-batch"
                )
            outputs = ran.answer.get(rank, "outputs", list)
            if rank != ranks[-1] and outputs:
                raise CheckFailed(
                    f"{training}: stage {stage} must return [], as it is not the last"
                )
            if output.get("attached") is not False:
                raise CheckFailed(f"{training}: the outputs must not require gradients")
        expected = ran.whole.outputs[0]["outputs"]
        if len(outputs) != len(expected):
            raise CheckFailed(
                f"{training}: the last stage returns {len(outputs)} outputs, not one for each "
                "micro-batch"
            )
        for number, (one, right) in enumerate(zip(outputs, expected, strict=True)):
            if wrong := differs(one, right, training.net):
                raise CheckFailed(
                    f"{training}: the output for micro-batch {number} is not right: {wrong}",
                    causes=_causes(outputs, expected, training.net),
                )
    return found


def _causes(outputs: list[object], expected: list[Tensor], net: Net) -> list[str]:
    """What wrong outputs are consistent with, at most one sentence."""
    known = {
        "micro-batches in reverse order": expected[::-1],
        "every output being the first one": expected[:1] * len(expected),
        "every output being the last one": expected[-1:] * len(expected),
    }
    return [
        f"consistent with {words}"
        for words, leads_to in known.items()
        if not any(differs(one, other, net) for one, other in zip(outputs, leads_to, strict=True))
    ][:1]
