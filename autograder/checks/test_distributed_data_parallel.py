"""Checks of problem distributed_data_parallel."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import torch

from autograder.failure import CheckFailed
from autograder.grading import Credit
from autograder.judge import Judge
from autograder.one_process import require_same_as_one_process
from autograder.overlap import (
    FORWARD,
    best_times,
    issued_in,
    require_buckets,
    require_overlap,
    require_quiet,
    score_step,
    step_times,
)
from autograder.problem import problem
from autograder.training import LAYERS, Training, Weight, is_just, require_training

ID = "distributed_data_parallel"
PARTLY_USED = 200  # bytes: the weight and the bias of a layer fit into one bucket


@problem(ID, share="1/10")
def test_trains_as_one_process(judge: Judge) -> None:
    """SGD on 1 to 4 ranks ends where one process on the whole batch does."""
    for n in (4, 3, 2, 1):
        require_same_as_one_process(judge, n)


@problem(ID, share="1/10")
def test_gradients(judge: Judge) -> None:
    """The means over the ranks, in several steps, with several buckets and with one."""
    require_training(judge, Training(world_size=4, steps=3))
    require_training(judge, Training(world_size=3, cap=10**6))


@problem(ID, share="1/20")
def test_construction(judge: Judge) -> None:
    """All ranks begin with the parameters and buffers of the group's first rank."""
    require_one_beginning(judge, Training(world_size=3, steps=0))
    require_one_beginning(judge, Training(world_size=4, steps=0, members=(1, 3)))


@problem(ID, share="1/10")
def test_accumulation(judge: Judge) -> None:
    """Gradients of micro-batches inside no_sync add up, and are averaged once, with the last."""
    require_training(judge, Training(world_size=3, micro_batches=3))


@problem(ID, share="1/20")
def test_several_backwards(judge: Judge) -> None:
    """Gradients of earlier steps that are still there count; a module called several times."""
    require_training(judge, Training(steps=3, keep=True), Training(calls=2))


@problem(ID, share="1/10")
def test_unused_on_a_rank(judge: Judge) -> None:
    """A parameter that one rank has not used counts as zero there, in this step or the next."""
    head = Training(world_size=3, unused=_head_on_rank_1)
    body = Training(world_size=3, micro_batches=2, unused=_body_in_the_last)
    require_training(judge, head, replace(head, cap=PARTLY_USED), body)


def _head_on_rank_1(step: int, micro_batch: int, place: int) -> Collection[str]:
    return ("head.bias",) if (step, place) == (0, 1) else ()


def _body_in_the_last(step: int, micro_batch: int, place: int) -> Collection[str]:
    """Used in a micro-batch inside no_sync, and then not: what was added up counts."""
    return ("body.weight",) if (micro_batch, place) == (1, 0) else ()


@problem(ID, share="1/20")
def test_unused_in_turns(judge: Judge) -> None:
    """Every rank has another unused parameter, so the buckets are complete in other orders."""
    even = tuple(replace(one, shape=(32,)) for one in LAYERS)  # so that no size gives it away
    alone = Training(even, world_size=4, cap=128, steps=3, unused=_another_on_each)
    require_training(judge, alone, replace(alone, cap=2 * 128))  # then two in a bucket


def _another_on_each(step: int, micro_batch: int, place: int) -> Collection[str]:
    return (LAYERS[(step + place) % len(LAYERS)].name,)


@problem(ID, share="1/40")
def test_mixed_dtypes(judge: Judge) -> None:
    """Parameters of several dtypes in one module; each travels in its own."""
    dtypes = ("float32", "bfloat16", "bfloat16", "float32", "float64")
    mixed = tuple(replace(one, dtype=d) for one, d in zip(LAYERS, dtypes, strict=True))
    ((drawn, answer),) = require_training(judge, Training(mixed, world_size=4, cap=400))
    require_buckets(drawn, answer, 1)


@problem(ID, share="1/40")
def test_oversize(judge: Judge) -> None:
    """A parameter larger than the cap."""
    large = tuple(
        replace(one, shape=(50, 4)) if one.name == "body.weight" else one for one in LAYERS
    )
    require_training(judge, Training(large, world_size=3))


@problem(ID, share="1/40", kind="edges")
def test_unused_everywhere(judge: Judge) -> None:
    """A parameter that no rank uses: None or zero, and the others are as they should be."""
    alone = Training(world_size=3, unused=lambda *_: ("body.bias",))
    require_training(judge, alone, replace(alone, cap=PARTLY_USED))


@problem(ID, share="1/40", kind="edges")
def test_frozen(judge: Judge) -> None:
    """Parameters that are not trainable, the last one among them."""
    frozen = tuple(
        replace(one, trainable=one.name not in ("body.weight", "head.bias")) for one in LAYERS
    )
    require_training(judge, Training(frozen, world_size=3))


@problem(ID, share="1/40", kind="edges")
def test_tied(judge: Judge) -> None:
    """Tied weights are one parameter, and travel once."""
    tied = (*LAYERS[:3], Weight("head.weight", same_as="embedding.weight"), LAYERS[4])
    ((drawn, answer),) = require_training(judge, Training(tied, world_size=3))
    require_buckets(drawn, answer, 1)


@problem(ID, share="1/40", kind="edges")
def test_sub_group(judge: Judge) -> None:
    """In a sub-group, and divided by its size."""
    require_training(judge, Training(world_size=4, members=(0, 2, 3)))


@problem(ID, share="1/40", kind="edges")
def test_one_rank(judge: Judge) -> None:
    """One rank alone."""
    require_training(judge, Training(world_size=1))


@problem(ID, share="1/40", kind="edges")
def test_interrupted(judge: Judge) -> None:
    """An exception leaves no_sync, and afterwards gradients are averaged again."""
    training = Training(world_size=2, steps=3, interrupted=2)
    ((_, answer),) = require_training(judge, training)
    for rank in training.group:
        before, after = (
            len(issued_in(answer.trace, rank, f"last micro-batch {step}")) for step in (1, 2)
        )
        if before and not after:
            raise CheckFailed(
                f"rank {rank} no longer issues anything during backward, after an exception has "
                "left no_sync",
                causes=["consistent with no_sync not being ended where an exception passes"],
            )


@problem(ID, share="1/10", kind="order")
def test_overlap(judge: Judge) -> None:
    """Buckets are issued while backward runs, and waited for after it."""
    training = Training(world_size=3, steps=3)
    ((drawn, answer),) = require_training(judge, training)
    for step in range(training.steps):
        require_overlap(drawn, answer, step)


@problem(ID, share="1/20", kind="cost")
def test_calls_and_bytes(judge: Judge) -> None:
    """A call for each bucket, none above the cap; the gradients once for all micro-batches."""
    frozen = tuple(
        replace(one, trainable=one.name != "body.bias") for one in (*LAYERS, *_more_layers())
    )
    training = Training(frozen, world_size=2, micro_batches=3)
    ((drawn, answer),) = require_training(judge, training)
    for step in range(training.steps):
        require_quiet(drawn, answer, step)
        require_buckets(drawn, answer, step)


def _more_layers() -> list[Weight]:
    """Enough small parameters that a call for each is too many."""
    return [Weight(f"more.{place}", (5,)) for place in range(12)]


@problem(ID, share="1/10", kind="cost")
def test_step_time(judge: Judge, credit: Credit) -> None:
    """Modelled time of a step, on a network that is faster than backward and on a slower one."""
    layers = tuple(Weight(f"layer{place}.weight", (64,)) for place in range(8))
    nbytes = layers[0].nbytes
    training = Training(layers, world_size=4, cap=1.5 * nbytes, seconds=FORWARD)
    ((_, answer),) = require_training(judge, training)
    found = step_times(answer.trace, training.group, "step 1", nbytes)
    score = score_step(found, best_times(len(layers), nbytes, training.world_size))
    if score.part == 0:
        raise CheckFailed(score.why)
    if score.part < 1:
        credit(score.part, score.why)


def require_one_beginning(judge: Judge, training: Training) -> None:
    """Parameters and buffers after construction must be those of the group's first rank.

    Raises:
        CheckFailed: they are not.
    """
    drawn = training.draw(judge.seed.generator())
    buffers = {"norm.running_mean": "float32", "norm.batches": "int64"}
    for rank in training.group:
        inputs = drawn.inputs[rank]
        assert inputs is not None
        inputs["buffers"] = [{"name": name, "persistent": True} for name in buffers]
        inputs["buffer_values"] = {
            name: torch.arange(4).to(getattr(torch, dtype)) + 10 * rank
            for name, dtype in buffers.items()
        }
    (answer,) = judge.run(training.case, [drawn.inputs], facts=[training.facts])
    first, *others = training.group
    given = drawn.inputs[first]
    assert given is not None
    for name, wanted in (given["values"] | given["buffer_values"]).items():
        kind = "buffer" if name in buffers else "parameter"
        for rank in (first, *others):
            found = answer.get(rank, "begun", dict).get(name)
            if not is_just(found, wanted):
                raise CheckFailed(
                    f"after construction, {kind} `{name}` on rank {rank} is not what the first "
                    f"rank of the group, rank {first}, had before"
                )
