# Problems in this file (points in problems.toml):
#   5.1  pipeline_forward  3 points
#   5.2  partition_layers  1 point
#   5.3  gpipe             3 points
#   5.4  one_f_one_b       4 points
#   5.5  pipeline_stage    4 points
#   5.6  run_schedule      7 points
"""Pipeline parallelism: the layers cut into stages, the batch into micro-batches, one stage a rank.

Activations travel from stage to stage, and gradients travel back. While one micro-batch is on its
way, a stage works on another; in which order, a schedule says. A *schedule* is plain data: for each
stage the list of its computations, forward ("F") and backward ("B") passes of micro-batches, and
nothing about messages. ``run_schedule`` derives those: who computes on something needs it first.

What holds for all of them
    p is the number of stages and m that of micro-batches; both start at 1, and m may be below p.
    Stages, micro-batches and layers are counted from 0. Stage r runs on the r-th rank of the group
    (which need not be global rank r). ``group=None`` is the default group.

    A micro-batch is a tensor whose dimension 0 counts samples. Micro-batches may differ in that:
    the last one is often smaller. Between two stages goes one tensor; its shape after dimension 0
    and its dtype are the same for every micro-batch, but each boundary has its own. The first
    stage's input may be of any dtype (token ids are integers); what goes between stages is floating
    point. Messages must be contiguous; outputs and gradients of a module need not be.

    ValueError for counts and places that cannot be, as each function says, and before anything is
    sent.

Messages
    Only ``dist.send``, ``dist.recv``, ``dist.isend``, ``dist.irecv`` and ``dist.batch_isend_irecv``
    may be used, and only between neighbours. All messages are complete when a function returns.
    Each output is sent once, and each gradient once. Messages of up to 256 bytes are not counted.

    Cost is judged by how many times what is enough it is, in bytes and in modelled time: up to 1.1
    times earns all points for cost, 1.3 times three quarters, 1.6 times half, and 2.2 times a
    quarter; the worst counts. For modelled time, the messages and the computations of a run are
    replayed on a modelled network (``multirank.replay``), whatever the machine does.

Sources
    Huang et al. 2019, GPipe: Efficient Training of Giant Neural Networks using Pipeline
    Parallelism. Narayanan et al. 2019, PipeDream: Generalized Pipeline Parallelism for DNN
    Training: 1F1B. Narayanan et al. 2021, Efficient Large-Scale Language Model Training on GPU
    Clusters Using Megatron-LM: 1F1B with a flush, the bubble. Stanford CS336, Language Modeling
    from Scratch, the lecture on parallelism: the forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup


class Action(NamedTuple):
    """One computation of a stage: the forward ("F") or backward ("B") pass of a micro-batch."""

    kind: Literal["F", "B"]
    microbatch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.microbatch}"


Schedule: TypeAlias = Sequence[Sequence[Action]]
"""For each stage its actions, in the order in which it computes them."""


class PipelineStage:
    """One stage of a model: computes forward and backward passes, and sends nothing itself.

    Args:
        module: the stage's layers: one tensor in, one tensor out, samples in dimension 0 of both.
        index: which stage it is, from 0 to num_stages - 1.
        num_stages: p.
        input_shape: of what the stage before sends, without dimension 0. The first stage, which
            receives nothing, needs none.
        dtype: of what the stage before sends.
        device: where the module computes.

    Raises:
        ValueError: num_stages is below 1; there is no stage ``index``; a stage other than the first
            has no input_shape.

    Attributes: ``module``, ``index``, ``num_stages``; ``is_first``, ``is_last``.
    """

    def __init__(
        self,
        module: nn.Module,
        index: int,
        num_stages: int,
        input_shape: Sequence[int] | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        _check_place(index, num_stages)
        if index > 0 and input_shape is None:
            raise ValueError(f"input_shape: stage {index} receives something, so it needs one")
        self.module = module
        self.index = index
        self.num_stages = num_stages
        self.is_first = index == 0
        self.is_last = index == num_stages - 1
        self._received = tuple(input_shape or ()), dtype, device
        # What a backward pass needs: by micro-batch, the input and the output of the module.
        self._in_flight: dict[int, tuple[Tensor, Tensor]] = {}

    def receive_buffer(self, samples: int) -> Tensor:
        """New memory for what the stage before sends: its output for that many samples."""
        shape, dtype, device = self._received
        return torch.empty((samples, *shape), dtype=dtype, device=device)

    def forward(self, microbatch: int, input: Tensor) -> Tensor:
        """The module's output for one micro-batch; what its backward pass needs is kept.

        The module is called once. Several micro-batches may be in flight, which is to say that
        their forward pass is done and their backward pass is not; they must not mix.

        Args:
            microbatch: its number. It is not in flight.
            input: the micro-batch on the first stage, elsewhere what the stage before has sent. It
                comes out of a buffer, so autograd knows nothing of it.

        Returns:
            the output, cut off from autograd: it does not require a gradient.
        """
        raise NotImplementedError("Problem 5.5, PipelineStage.forward: not written yet")

    def backward(self, microbatch: int, output_grad: Tensor) -> Tensor | None:
        """The backward pass of one micro-batch, which is in flight.

        Gradients are added to what is in the ``grad`` of the module's parameters, as always; those
        that require none get none, and on the first stage it may be that none does. Afterwards
        nothing of the micro-batch is kept.

        Args:
            microbatch: its number.
            output_grad: the gradient of the loss with respect to the output of the forward pass.

        Returns:
            the gradient with respect to the input, which the stage before needs; None on the first
            stage. Every module in the tests uses its input; for one that does not, zeros are right,
            because the stage before waits for a message.
        """
        raise NotImplementedError("Problem 5.5, PipelineStage.backward: not written yet")


@torch.no_grad()
def pipeline_forward(
    stage: PipelineStage,
    microbatch_sizes: Sequence[int],
    inputs: Sequence[Tensor] | None = None,
    group: ProcessGroup | None = None,
) -> list[Tensor]:
    """The forward passes alone, as in the lecture. Every rank of the group calls this.

    Each stage computes the micro-batches in their order: it receives one (the first stage takes it
    from ``inputs``), calls ``stage.module``, and sends the output on before it computes the next.
    So the stages work at the same time, on different micro-batches. Blocking messages will do.

    Args:
        stage: the calling rank's. Its ``module`` and ``receive_buffer`` are what is needed of it.
        microbatch_sizes: the samples of each micro-batch, the same numbers on every rank.
        inputs: on the first stage the micro-batches; not used elsewhere.
        group: the ranks that take part.

    Returns:
        on the last stage the outputs for all micro-batches, in their order; elsewhere [].

    Raises:
        ValueError: the stage is not the one of this rank; there is no micro-batch, or one without
            samples; on the first stage, ``inputs`` do not have those sizes.

    Cost, for the points as told above: each output is sent once; and where messages take hardly any
    time, m + p - 1 times that of one stage's module for one micro-batch, if all take as long.
    """
    _check_run(stage, microbatch_sizes, inputs, group)
    previous, next = _neighbours(stage, group)
    raise NotImplementedError("Problem 5.1, pipeline_forward: not written yet")


def partition_layers(num_layers: int, num_stages: int) -> list[range]:
    """Which layers each stage gets: one range for each stage, in order.

    The ranges follow one another and hold every layer once. Their lengths differ by at most one;
    which stages get one more is left open. For example, 10 layers and 4 stages: range(0, 3),
    range(3, 6), range(6, 8), range(8, 10), or any other order of the lengths 3, 3, 2, 2.

    Args:
        num_layers: at least num_stages.
        num_stages: p.

    Raises:
        ValueError: num_stages is below 1; there are fewer layers than stages.
    """
    if not 1 <= num_stages <= num_layers:
        raise ValueError(f"{num_layers} layers cannot be cut into {num_stages} stages")
    raise NotImplementedError("Problem 5.2, partition_layers: not written yet")


def gpipe(stage: int, num_stages: int, num_microbatches: int) -> list[Action]:
    """GPipe's schedule on one stage: all forward passes, in order, then all backward passes.

    Simple, and every micro-batch is in flight in the end. The order of the backward passes is left
    open, as long as the schedule of all stages is valid and idles no more than it must:
    ``bubble_fraction`` is (p-1)/(m+p-1).

    Args:
        stage: which one.
        num_stages: p.
        num_microbatches: m.

    Raises:
        ValueError: num_stages or num_microbatches is below 1; there is no such stage.
    """
    _check_place(stage, num_stages)
    _check_microbatches(num_microbatches)
    raise NotImplementedError("Problem 5.3, gpipe: not written yet")


def bubble_fraction(schedule: Schedule) -> float:
    """How much of the time the stages idle, as a fraction of the total time, over all stages.

    In unit time: every action takes 1, messages take nothing, and each action starts as soon as its
    stage has computed the one before, and what it needs (``needs``) has been computed. The total
    time is from the first start to the last end, on every stage. GPipe and 1F1B have
    (p-1)/(m+p-1). (``bubble_ratio`` of accounting.py, (p-1)/m, is a part of the time in which a
    stage works instead.)

    Args:
        schedule: of all stages.

    Raises:
        ValueError: it is not valid (``validate_schedule``).
    """
    validate_schedule(schedule)
    raise NotImplementedError("Problem 5.3, bubble_fraction: not written yet")


def peak_in_flight(schedule: Schedule) -> list[int]:
    """For each stage, the most micro-batches that are in flight on it at the same time.

    A micro-batch is in flight from the end of its forward pass to the end of its backward pass: so
    many activations a stage has to keep. GPipe: m on each stage.

    Args:
        schedule: of all stages.

    Raises:
        ValueError: it is not valid (``validate_schedule``).
    """
    validate_schedule(schedule)
    raise NotImplementedError("Problem 5.3, peak_in_flight: not written yet")


def one_f_one_b(stage: int, num_stages: int, num_microbatches: int) -> list[Action]:
    """The 1F1B schedule, with a flush, on one stage: backward passes as early as they can be.

    Some forward passes first, to fill the pipeline; then one backward and one forward pass in turn;
    and in the end the backward passes that are left. The schedule of all stages is valid; its
    ``bubble_fraction`` is no more than GPipe's, (p-1)/(m+p-1); and at most min(m, p - stage)
    micro-batches are in flight, however large m is. That is all that is asked: how many forward
    passes are called warm-up, nobody looks at.

    Args:
        stage: which one.
        num_stages: p.
        num_microbatches: m.

    Raises:
        ValueError: num_stages or num_microbatches is below 1; there is no such stage.
    """
    _check_place(stage, num_stages)
    _check_microbatches(num_microbatches)
    raise NotImplementedError("Problem 5.4, one_f_one_b: not written yet")


def run_schedule(
    stage: PipelineStage,
    schedule: Schedule,
    microbatch_sizes: Sequence[int],
    inputs: Sequence[Tensor] | None = None,
    targets: Sequence[Tensor] | None = None,
    loss_fn: Callable[[Tensor, Tensor], Tensor] | None = None,
    group: ProcessGroup | None = None,
) -> Tensor | None:
    """Forward and backward passes of a whole batch. Every rank of the group calls this.

    Each stage computes its own actions, in their order, with ``stage.forward`` and
    ``stage.backward``, each once. It sends every output to the stage after and every gradient to
    the stage before, and receives what it needs. Any valid schedule runs (``validate_schedule``),
    whoever wrote it: nothing is taken from it but its actions.

    The loss is that of the whole batch: the mean over all its samples, although ``loss_fn`` gives
    the mean over those of one micro-batch. So a micro-batch's loss counts by its samples; they need
    not be equally many. The gradients of the parameters are those of that loss, as one process
    would get them from the whole batch; they are added to what is in ``grad``, which is not scaled.
    If loss_fn has parameters, they get theirs, too.

    No deadlock: where one stage waits for its neighbour to receive, while that one waits for it to
    receive, both wait for ever; textbook 1F1B with blocking sends does that. So a stage does not
    wait until an output or a gradient has been received before it goes on; neither can it change
    that memory before. And what the next action needs can arrive during this one, if its receive is
    posted before.

    Args:
        stage: the calling rank's. It is used through ``forward``, ``backward``, ``receive_buffer``,
            ``index``, ``is_first`` and ``is_last`` alone, so that anything else that has them runs,
            too.
        schedule: of all stages, the same on every rank.
        microbatch_sizes: the samples of each micro-batch, the same on every rank.
        inputs: on the first stage the micro-batches; not used elsewhere.
        targets: on the last stage the second argument of loss_fn for each micro-batch; not used
            elsewhere.
        loss_fn: on the last stage; not used elsewhere. Of an output and its targets, it gives the
            mean loss over the samples, a tensor without dimensions.
        group: the ranks that take part.

    Returns:
        on the last stage the loss of the batch, without dimensions and cut off from autograd;
        elsewhere None.

    Raises:
        ValueError: the schedule is not valid, or not one for this number of stages and
            micro-batches; the stage is not the one of this rank; a micro-batch without samples; on
            the first stage, ``inputs`` do not have those sizes; on the last, targets or loss_fn are
            missing, or there is not one target for each micro-batch.

    Cost
        Bytes: between two stages, no more than each output and each gradient once. For the points,
        see above.

        Memory: for a micro-batch that is not in flight no input is kept, nor an output of the
        module with its graph. One micro-batch more than ``peak_in_flight`` says is free, and so is
        one receive buffer.

        Modelled time: F and B are a stage's times for one micro-batch, and c is that of a message.
        With GPipe's schedule (m+p-1) (F+B) + 2 (p-1) c, for c up to F and B: all messages but those
        that fill and drain the pipeline arrive during a computation. With 1F1B, where c is below a
        hundredth of F, the same.
    """
    _check_run(stage, microbatch_sizes, inputs, group)
    _check_schedule(stage, schedule, microbatch_sizes, targets, loss_fn)
    previous, next = _neighbours(stage, group)
    raise NotImplementedError("Problem 5.6, run_schedule: not written yet")


# --- Given: schedules ---------------------------------------------------------------------------


def needs(stage: int, action: Action, num_stages: int) -> list[tuple[int, Action]]:
    """What must have been computed before an action, as pairs of a stage and its action.

    A forward pass needs that of the stage before, and a backward pass that of the stage after; on
    the last stage, it needs its own forward pass. (That a stage computes its own actions one after
    another, in their order, is not told here.)
    """
    if action.kind == "F":
        return [(stage - 1, action)] if stage > 0 else []
    if stage < num_stages - 1:
        return [(stage + 1, action)]
    return [(stage, Action("F", action.microbatch))]


def executable_order(schedule: Schedule) -> list[tuple[int, Action]]:
    """All actions of all stages, each after what it needs and after its stage's actions before.

    Raises:
        ValueError: there is no such order: stages wait for one another.
    """
    p = len(schedule)
    order: list[tuple[int, Action]] = []
    computed: set[tuple[int, Action]] = set()
    places = [0] * p
    total = sum(map(len, schedule))
    while len(order) < total:
        before = len(order)
        for stage, actions in enumerate(schedule):
            while places[stage] < len(actions):
                action = actions[places[stage]]
                if not computed.issuperset(needs(stage, action, p)):
                    break
                order.append((stage, action))
                computed.add((stage, action))
                places[stage] += 1
        if len(order) == before:
            stuck = ", ".join(
                f"stage {stage} at {actions[place]}"
                for stage, (actions, place) in enumerate(zip(schedule, places, strict=True))
                if place < len(actions)
            )
            raise ValueError(f"schedule: stages wait for one another: {stuck}")
    return order


def validate_schedule(schedule: Schedule) -> None:
    """Refuse a schedule that cannot be run.

    Valid is a schedule where every stage computes F and B of each micro-batch 0 to m - 1 once, F
    before B; where all stages have the same order of forward passes, and the same order of
    backward passes, because messages between two ranks arrive in the order in which they were sent;
    and where no stages wait for one another.

    Raises:
        ValueError: it is not valid; the text says where.
    """
    if not schedule or not schedule[0]:
        raise ValueError("schedule: it has no stage, or no action")
    forwards = [action for action in schedule[0] if action.kind == "F"]
    backwards = [action for action in schedule[0] if action.kind == "B"]
    every = {Action(kind, i) for kind in ("F", "B") for i in range(len(forwards))}
    for stage, actions in enumerate(schedule):
        for action in sorted(every.symmetric_difference(actions)):
            what = "is missing"
            if action not in every:
                what = f"cannot be: there is no micro-batch {action.microbatch}"
                if action.kind not in ("F", "B"):
                    what = 'is neither "F" nor "B"'
            raise ValueError(f"schedule: on stage {stage}, {action} {what}")
        if len(actions) != len(every):
            raise ValueError(f"schedule: on stage {stage}, an action is there more than once")
        if [a for a in actions if a.kind == "F"] != forwards:
            raise ValueError(f"schedule: stage {stage} has another order of F than stage 0")
        if [a for a in actions if a.kind == "B"] != backwards:
            raise ValueError(f"schedule: stage {stage} has another order of B than stage 0")
        place = {action: k for k, action in enumerate(actions)}
        for i in range(len(forwards)):
            if place[Action("B", i)] < place[Action("F", i)]:
                raise ValueError(f"schedule: on stage {stage}, B{i} comes before F{i}")
    executable_order(schedule)


# --- Given: who is where ------------------------------------------------------------------------


def _neighbours(stage: PipelineStage, group: ProcessGroup | None) -> tuple[int | None, int | None]:
    """The global ranks of the stages before and after; None where there is none."""
    ranks = dist.get_process_group_ranks(group)
    previous = None if stage.is_first else ranks[stage.index - 1]
    return previous, None if stage.is_last else ranks[stage.index + 1]


# --- Given: what is refused ---------------------------------------------------------------------


def _check_place(stage: int, num_stages: int) -> None:
    """Refuse a stage that there cannot be."""
    if not 0 <= stage < num_stages:
        raise ValueError(f"stage: there is no stage {stage} of {num_stages}; they start at 0")


def _check_microbatches(num_microbatches: int) -> None:
    """Refuse a number of micro-batches that there cannot be."""
    if num_microbatches < 1:
        raise ValueError(f"num_microbatches: it is {num_microbatches}, but must be at least 1")


def _check_run(
    stage: PipelineStage,
    microbatch_sizes: Sequence[int],
    inputs: Sequence[Tensor] | None,
    group: ProcessGroup | None,
) -> None:
    """Refuse another rank's stage, and micro-batches that there cannot be."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    if (stage.index, stage.num_stages) != (rank, ranks):
        raise ValueError(
            f"stage: it is {stage.index} of {stage.num_stages}, but the calling rank is {rank} of "
            f"{ranks} in the group"
        )
    if not microbatch_sizes or min(microbatch_sizes) < 1:
        raise ValueError(
            f"microbatch_sizes: they are {list(microbatch_sizes)}, but must be at least one, and "
            "at least 1 each"
        )
    if stage.is_first and [len(one) for one in inputs or ()] != list(microbatch_sizes):
        raise ValueError(
            f"inputs: they must be micro-batches of {list(microbatch_sizes)} samples, on the first "
            "stage"
        )


def _check_schedule(
    stage: PipelineStage,
    schedule: Schedule,
    microbatch_sizes: Sequence[int],
    targets: Sequence[Tensor] | None,
    loss_fn: Callable[[Tensor, Tensor], Tensor] | None,
) -> None:
    """Refuse a schedule for other stages or micro-batches, and a last stage without a loss."""
    validate_schedule(schedule)
    p, m = len(schedule), len(schedule[0]) // 2
    if (p, m) != (stage.num_stages, len(microbatch_sizes)):
        raise ValueError(
            f"schedule: it is for {p} stages and {m} micro-batches, but there are "
            f"{stage.num_stages} and {len(microbatch_sizes)}"
        )
    if stage.is_last and (loss_fn is None or len(targets or ()) != m):
        raise ValueError(f"targets, loss_fn: the last stage needs them, and {m} targets")
