"""Checks of problem run_schedule, with schedules and stages of the grader's own."""

from __future__ import annotations

from autograder.checks.test_pipeline_forward import ODD_NET
from autograder.collective import give
from autograder.cost import worst
from autograder.grading import Credit
from autograder.judge import Judge
from autograder.pipeline import (
    Net,
    Ran,
    Schedule,
    Training,
    drawn_schedule,
    even_net,
    gpipe,
    one_at_a_time,
    one_f_one_b,
    peaks,
    plain_net,
    require_little_held,
    require_neighbours,
    require_trained,
    score_boundaries,
    score_makespan,
    train,
)
from autograder.problem import problem

FORWARD, BACKWARD = 1.0, 2.0  # declared seconds of a stage's computations


def _gpipe(net: Net, sizes: tuple[int, ...], **more: object) -> Training:
    schedule = gpipe(len(net.stages), len(sizes))
    return Training(net, schedule, sizes, name="GPipe", **more)  # type: ignore[arg-type]


def _1f1b(net: Net, sizes: tuple[int, ...], **more: object) -> Training:
    schedule = one_f_one_b(len(net.stages), len(sizes))
    return Training(net, schedule, sizes, name="1F1B", **more)  # type: ignore[arg-type]


def _require(judge: Judge, *trainings: Training) -> list[Ran]:
    found = train(judge, "run", trainings)
    for ran in found:
        judge.note(ran.training.facts)
        require_trained(ran)
    return found


@problem("run_schedule", share="1/5")
def test_gpipe(judge: Judge) -> None:
    """GPipe on 1, 2 and 4 stages: loss and gradients as one process has them."""
    even = (2, 2, 2, 2)
    _require(judge, *(_gpipe(plain_net(p), even) for p in (2, 1, 4)))


@problem("run_schedule", share="1/5")
def test_1f1b(judge: Judge) -> None:
    """1F1B on 3 and 4 stages: loss and gradients as one process has them."""
    even = (2, 2, 2, 2, 2)
    _require(judge, *(_1f1b(plain_net(p), even) for p in (4, 3)))


@problem("run_schedule", share="3/20")
def test_uneven(judge: Judge) -> None:
    """Micro-batches of different sizes, and fewer of them than stages."""
    _require(
        judge,
        _1f1b(plain_net(3), (3, 3, 3, 1)),
        _gpipe(plain_net(3), (1, 4, 2)),
        _1f1b(plain_net(4), (2, 1)),
        _gpipe(plain_net(4), (3,)),
    )


@problem("run_schedule", share="1/10")
def test_any_schedule(judge: Judge) -> None:
    """Valid schedules that nobody would write."""
    rng = judge.seed.generator("schedules")
    sizes = (2, 2, 1, 2)
    told = "GPipe on stage 0, 1F1B on the others"

    def mixed(p: int) -> Schedule:
        return [gpipe(p, 4)[0], *one_f_one_b(p, 4)[1:]]

    drawn = [(drawn_schedule(rng, p, 4), p) for p in (3, 3, 2)]
    _require(
        judge,
        Training(plain_net(3), mixed(3), sizes, name=told),
        *(Training(plain_net(p), one, sizes, name="drawn at random") for one, p in drawn),
        Training(plain_net(2), one_at_a_time(2, 4), sizes, name="one micro-batch at a time"),
        Training(plain_net(2), mixed(2), sizes, name=told),
    )


@problem("run_schedule", share="1/10", kind="edges")
def test_edges(judge: Judge) -> None:
    """Token ids, other dtypes, tensors that are not contiguous, frozen layers; in a sub-group."""
    frozen = Net(((("frozen", 4),), (("linear", 5), ("transpose", 0)), (("linear", 3),)))
    _require(
        judge,
        _1f1b(ODD_NET, (2, 2, 1), loss="cross_entropy"),
        _gpipe(frozen, (2, 2, 1)),
        _1f1b(plain_net(2), (2, 2, 1), members=(1, 3), world_size=4),
    )


@problem("run_schedule", share="1/20", kind="edges")
def test_gradients_are_added(judge: Judge) -> None:
    """Two batches, one after another, on top of gradients that were there."""
    _require(judge, _1f1b(plain_net(2), (2, 2, 1), prior=0.5, times=2))


@problem("run_schedule", share="1/10", kind="cost")
def test_cost(judge: Judge, credit: Credit) -> None:
    """Messages arrive during computations; each is sent once, between neighbours."""
    p, m = 4, 8
    seconds = (FORWARD, BACKWARD)
    shortest = (m + p - 1) * (FORWARD + BACKWARD)
    sizes, net = (2,) * m, even_net(p)
    scores = []
    trainings = (_gpipe(net, sizes, seconds=seconds), _1f1b(net, sizes, seconds=seconds))
    for ran in _require(judge, *trainings):
        training, trace = ran.training, ran.answer.trace
        require_neighbours(training, trace)
        scores.append(score_boundaries(training, trace, both_ways=True))
        told = "a message takes hardly any time"
        scores.append(score_makespan(training, trace, 0.005, shortest, told))
        if training.name == "GPipe":
            told = "a message takes almost as long as a forward pass"
            c = 0.8 * FORWARD
            scores.append(score_makespan(training, trace, c, shortest + 2 * (p - 1) * c, told))
    give(credit, worst(*scores))


@problem("run_schedule", share="1/10", kind="cost")
def test_memory(judge: Judge) -> None:
    """No activations are kept of micro-batches that are not in flight."""
    (ran,) = _require(judge, _1f1b(plain_net(3), (2,) * 9))
    bounds = peaks(ran.training.schedule)
    require_little_held(ran.training, dict(enumerate(ran.answer.outputs)), bounds)
