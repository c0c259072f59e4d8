"""Pipelines, on the trusted side: what schedules are worth, and small models cut into stages.

A schedule is, for each stage, a list of actions ("F" or "B", micro-batch), as plain data. What a
model must give comes from one process that computes it without any pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from autograder.agreement import difference
from autograder.compare import Tolerance
from autograder.cost import Bands, Score, part
from autograder.failure import CheckFailed
from autograder.judge import Answer, Case, Judge, array
from autograder.scenario import ALLOWED
from multirank import Fabric, ReplayError, Trace, replay

Action: TypeAlias = tuple[str, int]
Schedule: TypeAlias = list[list[Action]]
Entering: TypeAlias = tuple[tuple[int, ...], str]  # shape and dtype of a sample

METADATA = 256  # bytes of a message that is not counted
BANDS: Bands = (  # as the docstrings say
    (Fraction(11, 10), Fraction(1)),
    (Fraction(13, 10), Fraction(3, 4)),
    (Fraction(16, 10), Fraction(1, 2)),
    (Fraction(22, 10), Fraction(1, 4)),
)
_SMALL_SIZES = [(p, m) for p in range(1, 9) for m in range(1, 17)]
_LARGE_SIZES = [(9, 4), (12, 12), (16, 5), (16, 64), (24, 48), (32, 32), (48, 7), (64, 256)]
ALL_SIZES = _SMALL_SIZES + _LARGE_SIZES
"""(p, m) for which a schedule is asked."""
_TOKENS, _WORDS = 3, 11
_ITEMSIZE = {"float32": 4, "float64": 8}


# --- Schedules ----------------------------------------------------------------------------------


def gpipe(p: int, m: int) -> Schedule:
    """All forward passes, then all backward passes."""
    forwards = [("F", i) for i in range(m)]
    return [forwards + [("B", i) for i in range(m)] for _ in range(p)]


def one_f_one_b(p: int, m: int) -> Schedule:
    """At most p - r in flight on stage r, and no fewer where there are micro-batches."""
    schedule = []
    for stage in range(p):
        actions: list[Action] = []
        sent = back = 0
        while back < m:
            if sent < m and sent - back < p - stage:
                actions.append(("F", sent))
                sent += 1
            else:
                actions.append(("B", back))
                back += 1
        schedule.append(actions)
    return schedule


def one_at_a_time(p: int, m: int) -> Schedule:
    """No pipeline at all: the whole of a micro-batch, then the next."""
    return [[(kind, i) for i in range(m) for kind in "FB"] for _ in range(p)]


def drawn_schedule(rng: np.random.Generator, p: int, m: int) -> Schedule:
    """Any valid one: orders of F and of B that all stages share, put together at random."""
    orders = {kind: [int(i) for i in rng.permutation(m)] for kind in "FB"}
    schedule: Schedule = [[] for _ in range(p)]
    done: list[set[Action]] = [set() for _ in range(p)]
    while True:
        able = []
        for stage in range(p):
            for kind in "FB":
                place = sum(one[0] == kind for one in done[stage])
                if place == m:
                    continue
                action = (kind, orders[kind][place])
                if all(needed in done[other] for other, needed in _needs(stage, action, p)):
                    able.append((stage, action))
        if not able:
            return schedule
        stage, action = able[int(rng.integers(len(able)))]
        schedule[stage].append(action)
        done[stage].add(action)


def _needs(stage: int, action: Action, p: int) -> list[tuple[int, Action]]:
    kind, i = action
    if kind == "F":
        return [(stage - 1, action)] if stage else []
    return [(stage + 1, action)] if stage < p - 1 else [(stage, ("F", i))]


def what_is_invalid(schedule: Schedule, m: int) -> str:
    """What is wrong with it, in words; empty for a valid one."""
    every = {(kind, i) for kind in "FB" for i in range(m)}
    for stage, actions in enumerate(schedule):
        place = {action: k for k, action in enumerate(actions)}
        if not every.issuperset(place):
            return f"stage {stage} has an action that is not F or B of one of the micro-batches"
        if missing := sorted(every.difference(place)):
            kind, i = missing[0]
            return f"on stage {stage}, {kind}{i} is missing"
        if len(actions) > len(place):
            return f"on stage {stage}, an action is there more than once"
        for i in range(m):
            if place["B", i] < place["F", i]:
                return f"on stage {stage}, B{i} comes before F{i}"
        for kind in "FB":
            if _of_kind(actions, kind) != _of_kind(schedule[0], kind):
                return f"stage {stage} has another order of {kind} than stage 0"
    stuck = _ends(schedule)[1]
    return f"the stages wait for one another ({', '.join(stuck)})" if stuck else ""


def _of_kind(actions: Sequence[Action], kind: str) -> list[Action]:
    return [action for action in actions if action[0] == kind]


def _ends(schedule: Schedule) -> tuple[list[int], list[str]]:
    """When each stage is done, in unit time; and where stages are stuck, in words."""
    p = len(schedule)
    ends: dict[tuple[int, Action], int] = {}
    free, places = [0] * p, [0] * p
    moved = True
    while moved:
        moved = False
        for stage, actions in enumerate(schedule):
            while places[stage] < len(actions):
                needed = _needs(stage, actions[places[stage]], p)
                if any(one not in ends for one in needed):
                    break
                free[stage] = max([free[stage], *(ends[one] for one in needed)]) + 1
                ends[stage, actions[places[stage]]] = free[stage]
                places[stage] += 1
                moved = True
    waiting = [
        f"stage {stage} at {actions[place][0]}{actions[place][1]}"
        for stage, (actions, place) in enumerate(zip(schedule, places, strict=True))
        if place < len(actions)
    ]
    return free, waiting


def bubble(schedule: Schedule) -> Fraction:
    """Idle over total time, in unit time."""
    work = sum(len(actions) for actions in schedule)
    return 1 - Fraction(work, len(schedule) * max(_ends(schedule)[0]))


def peaks(schedule: Schedule) -> list[int]:
    """The most micro-batches in flight, on each stage."""
    found = []
    for actions in schedule:
        levels = np.cumsum([1 if kind == "F" else -1 for kind, _ in actions])
        found.append(int(levels.max()))
    return found


def require_valid(function: str, schedule: Schedule, p: int, m: int) -> None:
    """What gpipe or one_f_one_b gave for p stages and m micro-batches must be valid.

    Raises:
        CheckFailed: it is not.
    """
    if wrong := what_is_invalid(schedule, m):
        raise CheckFailed(
            f"{function} with {p} stages and {m} micro-batches is not valid: {wrong}",
            causes=_why_invalid(schedule, m),
        )


def _why_invalid(schedule: Schedule, m: int) -> list[str]:
    """What it is consistent with, at most one sentence."""
    numbers = [i for actions in schedule for _, i in actions]
    if m < len(schedule) and max(numbers, default=0) >= m:
        return ["consistent with a warm-up longer than there are micro-batches"]
    if min(numbers, default=0) >= 1:
        return ["consistent with micro-batches being counted from 1"]
    return []


def told_schedules(judge: Judge, function: str, sizes: Sequence[tuple[int, int]]) -> list[Schedule]:
    """What gpipe or one_f_one_b of the submission gives, for each (p, m)."""
    case = Case("pipeline_parallel", "schedules", 1, process_group=False)
    inputs = {"function": function, "sizes": [list(one) for one in sizes]}
    (answer,) = judge.run(case, [[inputs]], facts=[{"function": function}])
    lengths = [one for one in answer.plain(0, "lengths") if isinstance(one, int)]
    codes = iter(array(answer.get(0, "actions", Tensor)).values.ravel().tolist())
    if len(lengths) != sum(p for p, _ in sizes):
        raise CheckFailed("rank 0 gave no answer")
    actions = iter(
        [_action(code) for _, code in zip(range(length), codes, strict=False)] for length in lengths
    )
    return [[next(actions) for _ in range(p)] for p, _ in sizes]


def require_refusals(judge: Judge, calls: Sequence[tuple[str, list[Any], str]]) -> None:
    """Each call, [function, arguments], must raise ValueError; the third is what is wrong with it.

    Raises:
        CheckFailed: one does not.
    """
    case = Case("pipeline_parallel", "refusals", 1, process_group=False)
    (answer,) = judge.run(case, [[{"calls": [[name, given] for name, given, _ in calls]}]])
    raised = answer.plain(0, "raised")
    for place, (name, _, what) in enumerate(calls):
        if raised[place : place + 1] != ["ValueError"]:
            raise CheckFailed(f"{name} with {what} must raise ValueError")


def require_figures(
    judge: Judge,
    function: str,
    schedules: Sequence[Schedule],
    right: Callable[[Schedule], list[float]],
    mistakes: Mapping[str, Callable[[Schedule], list[float]]],
) -> None:
    """bubble_fraction or peak_in_flight of these schedules must be right.

    mistakes: what leads to which other numbers.

    Raises:
        CheckFailed: it is not.
    """
    case = Case("pipeline_parallel", "figures", 1, process_group=False)
    inputs = {"function": function, "schedules": as_json(schedules)}
    (answer,) = judge.run(case, [[inputs]], facts=[{"function": function}])
    found = [_numbers(one) for one in answer.plain(0, "found")]
    wrong = [
        place
        for place, schedule in enumerate(schedules)
        if place >= len(found) or not _near(found[place], right(schedule))
    ]
    if wrong:
        explained = [
            words
            for words, leads_to in mistakes.items()
            if all(
                _near(one, leads_to(schedule))
                for one, schedule in zip(found, schedules, strict=False)
            )
        ]
        p, m = len(schedules[wrong[0]]), len(schedules[wrong[0]][0]) // 2
        raise CheckFailed(
            f"{function} is wrong for {len(wrong)} of {len(schedules)} schedules, the first one of "
            f"{p} stages and {m} micro-batches",
            causes=[f"consistent with {words}" for words in explained][:1],
        )


def _numbers(found: object) -> list[float]:
    """One number, or several; none for anything else."""
    several = found if isinstance(found, list) else [found]
    return [one for one in several if isinstance(one, float)]


def _near(found: Sequence[float], wanted: Sequence[float]) -> bool:
    return len(found) == len(wanted) and all(
        math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
        for one, other in zip(found, wanted, strict=True)
    )


def as_json(schedules: Sequence[Schedule]) -> list[Any]:
    """Schedules as a case wants them."""
    return [[[list(one) for one in actions] for actions in schedule] for schedule in schedules]


def _action(code: object) -> Action:
    if isinstance(code, int) and code >= 0:
        return "FB"[code % 2], code // 2
    return "?", -1


# --- Models -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Net:
    """A model of several stages.

    stages: for each stage its layers: ("linear", 5) for one of that width, or kinds without one.
    shape, dtype: of one sample that goes in; int64 stands for ids of words.
    """

    stages: tuple[tuple[tuple[str, int], ...], ...]
    shape: tuple[int, ...] = (_TOKENS, 4)
    dtype: str = "float64"

    @property
    def rounding(self) -> float:
        """The relative error that orders of sums may lead to."""
        single = any(kind == "float32" for layers in self.stages for kind, _ in layers)
        return 1e-5 if single else 1e-9

    @property
    def boundaries(self) -> list[Entering]:
        """Shape and dtype of a sample where it enters each stage, and where it leaves the last."""
        entering = (self.shape, self.dtype)
        found = [entering]
        for layers in self.stages:
            for layer in layers:
                entering = _through(layer, *entering)
            found.append(entering)
        return found

    def draw_weights(self, rng: np.random.Generator) -> list[list[Tensor]]:
        """Those of each stage."""
        found = []
        entering = (self.shape, self.dtype)
        for layers in self.stages:
            weights = []
            for kind, width in layers:
                if kind == "embedding":
                    weights.append(rng.standard_normal((_WORDS, width)))
                elif kind in ("linear", "frozen"):
                    fan_in = entering[0][-1]
                    weights.append(rng.standard_normal((width, fan_in)) * fan_in**-0.5)
                entering = _through((kind, width), *entering)
            found.append([torch.from_numpy(weight) for weight in weights])
        return found

    def draw_inputs(self, rng: np.random.Generator, sizes: Sequence[int]) -> list[Tensor]:
        """Micro-batches."""
        words = self.dtype == "int64"
        return [_drawn(rng, (size, *self.shape), _WORDS if words else None) for size in sizes]


def _through(layer: tuple[str, int], shape: tuple[int, ...], dtype: str) -> Entering:
    """Shape and dtype of a sample behind a layer: see `_layer` in cases/pipeline_parallel.py."""
    kind, width = layer
    match kind:
        case "embedding":
            return (*shape, width), "float64"
        case "linear" | "frozen":
            return (*shape[:-1], width), "float64"
        case "transpose":
            return (shape[1], shape[0]), dtype
        case "expand":
            return (_TOKENS, shape[1]), dtype
    return shape, kind


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], below: int | None) -> Tensor:
    """Whole numbers below this, or random floats."""
    if below is None:
        return torch.from_numpy(rng.standard_normal(shape))
    return torch.from_numpy(rng.integers(0, below, size=shape))


def even_net(p: int) -> Net:
    """Stages of one layer, with the same width at each boundary."""
    return Net(((("linear", 64),),) * p, (_TOKENS, 64))


def plain_net(p: int) -> Net:
    """Stages of one or two layers, with another width at each boundary."""
    return Net(
        tuple(
            tuple(("linear", 5 + stage + 2 * layer) for layer in range(1 + stage % 2))
            for stage in range(p)
        )
    )


@dataclass(frozen=True)
class Training:
    """One call of run_schedule (or of pipeline_forward, for which schedule and loss say nothing).

    sizes: samples of each micro-batch. members: global ranks of the sub-group, in its order.
    prior: what is in every gradient before. times: batches, one after another.
    seconds: declared compute of a forward and of a backward pass.
    """

    net: Net
    schedule: Schedule
    sizes: tuple[int, ...]
    loss: str = "mse"
    members: tuple[int, ...] | None = None
    world_size: int | None = None
    prior: float | None = None
    times: int = 1
    seconds: tuple[float, float] | None = None
    name: str = ""
    facts: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        facts = {"stages": str(self.stages), "micro-batches": str(list(self.sizes))}
        facts |= {"schedule": self.name} if self.name else {}
        facts |= {"group": str(list(self.members))} if self.members else {}
        object.__setattr__(self, "facts", facts)

    @property
    def stages(self) -> int:
        return len(self.net.stages)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The global ranks of the stages."""
        return self.members or tuple(range(self.stages))

    def case(self, function: str) -> Case:
        world_size = self.world_size or self.stages
        return Case("pipeline_parallel", function, world_size, self.members, allowed=ALLOWED)

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.facts.items())


@dataclass(frozen=True)
class Ran:
    """What a training ran with, and what came of it.

    inputs: for the case, by stage. whole: what one process gave.
    """

    training: Training
    answer: Answer
    whole: Answer
    parameters: list[int]
    """How many weights each stage has."""

    @property
    def losses(self) -> list[Tensor]:
        losses: list[Tensor] = self.whole.outputs[0]["losses"]
        return losses

    def grads(self, stage: int) -> list[list[Tensor]]:
        """For each micro-batch, the gradients of one stage's weights."""
        begin = sum(self.parameters[:stage])
        end = begin + self.parameters[stage]
        return [of_one[begin:end] for of_one in self.whole.outputs[0]["grads"]]


def train(judge: Judge, function: str, trainings: Iterable[Training]) -> list[Ran]:
    """Runs them all, those next to one another that fit one world in one; and in one process."""
    rng = judge.seed.generator()
    drawn = [_draw(function, training, rng) for training in trainings]
    answers = []
    for case, together in groupby(drawn, key=lambda one: one.training.case(function)):
        calls = list(together)
        facts = [one.training.facts for one in calls]
        answers += judge.run(case, [one.inputs for one in calls], facts=facts)
    alone = Case("pipeline_parallel", "whole", 1, process_group=False)
    wholes = judge.run_reference(alone, [[one.alone] for one in drawn])
    return [
        Ran(one.training, answer, whole, [len(weights) for weights in one.weights])
        for one, answer, whole in zip(drawn, answers, wholes, strict=True)
    ]


@dataclass(frozen=True)
class _Drawn:
    """Inputs of a training. inputs: by rank. alone: for one process. weights: by stage."""

    training: Training
    inputs: list[dict[str, Any] | None]
    alone: dict[str, Any]
    weights: list[list[Tensor]]


def _draw(function: str, training: Training, rng: np.random.Generator) -> _Drawn:
    net, p = training.net, training.stages
    weights = net.draw_weights(rng)
    inputs = net.draw_inputs(rng, training.sizes)
    shape = net.boundaries[-1][0]
    classes = shape[-1] if training.loss == "cross_entropy" else None
    of_one = shape if classes is None else shape[:-1]
    targets = [_drawn(rng, (size, *of_one), classes) for size in training.sizes]
    common: dict[str, Any] = {
        "stages": p,
        "sizes": list(training.sizes),
        "schedule": as_json([training.schedule])[0],
        "loss": training.loss,
        "prior": training.prior,
        "times": training.times,
        "seconds": None if training.seconds is None else list(training.seconds),
    }
    by_rank: list[dict[str, Any] | None] = [None] * (training.world_size or p)
    for stage, rank in enumerate(training.ranks):
        entering, dtype = net.boundaries[stage]
        own: dict[str, Any] = {
            "index": stage,
            "layers": [kind for kind, _ in net.stages[stage]],
            "weights": weights[stage],
            "input_shape": list(entering),
            "dtype": dtype,
        }
        own |= {"inputs": inputs} if stage == 0 else {}
        own |= {"targets": targets} if stage == p - 1 else {}
        by_rank[rank] = common | own
    alone = {
        "layers": [kind for layers in net.stages for kind, _ in layers],
        "weights": [weight for of_stage in weights for weight in of_stage],
        "inputs": inputs,
        "targets": targets if function == "run" else None,
        "loss": training.loss,
    }
    return _Drawn(training, by_rank, alone, weights)


# --- What must come out -------------------------------------------------------------------------


def differs(found: object, expected: Tensor, net: Net) -> str:
    """What is wrong with a tensor of this net, in words; empty when it is equal up to rounding."""
    wanted = array(expected)
    scale = float(np.abs(wanted.values).max(initial=1.0))
    return difference({"it": found}, "it", wanted, Tolerance(net.rounding * scale))


def require_trained(ran: Ran) -> None:
    """Loss and gradients as one process has them; and each action computed once, in its place.

    Raises:
        CheckFailed: otherwise.
    """
    training, answer = ran.training, ran.answer
    _refuse_changed(training, answer.trace)
    sizes = np.array(training.sizes)
    shares = sizes / sizes.sum()
    last = training.ranks[-1]
    for stage, rank in enumerate(training.ranks):
        order = [tuple(one) for one in answer.plain(rank, "order") if isinstance(one, list)]
        if order != training.schedule[stage] * training.times:
            raise CheckFailed(
                f"{training}: stage {stage} does not compute its actions, each once and in their "
                "order"
            )
    for stage, rank in enumerate(training.ranks[:-1]):
        if answer.outputs[rank].get("loss") is not True:
            raise CheckFailed(f"{training}: stage {stage} must return None: the loss is the last's")
    if answer.outputs[last].get("attached") is not False:
        raise CheckFailed(f"{training}: the loss must be cut off from autograd")
    by_microbatch = torch.stack(ran.losses)
    loss = (by_microbatch * torch.from_numpy(shares)).sum()
    if wrong := differs(answer.outputs[last].get("loss"), loss, training.net):
        found = answer.outputs[last].get("loss")
        raise CheckFailed(
            f"{training}: the loss, on the last stage, is not right: {wrong}",
            causes=_causes([found], [[one] for one in by_microbatch], training, 0.0),
        )
    prior = training.prior or 0.0
    for stage, rank in enumerate(training.ranks):
        grads = answer.get(rank, "grads", list)
        parts = ran.grads(stage)
        if len(grads) != ran.parameters[stage]:
            raise CheckFailed(f"rank {rank} gave no answer")
        for number, grad in enumerate(grads):
            right = sum(
                (share * part[number] for share, part in zip(shares, parts, strict=True)),
                torch.zeros(()),
            )
            if wrong := differs(grad, right * training.times + prior, training.net):
                raise CheckFailed(
                    f"{training}: on stage {stage}, the gradient of its weight {number} is not "
                    f"right: {wrong}",
                    causes=_causes(grads, parts, training, prior),
                )


def _refuse_changed(training: Training, trace: Trace) -> None:
    """What arrives of such a message is luck, and a grade must not be."""
    for operation in trace.operations:
        if operation.name == "send" and operation.changed is not None:
            raise CheckFailed(
                f"{training}: rank {operation.rank} changed the memory of a send (line "
                f"{operation.line}) before it had waited for it"
            )


def _causes(
    found: Sequence[object], parts: Sequence[Sequence[Tensor]], training: Training, prior: float
) -> list[str]:
    """What a wrong loss, or wrong gradients of a stage, are consistent with: one sentence at most.

    parts: for each micro-batch what it gives by itself. prior: what was there before.
    """
    sizes = torch.tensor(training.sizes, dtype=torch.float64)
    m, k = len(sizes), training.times
    shares, equal = sizes / sizes.sum(), torch.full((m,), 1 / m, dtype=torch.float64)
    one_hot = torch.eye(m, dtype=torch.float64)
    known: list[tuple[str, Tensor, float]] = [
        ("a loss that is not scaled: a sum over micro-batches, not a mean", k * m * equal, prior),
        ("a loss that is scaled twice", k * shares * equal, prior),
        ("a loss that is scaled twice", k * shares * shares, prior),
        (
            "micro-batches that count equally, although they hold different numbers of samples",
            k * equal,
            prior,
        ),
        ("a sum over samples, not a mean", k * sizes, prior),
        ("the last micro-batch alone", shares * one_hot[-1], prior),
        ("the last micro-batch alone", one_hot[-1], prior),
        ("the first micro-batch alone", one_hot[0], prior),
        ("no gradient at all", 0 * shares, prior),
        ("the last micro-batch missing", k * shares * (1 - one_hot[-1]), prior),
        ("gradients that were there before being scaled, too", k * shares, prior / m),
        ("gradients that were there before being lost", k * shares, 0.0),
        ("gradients of the batch before being lost", shares, prior),
        ("gradients of the batch before being lost", shares, 0.0),
        ("gradients of the batch before being scaled, too", shares * (1 + 1 / m), prior / m),
        ("gradients of the batch before being scaled, too", shares * (1 + 1 / m), prior / m / m),
    ]
    for words, weights, before in known:
        wanted = [
            sum((w * part[i] for w, part in zip(weights, parts, strict=True)), torch.zeros(()))
            + before
            for i in range(len(found))
        ]
        if not any(
            differs(one, want, training.net) for one, want in zip(found, wanted, strict=True)
        ):
            return [f"consistent with {words}"]
    return []


# --- What it may cost ---------------------------------------------------------------------------


def require_neighbours(training: Training, trace: Trace) -> None:
    """Stage r talks to r - 1 and r + 1 alone.

    Raises:
        CheckFailed: it does not.
    """
    stage_of = {rank: stage for stage, rank in enumerate(training.ranks)}
    for operation in trace.operations:
        stage, other = stage_of[operation.rank], stage_of.get(operation.peer or 0)
        if other is None or abs(stage - other) != 1:
            raise CheckFailed(
                f"{training}: stage {stage} sends to, or receives from, a rank that is not its "
                f"neighbour (line {operation.line})"
            )


def score_boundaries(training: Training, trace: Trace, both_ways: bool) -> Score:
    """The bytes between neighbours, over one message for each output, and for each gradient."""
    worst_ratio, why = Fraction(0), ""
    for stage in range(training.stages - 1):
        shape, dtype = training.net.boundaries[stage + 1]
        enough = sum(training.sizes) * math.prod(shape) * _ITEMSIZE[dtype]
        ways = [(stage, stage + 1, "outputs"), (stage + 1, stage, "gradients")]
        for source, target, what in ways[: 2 if both_ways else 1]:
            sent = sum(
                operation.nbytes
                for operation in trace.of_rank(training.ranks[source])
                if operation.name == "send"
                and operation.peer == training.ranks[target]
                and operation.nbytes > METADATA
            )
            ratio = Fraction(sent, enough)
            if ratio > worst_ratio:
                worst_ratio = ratio
                why = (
                    f"stage {source} sends {float(ratio):.2f} times the bytes of its {what} to "
                    f"stage {target}; once is enough"
                )
    return Score(part(worst_ratio, BANDS), why)


def score_makespan(
    training: Training, trace: Trace, message: float, ideal: float, what: str
) -> Score:
    """The makespan on a network where the first stage's messages take so many seconds.

    ideal: seconds that the docstring allows. what: what is said of the network.

    Raises:
        CheckFailed: the trace cannot be replayed.
    """
    shape, dtype = training.net.boundaries[1]
    nbytes = training.sizes[0] * math.prod(shape) * _ITEMSIZE[dtype]
    fabric = Fabric("graded", latency=0.0, bandwidth=nbytes / message)
    try:
        found = replay(trace, fabric, training.world_size or training.stages)
    except ReplayError as error:
        raise CheckFailed(f"the results are right, but the cost does not count: {error}") from error
    ratio = Fraction(found.makespan / ideal).limit_denominator(10**6)
    waiting = max(found.ranks, key=lambda rank: rank.waiting)
    return Score(
        part(ratio, BANDS),
        f"{training}: on a modelled network where {what}, it takes {float(ratio):.2f} times as "
        f"long as it must; rank {waiting.rank} waits for {waiting.waiting / found.makespan:.0%} of "
        "the time",
    )


def require_little_held(
    training: Training, outputs: Mapping[int, object], bounds: Sequence[int]
) -> None:
    """No more is held than is in flight, but for a micro-batch and a receive buffer.

    bounds: by stage, the most that are in flight.

    Raises:
        CheckFailed: more are.
    """
    for stage, rank in enumerate(training.ranks):
        output = outputs[rank]
        given = output if isinstance(output, dict) else {}
        held, left = given.get("held"), given.get("left")
        if not isinstance(held, int) or not isinstance(left, int):
            raise CheckFailed(f"rank {rank} gave no answer")
        if held > bounds[stage] + 2 or left > 1:
            raise CheckFailed(
                f"{training}: stage {stage} holds the activations of {held} micro-batches at the "
                f"same time, and of {left} in the end, where at most {bounds[stage]} are in flight",
                causes=["consistent with activations being kept after their backward pass"],
            )
