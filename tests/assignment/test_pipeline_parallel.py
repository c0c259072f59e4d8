"""Your pipeline: schedules as data first, then one stage, then all of them at work.

Schedules are written as text here, "F0 F1 B0 B1", one for each stage. Stages are small and all of
another width; what they must give is computed in this process, from the whole batch. The messages
are looked at, too: who talks to whom, and what it would take on a modelled network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multirank
from multirank import Fabric, Operation, ReplayError, Run

from . import pipelines
from .calls import Call, group_name
from .explain import source_place
from .pipelines import Order
from .running import Subject, Worlds, fail, require_finished, result

GPIPE = "F0 F1 F2 F3 B0 B1 B2 B3"
ONE_AT_A_TIME = "F0 B0 F1 B1 F2 B2 F3 B3"
# 1F1B of four micro-batches on three stages.
THREE_STAGES = ["F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", ONE_AT_A_TIME]
Group = tuple[int, ...]


@pytest.fixture
def subject(implementation: str) -> Subject:
    """The module that is tested."""
    return Subject(implementation, "pipeline_parallel")


Runner = Callable[..., Run]


@pytest.fixture
def run(subject: Subject, worlds: Worlds) -> Runner:
    """Runs a function of pipelines.py on every rank: `run(function, world_size, *args)`.

    told: what it does, by name, for messages.
    """

    def run(
        function: Callable[..., Any],
        world_size: int,
        *args: Any,
        told: dict[str, Any],
        group: Group | None = None,
    ) -> Run:
        __tracebackhide__ = True
        name = "PipelineStage" if function is pipelines.drive else function.__name__
        calls = [Call(name, dict.fromkeys(range(world_size), told), group=group)]
        done = worlds.call(subject, world_size, calls, function, *args)
        require_finished(subject, done, calls)
        if any(op.name == "send" and op.changed is not None for op in done.trace.operations):
            fail(f"{name} changes what it sends before it has left.", done.warnings)
        return done

    return run


# --- partition_layers ---------------------------------------------------------------------------


@pytest.mark.problem("partition_layers", share=0.85)
def test_partition_layers_gives_every_layer_to_one_stage(subject: Subject) -> None:
    for layers, stages in ((10, 4), (8, 4), (7, 3), (5, 5), (6, 1), (30, 7)):
        parts = result(subject, "partition_layers", {"num_layers": layers, "num_stages": stages})
        given = [layer for part in parts for layer in part]
        sizes = [len(part) for part in parts]
        if len(parts) != stages or given != list(range(layers)) or max(sizes) - min(sizes) > 1:
            lost = given == list(range(len(given))) and len(given) < layers
            fail(
                f"partition_layers({layers}, {stages}) gives {parts}; every layer must be there "
                "once, in order, and the lengths must differ by at most one.",
                guessed=["the remainder of a division being lost"] if lost else [],
            )


@pytest.mark.problem("partition_layers", share=0.15)
def test_partition_layers_refuses_fewer_layers_than_stages(subject: Subject) -> None:
    result(subject, "partition_layers", {"num_layers": 4, "num_stages": 4})
    require_refusal(subject, "partition_layers", {"num_layers": 3, "num_stages": 4})


def require_refusal(subject: Subject, function: str, arguments: dict[str, Any]) -> None:
    __tracebackhide__ = True
    try:
        found = result(subject, function, arguments)
    except ValueError:
        return
    fail(f"{function}({arguments}) gives {found}; it must raise ValueError.")


# --- Schedules ----------------------------------------------------------------------------------

SIZES = [(p, m) for p in range(1, 7) for m in (1, 2, 3, 5, 8, 13)]
Schedule = list[list[Any]]


def schedule_of(subject: Subject, function: str, p: int, m: int) -> Schedule:
    """The schedule of all stages, which must be valid."""
    __tracebackhide__ = True
    schedule = [
        list(result(subject, function, {"stage": stage, "num_stages": p, "num_microbatches": m}))
        for stage in range(p)
    ]
    try:
        result(subject, "validate_schedule", {"schedule": schedule})
    except ValueError as error:
        fail(f"{function}, {p} stages, {m} micro-batches: {error}.", drawn(schedule))
    if (found := len(schedule[0]) // 2) != m:
        fail(f"{function}, {p} stages: {found} micro-batches, not {m}.", drawn(schedule))
    return schedule


def drawn(schedule: Schedule) -> list[str]:
    """As text, a line for each stage; long ones are cut."""
    lines = [" ".join(f"{kind}{i}" for kind, i in actions) for actions in schedule]
    return [f"stage {stage}: {line[:70]}" for stage, line in enumerate(lines)]


def require_idle(subject: Subject, function: str, schedule: Schedule) -> None:
    """It idles as little as GPipe, by your own bubble_fraction."""
    __tracebackhide__ = True
    p, m = len(schedule), len(schedule[0]) // 2
    idle = result(subject, "bubble_fraction", {"schedule": schedule})
    if idle > (p - 1) / (m + p - 1) + 1e-9:
        fail(
            f"{function}, {p} stages, {m} micro-batches: bubble_fraction is {idle:.4f}; it must be "
            f"(p-1)/(m+p-1), {(p - 1) / (m + p - 1):.4f}.",
            drawn(schedule),
        )


@pytest.mark.problem("gpipe", share=0.4)
def test_gpipe_has_all_forward_passes_first(subject: Subject) -> None:
    for p, m in SIZES:
        schedule = schedule_of(subject, "gpipe", p, m)
        for actions in schedule:
            if [tuple(one) for one in actions[:m]] != [("F", i) for i in range(m)]:
                fail(
                    f"gpipe, {p} stages, {m} micro-batches: all F come first, in their order.",
                    drawn(schedule),
                )
        require_idle(subject, "gpipe", schedule)


BUBBLES = [
    ([GPIPE] * 4, 3 / 7),
    ([GPIPE], 0.0),
    (THREE_STAGES, 1 / 3),
    (["F0 B0 F1 B1"] * 2, 1 / 2),
    (["F0 F1 B0 B1", "F0 B0 F1 B1"], 1 / 3),
    (["F1 F0 B0 B1", "F1 F0 B0 B1", "F1 F0 B0 B1"], 1 / 2),
]


@pytest.mark.problem("gpipe", share=0.3)
def test_bubble_fraction_is_idle_over_total_time(subject: Subject) -> None:
    for orders, right in BUBBLES:
        schedule = parsed(subject, orders)
        found = result(subject, "bubble_fraction", {"schedule": schedule})
        if not math.isclose(found, right, abs_tol=1e-9):
            guesses = {
                "the bubble ratio, idle over working time": right / (1 - right),
                "a percentage": 100 * right,
                "the part of the time in which the stages work": 1 - right,
            }
            fail(
                f"bubble_fraction is {found}; it must be {right:.6g} for",
                drawn(schedule),
                [words for words, one in guesses.items() if math.isclose(found, one)],
            )


@pytest.mark.problem("gpipe", share=0.2)
def test_peak_in_flight_counts_what_a_stage_has_to_keep(subject: Subject) -> None:
    for orders, right in (
        ([GPIPE] * 2, [4, 4]),
        (THREE_STAGES, [3, 2, 1]),
        ([ONE_AT_A_TIME] * 2, [1, 1]),
        (["F0 B0 F1 F2 B1 F3 B2 B3"], [2]),
    ):
        schedule = parsed(subject, orders)
        found = result(subject, "peak_in_flight", {"schedule": schedule})
        if list(found) != right:
            fail(f"peak_in_flight is {found}; it must be {right} for", drawn(schedule))


def parsed(subject: Subject, orders: Sequence[Order]) -> Schedule:
    """A schedule as data, from its text."""
    __tracebackhide__ = True
    return [
        [
            result(subject, "Action", {"kind": word[0], "microbatch": int(word[1:])})
            for word in order.split()
        ]
        for order in orders
    ]


@pytest.mark.problem("gpipe", share=0.1)
def test_gpipe_refuses_what_cannot_be(subject: Subject) -> None:
    schedule_of(subject, "gpipe", 1, 1)
    for stage, p, m in ((4, 4, 2), (0, 4, 0), (-1, 4, 2)):
        arguments = {"stage": stage, "num_stages": p, "num_microbatches": m}
        require_refusal(subject, "gpipe", arguments)


@pytest.mark.problem("one_f_one_b", share=0.3)
def test_one_f_one_b_is_valid(subject: Subject) -> None:
    for p, m in SIZES:
        if m >= p:
            schedule_of(subject, "one_f_one_b", p, m)


@pytest.mark.problem("one_f_one_b", share=0.25)
def test_one_f_one_b_idles_no_more_than_gpipe(subject: Subject) -> None:
    for p, m in SIZES:
        if m >= p:
            require_idle(subject, "one_f_one_b", schedule_of(subject, "one_f_one_b", p, m))


@pytest.mark.problem("one_f_one_b", share=0.3)
def test_one_f_one_b_has_few_micro_batches_in_flight(subject: Subject) -> None:
    for p, m in SIZES:
        if m >= p:
            require_few_in_flight(schedule_of(subject, "one_f_one_b", p, m))


def require_few_in_flight(schedule: Schedule) -> None:
    __tracebackhide__ = True
    p, m = len(schedule), len(schedule[0]) // 2
    for stage, actions in enumerate(schedule):
        most = max(
            sum(1 if kind == "F" else -1 for kind, _ in actions[:end]) for end in range(2 * m + 1)
        )
        if most > min(m, p - stage):
            fail(
                f"one_f_one_b, {p} stages, {m} micro-batches: {most} are in flight on stage "
                f"{stage}; at most min(m, p - stage), {min(m, p - stage)}, may be.",
                drawn(schedule),
            )


@pytest.mark.problem("one_f_one_b", share=0.15)
def test_one_f_one_b_with_fewer_micro_batches_than_stages(subject: Subject) -> None:
    for p, m in SIZES:
        if m < p or p == 1:
            schedule = schedule_of(subject, "one_f_one_b", p, m)
            require_idle(subject, "one_f_one_b", schedule)
            require_few_in_flight(schedule)


# --- PipelineStage ------------------------------------------------------------------------------

TOLD_TO_REQUIRE = "was the received input told that it requires a gradient?"


def require_driven(
    run: Runner, kind: str, layer: int, sizes: Sequence[int], order: Order
) -> dict[str, Any]:
    """One layer as a stage gives what autograd gives, micro-batch by micro-batch."""
    __tracebackhide__ = True
    told = {"index": layer, "num_stages": 4, "actions": order, "microbatch_sizes": list(sizes)}
    done = run(pipelines.drive, 1, kind, layer, sizes, order, told=told)
    found: dict[str, Any] = done.results[0]
    what = f"PipelineStage, stage {layer} of 4, {order}"
    module = pipelines.layers(kind)[layer]
    if found["calls"] != len(sizes):
        fail(f"{what}: the module is called {found['calls']} times, not {len(sizes)} times.")
    if found["attached"]:
        fail(f"{what}: what forward returns must not require a gradient.")
    for number, samples in enumerate(sizes):
        leaf = pipelines.given(kind, layer, number, samples)
        if layer > 0:
            leaf.requires_grad_()
        output = module(leaf)
        whose = f"of micro-batch {number}"
        require_close(f"{what}: the output {whose}", found["outputs"][number], output.detach())
        if output.requires_grad:
            output.backward(pipelines.gradient(output))
        got = found["input_grads"][number]
        if (got is None) != (leaf.grad is None):
            asked, guessed = "None", []
            if leaf.grad is not None:
                asked, guessed = "a gradient", [f"an input without one: {TOLD_TO_REQUIRE}"]
            fail(
                f"{what}: backward({number}, ...) returns {got}; it must be {asked}.",
                guessed=guessed,
            )
        if leaf.grad is not None:
            zeros = {f"zeros: {TOLD_TO_REQUIRE}": torch.zeros_like(leaf)}
            require_close(f"{what}: the gradient of the input {whose}", got, leaf.grad, zeros)
    require_gradients(what, found["grads"], named_parameters({layer: module}), 0.5)
    return found


def require_gradients(
    what: str,
    found: Sequence[Tensor | None],
    parameters: Mapping[str, nn.Parameter],
    before: float,
    guesses: Mapping[str, Sequence[Tensor | None]] | None = None,
    noted: Sequence[str] = (),
) -> None:
    """Those of the parameters, on top of what was there before.

    guesses: what they would be by themselves, by the mistake that would lead to it.
    """
    __tracebackhide__ = True
    for number, (got, name) in enumerate(zip(found, parameters, strict=True)):
        parameter = parameters[name]
        if parameter.grad is None:
            if got is not None:
                fail(f"{what}: the {name} requires no gradient, and must get none.")
            continue
        require_close(
            f"{what}: the gradient of the {name}",
            got,
            parameter.grad + before,
            {
                words: one + before
                for words, grads in (guesses or {}).items()
                if (one := grads[number]) is not None
            }
            | ({"what was there before being lost": parameter.grad} if before else {}),
            noted,
        )


def named_parameters(layers: Mapping[int, nn.Module]) -> dict[str, nn.Parameter]:
    """By what they are called in messages; layers are counted in the whole model."""
    return {
        f"{name.rpartition('.')[2]} of layer {number}": parameter
        for number, layer in layers.items()
        for name, parameter in layer.named_parameters()
    }


def require_close(
    what: str,
    got: Tensor | None,
    right: Tensor,
    guesses: dict[str, Tensor] | None = None,
    noted: Sequence[str] = (),
) -> None:
    """Equal up to rounding, in float64.

    noted: what else is known of the run, in case they are not.
    """
    __tracebackhide__ = True
    if got is None:
        fail(f"{what} is missing.")
    if got.shape != right.shape:
        fail(f"{what} has shape {tuple(got.shape)}; it must be {tuple(right.shape)}.")
    if not torch.allclose(got, right, rtol=1e-9, atol=1e-9):
        wrong = f"off by up to {(got - right).abs().max().item():.4g}"
        if right.dim() == 0:
            wrong = f"{got.item():.6g}; it must be {right.item():.6g}"
        fail(
            f"{what} is {wrong}.",
            noted,
            [
                words
                for words, one in (guesses or {}).items()
                if torch.allclose(got, one, rtol=1e-9, atol=1e-9)
            ],
        )


@pytest.mark.problem("pipeline_stage", share=0.4)
def test_pipeline_stage_computes_one_micro_batch(run: Runner) -> None:
    for layer in (1, 0, 3):
        require_driven(run, "plain", layer, [3], "F0 B0")


@pytest.mark.problem("pipeline_stage", share=0.35)
def test_pipeline_stage_keeps_micro_batches_apart(run: Runner) -> None:
    for order in ("F0 F1 B0 B1", "F1 F0 B0 F2 B2 B1"):
        require_driven(run, "plain", 1, [2, 2, 1][: order.count("F")], order)


@pytest.mark.problem("pipeline_stage", share=0.15)
def test_pipeline_stage_takes_token_ids_and_layers_with_nothing_to_train(run: Runner) -> None:
    require_driven(run, "tokens", 0, [2, 1], "F0 F1 B0 B1")
    require_driven(run, "frozen", 0, [2, 1], "F0 F1 B0 B1")


@pytest.mark.problem("pipeline_stage", share=0.1)
def test_pipeline_stage_keeps_nothing_after_the_backward_pass(run: Runner) -> None:
    order = "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4"
    found = require_driven(run, "plain", 1, [2] * 5, order)
    if found["held"] > 2:
        fail(
            f"PipelineStage, {order}: the inputs of {found['held']} micro-batches are in memory at "
            "the same time, where 2 are in flight."
        )


# --- pipeline_forward ---------------------------------------------------------------------------


def require_outputs(
    run: Runner,
    stages: int,
    sizes: Sequence[int],
    kind: str = "plain",
    group: Group | None = None,
) -> Run:
    __tracebackhide__ = True
    world_size = 4 if group else stages
    name = group_name(group) if group else None
    told = {"num_stages": stages, "microbatch_sizes": list(sizes)}
    args = (world_size, name, kind, stages, sizes)
    done = run(pipelines.pipeline_forward, *args, told=told, group=group)
    ranks = list(group or range(stages))
    what = f"pipeline_forward, {stages} stages, micro-batches of {list(sizes)}"
    for stage, rank in enumerate(ranks):
        found = done.results[rank]
        if found["calls"] != len(sizes):
            fail(f"{what}: stage {stage} calls its module {found['calls']} times.")
        if stage < stages - 1 and found["outputs"]:
            fail(f"{what}: stage {stage} is not the last, and must return [].")
    outputs = done.results[ranks[-1]]["outputs"]
    if len(outputs) != len(sizes):
        fail(f"{what}: the last stage returns {len(outputs)} outputs.")
    model = nn.Sequential(*pipelines.layers(kind))
    inputs, _ = pipelines.batch(kind, sizes)
    for number, (got, one) in enumerate(zip(outputs, inputs, strict=True)):
        right = model(one).detach()
        which = f"{what}: the output of micro-batch {number}"
        require_close(which, got, right, noted=done.warnings)
    return done


@pytest.mark.problem("pipeline_forward", share=0.5 / 4)
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_pipeline_forward_gives_what_one_process_gives(run: Runner, stages: int) -> None:
    require_outputs(run, stages, [2, 2, 2, 2])


@pytest.mark.problem("pipeline_forward", share=0.2)
def test_pipeline_forward_of_uneven_and_of_few_micro_batches(run: Runner) -> None:
    require_outputs(run, 3, [3, 3, 1])
    require_outputs(run, 4, [2, 1])


@pytest.mark.problem("pipeline_forward", share=0.1)
def test_pipeline_forward_of_token_ids_and_in_a_sub_group(run: Runner) -> None:
    require_outputs(run, 2, [2, 2, 1], "tokens")
    require_outputs(run, 2, [2, 1], group=(1, 3))


@pytest.mark.problem("pipeline_forward", share=0.2)
def test_pipeline_forward_lets_the_stages_work_at_the_same_time(run: Runner) -> None:
    done = require_outputs(run, 4, [2] * 8)
    require_point_to_point(done, "pipeline_forward")
    require_makespan(done, "pipeline_forward with 4 stages and 8 micro-batches", 1e-6, 11.0)


def require_point_to_point(done: Run, function: str, ranks: Sequence[int] = range(4)) -> None:
    """Messages only, and between neighbours only."""
    __tracebackhide__ = True
    for op in done.trace.operations:
        if op.name not in ("send", "recv"):
            fail(f"{function} uses dist.{op.name}; only messages may be used.")
        if op.peer is not None and abs(ranks.index(op.rank) - ranks.index(op.peer)) != 1:
            fail(f"{function}: rank {op.rank} talks to {op.peer}, which is not its neighbour.")


def require_makespan(
    done: Run, what: str, message: float, enough: float, guessed: Sequence[str] = ()
) -> None:
    """What it takes on a modelled network where the largest message takes so long, and F 1 s."""
    __tracebackhide__ = True
    try:
        largest = max(op.nbytes for op in done.trace.operations)
        fabric = Fabric("modelled", latency=0.0, bandwidth=largest / message)
        replayed = multirank.replay(done.trace, fabric)
    except ReplayError as error:
        fail(f"{what}: {error}")
    if replayed.makespan > 1.1 * enough:
        waits = max(replayed.ranks, key=lambda rank: rank.waiting)
        fail(
            f"{what}: on a modelled network it takes {replayed.makespan:.1f} s; {enough:.1f} s are "
            "enough.",
            [
                f"a forward pass takes 1 s, a message up to {message:g} s",
                f"rank {waits.rank} waits for {waits.waiting:.1f} s",
            ],
            guessed,
        )


def why_nothing_overlaps(done: Run) -> list[str]:
    """What the messages have in common, if no receive or no send is under way in a computation."""
    likely = {
        "recv": "receives that are posted only when their message is needed",
        "send": "sends that are waited for before the next computation begins",
    }
    found = []
    for name, words in likely.items():
        messages = [one for one in done.trace.operations if one.name == name and one.nbytes > 256]
        if messages and not any(meets_computation(done, one) for one in messages):
            places = sorted({source_place(one.file, one.line) for one in messages})
            found.append(f"{words} ({' and '.join(places[:2])})")
    return found


def meets_computation(done: Run, message: Operation) -> bool:
    """Whether its rank begins to compute between issuing it and waiting for it."""
    end = message.completed if message.waited is None else message.waited
    end = math.inf if end is None else end
    return any(
        mark.kind == "compute" and mark.rank == message.rank and message.issued < mark.time < end
        for mark in done.trace.marks
    )


# --- run_schedule -------------------------------------------------------------------------------

NOTHING = "nothing being added up"


def require_trained(
    run: Runner,
    orders: Sequence[Order],
    sizes: Sequence[int],
    kind: str = "plain",
    group: Group | None = None,
    before: float | None = None,
) -> Run:
    """Loss and gradients are those that one process gets from the whole batch."""
    __tracebackhide__ = True
    stages = len(orders)
    world_size = 4 if group else stages
    name = group_name(group) if group else None
    arguments = {"schedule": list(orders), "microbatch_sizes": list(sizes)}
    args = (world_size, name, kind, orders, sizes, before)
    done = run(pipelines.run_schedule, *args, told=arguments, group=group)
    ranks = list(group or range(stages))
    what = f"run_schedule, {stages} stages, micro-batches of {list(sizes)}"
    m = len(sizes)
    shares = [samples / sum(sizes) for samples in sizes]
    loss, model = in_one_process(kind, sizes, shares)
    guesses = {
        words: in_one_process(kind, sizes, wrong)
        for words, wrong in {
            "a loss that is not scaled: the sum of the micro-batches' means": [1.0] * m,
            "a loss that is scaled twice": [share / m for share in shares],
            "micro-batches that count equally, whatever they hold": [1 / m] * m,
            NOTHING: [0.0] * m,
        }.items()
    }
    for stage, rank in enumerate(ranks[:-1]):
        if done.results[rank]["loss"] is not None:
            fail(f"{what}: stage {stage} is not the last, and must return None.")
    last = done.results[ranks[-1]]
    if last["attached"]:
        fail(f"{what}: the loss must be cut off from autograd.")
    require_close(
        f"{what}: the loss",
        last["loss"],
        loss,
        {words: guess for words, (guess, _) in guesses.items()},
        done.warnings,
    )
    for stage, rank in enumerate(ranks):
        found = done.results[rank]
        own = slice(*pipelines.CUTS[stages][stage : stage + 2])
        guessed = {
            words: [one.grad for one in guess[own].parameters()]
            for words, (_, guess) in guesses.items()
        }
        if stage < stages - 1:  # what comes back from the stage after may be zeros
            zeros = guessed.pop(NOTHING)
            guessed[f"{NOTHING}, or zeros coming back: {TOLD_TO_REQUIRE}"] = zeros
        told = f"{what}: on stage {stage}, {orders[stage]}"
        parameters = named_parameters({layer: model[layer] for layer in range(own.start, own.stop)})
        require_gradients(told, found["grads"], parameters, before or 0.0, guessed, done.warnings)
    return done


def in_one_process(
    kind: str, sizes: Sequence[int], shares: Sequence[float]
) -> tuple[Tensor, nn.Sequential]:
    """The loss to which each micro-batch's adds its share, and the model with its gradients."""
    model = nn.Sequential(*pipelines.layers(kind))
    total = torch.zeros((), dtype=torch.float64)
    for input, target, share in zip(*pipelines.batch(kind, sizes), shares, strict=True):
        total = total + share * F.mse_loss(model(input), target)
    total.backward()  # type: ignore[no-untyped-call]
    return total.detach(), model


@pytest.mark.problem("run_schedule", share=0.2 / 4)
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_run_schedule_runs_gpipe(run: Runner, stages: int) -> None:
    require_trained(run, [GPIPE] * stages, [2, 2, 2, 2])


@pytest.mark.problem("run_schedule", share=0.2)
def test_run_schedule_runs_1f1b(run: Runner) -> None:
    require_trained(run, THREE_STAGES, [2, 2, 2, 2])
    require_trained(run, THREE_STAGES[1:], [2, 2, 2, 2])


@pytest.mark.problem("run_schedule", share=0.15)
def test_run_schedule_weighs_micro_batches_by_their_samples(run: Runner) -> None:
    require_trained(run, THREE_STAGES[1:], [3, 3, 3, 1])


@pytest.mark.problem("run_schedule", share=0.1)
def test_run_schedule_runs_any_valid_schedule(run: Runner) -> None:
    require_trained(run, [ONE_AT_A_TIME] * 2, [2, 2, 2, 2])
    require_trained(run, [GPIPE, ONE_AT_A_TIME], [2, 2, 2, 2])
    backwards = "F3 F1 F0 F2 B2 B3 B0 B1"
    require_trained(run, [backwards] * 3, [2, 2, 2, 2])


@pytest.mark.problem("run_schedule", share=0.05)
def test_run_schedule_adds_to_the_gradients_that_are_there(run: Runner) -> None:
    require_trained(run, [GPIPE] * 2, [2, 2, 2, 2], before=0.5)


@pytest.mark.problem("run_schedule", share=0.1)
def test_run_schedule_with_few_micro_batches_token_ids_and_in_a_sub_group(run: Runner) -> None:
    require_trained(run, ["F0 F1 B0 B1"] * 3 + ["F0 B0 F1 B1"], [2, 1])
    require_trained(run, THREE_STAGES, [2, 2, 2, 1], "tokens")
    require_trained(run, THREE_STAGES, [2, 2, 2, 2], "frozen")
    require_trained(run, THREE_STAGES[1:], [2, 2, 2, 1], group=(1, 3))


@pytest.mark.problem("run_schedule", share=0.1)
def test_run_schedule_communicates_while_it_computes(run: Runner) -> None:
    m = 8
    gpipe = " ".join(f"{kind}{i}" for kind in "FB" for i in range(m))
    done = require_trained(run, [gpipe] * 4, [4] * m)
    require_point_to_point(done, "run_schedule")
    shortest = (m + 3) * 3.0
    what = "run_schedule of GPipe, 4 stages, 8 micro-batches"
    require_makespan(done, what, 0.8, shortest + 6 * 0.8, why_nothing_overlaps(done))
    sent = sum(op.nbytes for op in done.trace.operations if op.name == "send" and op.nbytes > 256)
    enough = 2 * sum(4 * m * pipelines.TOKENS * width * 8 for width in pipelines.WIDTHS[1:4])
    if sent > 1.1 * enough:
        fail(f"{what}: {sent} bytes are sent; {enough} are enough.")


@pytest.mark.problem("run_schedule", share=0.1)
def test_run_schedule_keeps_no_activations_that_it_does_not_need(run: Runner) -> None:
    done = require_trained(run, THREE_STAGES, [2, 2, 2, 2])
    for stage, peak in enumerate((3, 2, 1)):
        if stage and (held := done.results[stage]["held"]) > peak + 1:
            fail(
                f"run_schedule, {THREE_STAGES[stage]}: the inputs of {held} micro-batches are in "
                f"memory at the same time, where at most {peak} are in flight."
            )
