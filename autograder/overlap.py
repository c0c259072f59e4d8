"""What DistributedDataParallel sends, and when: by the trace of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from pathlib import Path

from autograder.cost import Score
from autograder.failure import CheckFailed
from autograder.judge import Answer
from autograder.training import Drawn, Weight, buckets_of, distinct, trainable
from multirank import Fabric, Mark, Operation, ReplayError, Trace, replay, replay_programs
from multirank.modelling.programs import Collective, Compute, Step, Wait

# --- Looking into a trace -------------------------------------------------------------------------


def marks_of(trace: Trace, rank: int, label: str) -> list[Mark]:
    return [one for one in trace.marks if one.rank == rank and one.label == label]


def during(trace: Trace, rank: int, label: str) -> tuple[float, float]:
    """When a rank was in the span called `label`.

    Raises:
        CheckFailed: it was not, or several times.
    """
    found = marks_of(trace, rank, label)
    if [one.kind for one in found] != ["begin", "end"]:
        raise CheckFailed(f"rank {rank} gave no answer")
    return found[0].time, found[1].time


def issued_in(trace: Trace, rank: int, label: str) -> list[Operation]:
    """What a rank issued in a span."""
    begin, end = during(trace, rank, label)
    return [one for one in trace.of_rank(rank) if begin <= one.issued <= end]


def line_of(operation: Operation) -> str:
    return f"{Path(operation.file).name}, line {operation.line}"


# --- How much is sent -----------------------------------------------------------------------------


def gradient_messages(
    operations: Sequence[Operation], weights: Sequence[Weight]
) -> list[Operation]:
    """Without the one that is free: of at most a byte for each parameter."""
    free = next((one for one in operations if one.nbytes <= len(weights)), None)
    return [one for one in operations if one is not free]


def require_messages(
    what: str,
    operations: Sequence[Operation],
    weights: Sequence[Weight],
    calls: int,
    why: str,
) -> None:
    """No more than so many calls, and no more bytes than the gradients have.

    what: begins the sentence. why: such as "one for each dtype".

    Raises:
        CheckFailed: there are more.
    """
    sent = gradient_messages(operations, weights)
    total = sum(one.nbytes for one in trainable(weights))
    moved = sum(one.nbytes for one in sent)
    if moved > total:
        frozen = sum(one.nbytes for one in distinct(weights)) - total
        elements = sum(prod(one.shape) for one in trainable(weights))
        causes = []
        if frozen and moved == total + frozen:
            causes = ["consistent with something being sent for parameters that are not trainable"]
        elif sum(prod(one.shape) for one in sent) == elements:
            causes = ["consistent with gradients that travel in a wider dtype than their own"]
        elif moved % total == 0:
            causes = [f"consistent with every gradient being communicated {moved // total} times"]
        raise CheckFailed(
            f"{what}: {moved:,} bytes are communicated; the gradients have {total:,}", causes=causes
        )
    if len(sent) > calls:
        raise CheckFailed(f"{what}: there are {len(sent)} calls; {calls} are enough, {why}")


def require_buckets(drawn: Drawn, answer: Answer, step: int) -> None:
    """The messages of a step, against the cap and the number of buckets.

    Raises:
        CheckFailed: too many, too large, or too much in all.
    """
    training = drawn.training
    weights = trainable(training.weights)
    for rank in training.group:
        own = [one for one in answer.plain(rank, "buckets") if isinstance(one, int)]
        sent = issued_in(answer.trace, rank, f"step {step}")
        what = f"rank {rank}, in a step with a cap of {training.cap:g} bytes"
        count = max(len(own), len(buckets_of(weights, training.cap)))
        why = f"one for each of the {count} buckets, and one more"
        require_messages(what, sent, training.weights, count + 1, why)
        largest = max([training.cap, *own, *(one.nbytes for one in weights)])
        for one in gradient_messages(sent, training.weights):
            if one.nbytes > largest:
                raise CheckFailed(
                    f"{what}: a message of {one.nbytes:,} bytes is issued ({line_of(one)}), which "
                    "is more than a bucket may hold",
                    causes=["consistent with all gradients in one bucket"]
                    if len(sent) == 1
                    else [],
                )


def require_quiet(drawn: Drawn, answer: Answer, step: int) -> None:
    """Nothing may be sent inside no_sync.

    Raises:
        CheckFailed: something is.
    """
    for rank in drawn.training.group:
        found = [one for one in answer.trace.marks if one.label == f"no_sync {step}"]
        spans = [one.time for one in found if one.rank == rank]
        for begin, end in zip(spans[::2], spans[1::2], strict=False):
            for one in answer.trace.of_rank(rank):
                if begin <= one.issued <= end:
                    raise CheckFailed(
                        f"rank {rank} issues {one.name} inside no_sync ({line_of(one)}); "
                        "gradients are communicated once, in the last micro-batch"
                    )


# --- When it is sent ------------------------------------------------------------------------------


def require_overlap(drawn: Drawn, answer: Answer, step: int) -> None:
    """The first bucket before the last gradient is ready, no wait before that, all at the end.

    Raises:
        CheckFailed: otherwise.
    """
    training = drawn.training
    last = f"backward {trainable(training.weights)[0].name}"
    for rank in training.group:
        begin, end = during(answer.trace, rank, f"step {step}")
        marks = [one.time for one in marks_of(answer.trace, rank, last) if begin < one.time < end]
        if len(marks) != 1:
            raise CheckFailed(f"rank {rank} gave no answer")
        (ready,) = marks
        issued = issued_in(answer.trace, rank, f"step {step}")
        sent = gradient_messages(issued, training.weights)
        for one in issued:
            if one.waited is not None and one.waited < ready:
                raise CheckFailed(
                    f"rank {rank} waits for an operation ({one.name}: {line_of(one)}) while "
                    "backward has gradients yet to work out, which could go on meanwhile",
                    causes=["consistent with async_op=True, or the handle that it gives, not used"]
                    if one.waited == one.issued
                    else [],
                )
        if not any(one.issued < ready for one in sent):
            raise CheckFailed(
                f"rank {rank} issues nothing before the last gradient is ready, although "
                f"{len(buckets_of(training.weights, training.cap)) - 1} of the buckets are "
                "complete by then",
                causes=_why_late(sent, drawn),
            )
        for one in issued:
            late = one.completed is None or one.completed > end
            if late and (one.waited or one.completed is None):  # a future tells it a little later
                raise CheckFailed(
                    f"rank {rank} has not waited for an operation ({one.name}: {line_of(one)}) "
                    "when finish_gradient_synchronization returns"
                )


def _why_late(sent: Sequence[Operation], drawn: Drawn) -> list[str]:
    weights = trainable(drawn.training.weights)
    if len(sent) == 1:
        return ["consistent with all gradients in one bucket"]
    first = sent[0].nbytes if sent else 0
    forward = buckets_of([*reversed(weights)], drawn.training.cap)[0]
    if first == sum(one.nbytes for one in forward):
        return ["consistent with buckets in the order of the forward pass"]
    return ["consistent with buckets that are issued after backward"]


# --- How long a step takes ------------------------------------------------------------------------

FORWARD = 1e-3  # seconds that a layer declares; backward takes twice that
# By name: seconds that the all-reduce of one layer takes.
_NETWORKS = {"the faster network": 1e-3, "the slower network": 4e-3}
TIME_BANDS = ((1.1, Fraction(1)), (1.2, Fraction(1, 2)))


def fabric(seconds: float, nbytes: int, world_size: int) -> Fabric:
    """A network on which the all-reduce of so many bytes takes that long; a tenth is latency."""
    hops = 2 * (world_size - 1)
    bandwidth = nbytes / world_size / (0.9 * seconds / hops)
    return Fabric("graded", latency=0.1 * seconds / hops, bandwidth=bandwidth)


def of_span(trace: Trace, ranks: Sequence[int], label: str) -> Trace:
    """What happened in a span."""
    spans = {rank: during(trace, rank, label) for rank in ranks}

    def inside(rank: int, time: float) -> bool:
        return rank in spans and spans[rank][0] <= time <= spans[rank][1]

    return replace(
        trace,
        operations=[one for one in trace.operations if inside(one.rank, one.issued)],
        marks=[one for one in trace.marks if inside(one.rank, one.time)],
    )


def step_times(trace: Trace, ranks: Sequence[int], label: str, nbytes: int) -> dict[str, float]:
    """Modelled seconds of a step on each network.

    nbytes: of one layer.

    Raises:
        CheckFailed: what was sent does not fit together.
    """
    step = of_span(trace, ranks, label)
    try:
        return {
            name: replay(step, fabric(seconds, nbytes, len(ranks)), len(ranks)).makespan
            for name, seconds in _NETWORKS.items()
        }
    except ReplayError as error:
        raise CheckFailed(f"the gradients are right, but the time does not count: {error}") from (
            error
        )


def best_times(layers: int, nbytes: int, world_size: int) -> dict[str, float]:
    """The same, of one message for each layer, issued as soon as its gradient is ready."""
    return {
        name: replay_programs(
            [_overlapped(layers, nbytes) for _ in range(world_size)],
            fabric(seconds, nbytes, world_size),
        ).makespan
        for name, seconds in _NETWORKS.items()
    }


def _overlapped(layers: int, nbytes: int) -> list[Step]:
    program: list[Step] = [Compute(layers * FORWARD)]
    messages = [Collective("all_reduce", nbytes, async_op=True) for _ in range(layers)]
    for message in messages:
        program += [Compute(2 * FORWARD), message]
    return [*program, *(Wait(message) for message in messages)]


def score_step(found: dict[str, float], best: dict[str, float]) -> Score:
    """`TIME_BANDS` of the worse network."""
    ratios = {name: found[name] / best[name] for name in best}
    name = max(ratios, key=lambda one: ratios[one])
    part = next((part for limit, part in TIME_BANDS if ratios[name] <= limit), Fraction(0))
    return Score(
        part,
        f"on {name} of the docstring, a step takes {ratios[name]:.2f} times as long as with one "
        f"message for each layer, sent as soon as it can be ({found[name] * 1e3:.3g} ms, not "
        f"{best[name] * 1e3:.3g} ms)",
    )
