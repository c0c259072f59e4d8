"""Replay in virtual time: closed forms, real runs, overlap, order, and what cannot be replayed."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings

import multirank
from multirank.modelling.activity import Activity
from multirank.modelling.fabric import Fabric
from multirank.modelling.matching import ReplayError
from multirank.modelling.programs import (
    Collective,
    Compute,
    Irecv,
    Isend,
    Recv,
    Send,
    Step,
    Wait,
    replay_programs,
)
from multirank.modelling.replay import Replay, replay
from multirank.recording.trace import Mark, Operation, Trace
from reference import collectives
from tests.multirank import algorithms
from tests.multirank.algorithms import Algorithm

LATENCY, BANDWIDTH = 20e-6, 50e9
FABRIC = Fabric("issue", LATENCY, BANDWIDTH)
SIMPLE = Fabric("simple", 1.0, 1.0)  # s bytes take 1 + s seconds
MIB = 2**20


def modelled(algorithm: Algorithm, n: int, nbytes: int, fabric: Fabric = FABRIC) -> Replay:
    return replay_programs([algorithm(rank, n, nbytes) for rank in range(n)], fabric)


def seconds(*programs: Sequence[Step], fabric: Fabric = SIMPLE) -> float:
    return replay_programs(programs, fabric).makespan


def waits(handles: Sequence[Step]) -> list[Step]:
    return [Wait(handle) for handle in handles]


def equal(expected: float) -> Any:
    return pytest.approx(expected, rel=1e-12)


# ---------------------------------------------------------------- closed forms


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8, 16, 64])
def test_algorithms_cost_what_their_closed_forms_say(n: int) -> None:
    size = n * MIB
    whole, part = FABRIC.message(size), FABRIC.message(MIB)
    assert modelled(algorithms.ring_all_reduce, n, size).makespan == equal(2 * (n - 1) * part)
    assert modelled(algorithms.unchunked_ring, n, size).makespan == equal((n - 1) * whole)
    assert modelled(algorithms.naive_all_reduce, n, size).makespan == equal(2 * (n - 1) * whole)
    depth = math.ceil(math.log2(n))
    assert modelled(algorithms.tree_broadcast, n, size).makespan == equal(depth * whole)
    assert modelled(algorithms.pairwise_all_to_all, n, size).makespan == equal((n - 1) * part)
    at_once = modelled(algorithms.pairwise_all_to_all_at_once, n, size)
    assert at_once.makespan == equal((n - 1) * part)


@pytest.mark.parametrize("n", [2, 4, 8, 16, 64])
def test_algorithms_for_powers_of_two_cost_what_their_closed_forms_say(n: int) -> None:
    size, depth = n * MIB, n.bit_length() - 1
    whole = FABRIC.message(size)
    assert modelled(algorithms.tree_all_reduce, n, size).makespan == equal(2 * depth * whole)
    assert modelled(algorithms.recursive_doubling, n, size).makespan == equal(depth * whole)
    halving = 2 * (depth * LATENCY + (n - 1) * MIB / BANDWIDTH)
    assert modelled(algorithms.rabenseifner, n, size).makespan == equal(halving)


@pytest.mark.parametrize("n", [4, 6, 8, 64])
def test_a_blocking_ring_of_odd_and_even_ranks_costs_twice_the_ring(n: int) -> None:
    ring = modelled(algorithms.ring_all_reduce, n, n * MIB)
    blocking = modelled(algorithms.blocking_ring, n, n * MIB)
    assert blocking.makespan == equal(2 * ring.makespan)


@pytest.mark.parametrize(
    ("algorithm", "ratio"),
    [
        (algorithms.naive_all_reduce, 7.25),
        (algorithms.unchunked_ring, 3.63),
        (algorithms.tree_all_reduce, 3.11),
        (algorithms.blocking_ring, 2.0),
        (algorithms.recursive_doubling, 1.55),
        (algorithms.rabenseifner, 0.94),
    ],
)
def test_all_reduces_of_64_mib_compare_with_the_ring_as_is_known(
    algorithm: Algorithm, ratio: float
) -> None:
    ring = modelled(algorithms.ring_all_reduce, 8, 64 * MIB).makespan
    assert modelled(algorithm, 8, 64 * MIB).makespan / ring == pytest.approx(ratio, rel=0.01)


def test_the_ring_reaches_almost_the_bandwidth_of_the_fabric() -> None:
    ring = modelled(algorithms.ring_all_reduce, 8, 1024 * MIB)
    bandwidth = ring.bus_bandwidth(1024 * MIB, 2 * 7 / 8)
    assert 0.99 * BANDWIDTH < bandwidth < BANDWIDTH


def test_bus_bandwidth_is_0_where_no_time_passes() -> None:
    assert replay_programs([[]], FABRIC).bus_bandwidth(MIB, 0.0) == 0.0


# ---------------------------------------------------------------- messages


def test_a_message_waits_for_a_late_receiver_and_a_late_sender() -> None:
    assert seconds([Send(1, 3)], [Compute(5), Recv(0)]) == 9
    assert seconds([Compute(5), Send(1, 3)], [Recv(0)]) == 9


def test_a_blocking_send_is_over_when_the_message_has_arrived() -> None:
    run = replay_programs([[Send(1, 3), Compute(1)], [Compute(5), Recv(0)]], SIMPLE)
    assert run.makespan == 10
    assert run.ranks[0].waiting == 9


def test_an_asynchronous_send_proceeds_while_its_rank_computes() -> None:
    send = Isend(1, 3)
    run = replay_programs([[send, Compute(10), Wait(send)], [Recv(0)]], SIMPLE)
    assert run.makespan == 10
    assert run.ranks[0].waiting == 0
    assert run.ranks[1].finished == 4


def test_a_rank_sends_one_message_at_a_time_and_receives_one_at_a_time() -> None:
    sends = [Isend(1, 3), Isend(2, 3)]
    assert seconds([*sends, *waits(sends)], [Recv(0)], [Recv(0)]) == 8
    receives = [Irecv(1), Irecv(2)]
    assert seconds([*receives, *waits(receives)], [Send(0, 3)], [Send(0, 3)]) == 8


def test_a_rank_sends_and_receives_at_the_same_time() -> None:
    def both(peer: int) -> Sequence[Step]:
        steps = [Isend(peer, 3), Irecv(peer)]
        return [*steps, *waits(steps)]

    assert seconds(both(1), both(0)) == 4


def test_a_message_that_cannot_start_lets_others_pass() -> None:
    sends = [Isend(1, 3), Isend(2, 3)]  # rank 1 is late
    run = replay_programs([[*sends], [Compute(100), Recv(0)], [Recv(0)]], SIMPLE)
    assert run.ranks[2].finished == 4
    assert run.makespan == 104


def test_a_message_that_cannot_start_lets_those_behind_it_pass_that_can() -> None:
    sends = [Isend(1, 9), Isend(2, 3), Isend(3, 3)]  # rank 2 is busy with rank 4
    receives = [Irecv(4), Irecv(0)]
    run = replay_programs(
        [[*sends], [Recv(0)], [*receives, *waits(receives)], [Recv(0)], [Send(2, 99)]], SIMPLE
    )
    assert [rank.finished for rank in run.ranks] == [0, 10, 104, 14, 100]


def test_what_was_ready_first_goes_first() -> None:
    receives = [Irecv(peer) for peer in (1, 2, 3)]
    run = replay_programs(
        [
            [*receives, *waits(receives)],
            [Send(0, 9)],
            [Compute(5), Send(0, 9)],
            [Compute(3), Send(0, 9)],
        ],
        SIMPLE,
    )
    assert [rank.finished for rank in run.ranks] == [30, 10, 30, 20]


def test_messages_of_one_sender_receiver_and_tag_arrive_in_order() -> None:
    sends: list[Step] = [Isend(1, 10), Isend(1, 1)]
    run = replay_programs([sends, [Recv(0), Compute(50), Recv(0)]], SIMPLE)
    assert [step.nbytes for step in run.critical_path] == [10, 0, 1]


def test_receives_from_one_sender_with_one_tag_are_served_in_order() -> None:
    first, second = Irecv(0), Irecv(0)
    sender: list[Step] = [Compute(1), Send(1, 3), Compute(50), Send(1, 3)]
    run = replay_programs([sender, [first, second, Wait(first)]], SIMPLE)
    assert run.ranks[1].finished == 5


def test_tags_are_told_apart() -> None:
    sends: list[Step] = [Isend(1, 10, tag=7), Isend(1, 1, tag=8)]
    run = replay_programs([sends, [Recv(0, tag=8), Recv(0, tag=7)]], SIMPLE)
    assert [rank.finished for rank in run.ranks] == [0, 13]


def test_a_receive_from_any_rank_takes_what_was_sent_first() -> None:
    run = replay_programs(
        [[Recv(), Compute(100), Recv()], [Compute(2), Send(0, 3)], [Compute(1), Send(0, 5)]],
        SIMPLE,
    )
    assert [rank.finished for rank in run.ranks] == [111, 111, 7]


def test_a_late_receive_from_any_rank_takes_what_was_sent_first() -> None:
    late: list[Step] = [Compute(10), Recv(), Recv()]
    later, sooner = [Compute(2), Send(0, 3)], [Compute(1), Send(0, 5)]
    run = replay_programs([late, later, sooner], SIMPLE)
    assert [rank.finished for rank in run.ranks] == [20, 20, 16]
    run = replay_programs([late, sooner, later], SIMPLE)
    assert [rank.finished for rank in run.ranks] == [20, 16, 20]


def test_of_messages_sent_at_once_a_receive_from_any_rank_takes_the_lower_ranks() -> None:
    sender: list[Step] = [Compute(1), Send(0, 3)]
    run = replay_programs([[Recv(), Compute(9), Recv()], sender, sender], SIMPLE)
    assert [rank.finished for rank in run.ranks] == [18, 5, 18]


def test_of_a_receive_from_any_rank_and_one_from_the_sender_the_earlier_takes_the_message() -> None:
    first, second = Irecv(), Irecv(1)
    late = [Compute(50), Send(0, 3)]
    run = replay_programs([[first, second, Wait(first)], [Send(0, 3), *late], []], SIMPLE)
    assert run.ranks[0].finished == 4
    first, second = Irecv(1), Irecv()
    run = replay_programs([[first, second, Wait(second)], [Send(0, 3)], late], SIMPLE)
    assert run.ranks[0].finished == 54


# ---------------------------------------------------------------- collectives


def test_a_collective_starts_when_its_last_member_has_come() -> None:
    programs = [[Compute(rank), Collective("all_reduce", 30)] for rank in range(3)]
    assert seconds(*programs) == equal(2 + SIMPLE.collective("all_reduce", 3, 30))


def test_an_asynchronous_collective_proceeds_while_its_ranks_compute() -> None:
    cost = SIMPLE.collective("all_reduce", 3, 30)

    def overlapped(compute: float) -> Sequence[Step]:
        collective = Collective("all_reduce", 30, async_op=True)
        return [collective, Compute(compute), Wait(collective)]

    for compute in (cost / 2, 2 * cost):
        run = replay_programs([overlapped(compute)] * 3, SIMPLE)
        assert run.makespan == equal(max(compute, cost))
        assert run.ranks[0].waiting == equal(max(cost - compute, 0))
        assert run.ranks[0].busy == equal(cost)


def test_collectives_of_the_same_ranks_run_one_after_another() -> None:
    buckets = [Collective("all_reduce", 30, async_op=True) for _ in range(3)]
    run = replay_programs([[*buckets, *waits(buckets)]] * 3, SIMPLE)
    assert run.makespan == equal(3 * SIMPLE.collective("all_reduce", 3, 30))


def test_collectives_of_different_ranks_run_at_the_same_time() -> None:
    programs = [
        [Collective("all_gather", 30, group=(rank // 2 * 2, rank // 2 * 2 + 1))]
        for rank in range(4)
    ]
    assert seconds(*programs) == equal(SIMPLE.collective("all_gather", 2, 30))


def test_a_collective_is_not_kept_waiting_by_messages_that_came_later() -> None:
    barrier = Collective("barrier", 0, group=(0, 1), async_op=True)
    sends = [Isend(2, 9) for _ in range(10)]
    run = replay_programs(
        [
            [sends[0], Compute(1), barrier, *sends[1:], Wait(barrier)],
            [Irecv(3), Compute(1), barrier, Wait(barrier)],
            [Irecv(0) for _ in range(10)],
            [Send(1, 30)],
        ],
        SIMPLE,
    )
    assert run.ranks[0].finished == 32  # as soon as rank 1's port is free
    assert run.makespan == 32 + 9 * 10


def test_messages_that_came_before_a_collective_go_first() -> None:
    collective = Collective("barrier", 0, group=(0, 1), async_op=True)
    sends = [Isend(2, 9) for _ in range(3)]
    run = replay_programs(
        [
            [*sends, Compute(1), collective, Wait(collective)],
            [Compute(1), collective, Wait(collective)],
            [Irecv(0) for _ in range(3)],
        ],
        SIMPLE,
    )
    assert run.ranks[1].finished == 31


def test_a_tree_fabric_prices_collectives_as_trees() -> None:
    tree = replace(FABRIC, algorithm="tree")
    run = replay_programs([[Collective("all_reduce", 64 * MIB)]] * 8, tree)
    assert run.makespan == equal(6 * FABRIC.message(64 * MIB))
    assert run.bus_bandwidth(64 * MIB, 2 * 7 / 8) == equal(2 * 7 / 8 * 64 * MIB / run.makespan)


# ---------------------------------------------------------------- what is told


def test_times_of_a_rank_are_told_apart() -> None:
    send = Isend(1, 9)
    run = replay_programs(
        [[Compute(2), send, Compute(3), Wait(send), Compute(1)], [Compute(4), Recv(0)]], SIMPLE
    )
    zero, one = run.ranks  # the message: 4 to 14
    assert (zero.compute, zero.waiting, zero.busy, zero.finished) == (6, 9, 10, 15)
    assert (one.compute, one.waiting, one.busy, one.finished) == (4, 10, 10, 14)
    assert run.makespan == 15


def test_a_rank_that_sends_and_receives_at_once_is_busy_once() -> None:
    steps = [Isend(1, 9), Irecv(2)]
    run = replay_programs([[*steps, *waits(steps)], [Recv(0)], [Compute(8), Send(0, 3)]], SIMPLE)
    assert run.ranks[0].busy == 12


def test_the_critical_path_names_what_determines_the_makespan() -> None:
    run = replay_programs(
        [
            [Compute(1, "short"), Send(1, 3)],
            [Compute(2, "long"), Recv(0), Compute(5, "after"), Send(2, 1)],
            [Compute(3, "idle"), Recv(1)],
        ],
        SIMPLE,
    )
    told = [(step.name, step.label, step.rank, step.ranks) for step in run.critical_path]
    assert told == [
        ("compute", "long", 1, (1,)),
        ("message", "", 1, (0, 1)),  # it was rank 1 that was late
        ("compute", "after", 1, (1,)),
        ("message", "", 1, (1, 2)),
    ]


def test_the_critical_path_goes_through_a_port_that_was_busy() -> None:
    sends = [Isend(1, 9), Isend(2, 3)]
    run = replay_programs([[*sends], [Recv(0)], [Recv(0)]], SIMPLE)
    assert [step.ranks for step in run.critical_path] == [(0, 1), (0, 2)]


@pytest.mark.parametrize("n", [1000, 1024])
def test_a_thousand_ranks_are_modelled_without_being_run(n: int) -> None:
    tree = modelled(algorithms.tree_broadcast, n, MIB)
    assert tree.makespan == equal(10 * FABRIC.message(MIB))
    barrier = modelled(algorithms.dissemination_barrier, n, 0)
    assert barrier.makespan == equal(10 * LATENCY)
    together = replay_programs([[Collective("all_reduce", MIB)]] * n, FABRIC)
    assert together.makespan == equal(FABRIC.collective("all_reduce", n, MIB))


def test_a_pipeline_of_a_thousand_stages_has_the_bubble_of_the_formula() -> None:
    stages, micro_batches = 1000, 20

    def stage(rank: int) -> Iterator[Step]:
        for _ in range(micro_batches):
            if rank > 0:
                yield Recv(rank - 1)
            yield Compute(1.0)
            if rank < stages - 1:
                yield Isend(rank + 1, 0)

    free = Fabric("free", 0.0, 1e9)
    run = replay_programs([stage(rank) for rank in range(stages)], free)
    assert run.makespan == micro_batches + stages - 1


# ---------------------------------------------------------------- invariants


@st.composite
def random_programs(draw: st.DrawFn) -> list[list[Step]]:
    """Messages, collectives and computes without a deadlock: all is begun, then waited for."""
    n = draw(st.integers(2, 5))
    programs: list[list[Step]] = [[] for _ in range(n)]
    handles: list[list[Step]] = [[] for _ in range(n)]
    for _ in range(draw(st.integers(0, 25))):
        match draw(st.sampled_from(["message", "message", "collective", "compute"])):
            case "message":
                sender, receiver = draw(st.permutations(range(n)))[:2]
                nbytes, tag = draw(st.integers(0, 5)), draw(st.integers(0, 1))
                handles[sender].append(Isend(receiver, nbytes, tag))
                handles[receiver].append(Irecv(sender, tag))
                for rank in (sender, receiver):
                    programs[rank].append(handles[rank][-1])
            case "collective":
                group = tuple(sorted(draw(st.permutations(range(n)))[: draw(st.integers(1, n))]))
                nbytes = draw(st.integers(0, 5))
                for rank in group:
                    handles[rank].append(Collective("all_gather", nbytes, group, async_op=True))
                    programs[rank].append(handles[rank][-1])
            case _:
                rank = draw(st.integers(0, n - 1))
                programs[rank].append(Compute(draw(st.integers(0, 5))))
    for rank in range(n):
        programs[rank] += [Wait(handle) for handle in draw(st.permutations(handles[rank]))]
    return programs


def recorded(programs: Sequence[Sequence[Step]], clock: Callable[[], float]) -> Trace:
    """The trace that the programs would leave, at times that `clock` gives in order."""
    trace = Trace()
    everybody = tuple(range(len(programs)))
    for rank, program in enumerate(programs):
        begun: dict[Step, Operation] = {}
        for step in program:
            if isinstance(step, Wait):
                begun[step.step].waited = clock()
            elif isinstance(step, Compute):
                trace.marks.append(Mark(rank, "compute", step.label, clock(), step.seconds))
            elif isinstance(step, Collective):
                begun[step] = operation(rank, step.name, None, step.nbytes, clock())
                begun[step].group = step.group or everybody
            elif isinstance(step, Isend):
                begun[step] = operation(rank, "send", step.peer, step.nbytes, clock())
                begun[step].group, begun[step].tag = everybody, step.tag
            elif isinstance(step, Irecv):
                begun[step] = operation(rank, "recv", step.peer, 0, clock())
                begun[step].group, begun[step].tag = everybody, step.tag
        trace.operations += begun.values()
    return trace


def operation(
    rank: int,
    name: str,
    peer: int | None = None,
    nbytes: int = 3,
    issued: float = 1.0,
    waited: float | None = None,
    group: tuple[int, ...] = (0, 1),
    tag: int | None = 0,
) -> Operation:
    return Operation(
        rank,
        1,
        name,
        group,
        peer,
        tag,
        None,
        "uint8",
        (nbytes,),
        nbytes,
        issued,
        "prog.py",
        7,
        waited,
    )


def ticking(seed: int) -> Callable[[], float]:
    generator = random.Random(seed)
    now = [0.0]

    def clock() -> float:
        now[0] += generator.choice([1e-6, 1.0, 1e3])
        return now[0]

    return clock


def overlaps(activities: Sequence[Activity]) -> bool:
    spans = sorted((step.start, step.end) for step in activities if step.end > step.start)
    return any(first[1] > second[0] for first, second in itertools.pairwise(spans))


@settings(max_examples=60, deadline=None)
@given(random_programs())
def test_whatever_ranks_do_the_model_keeps_its_promises(programs: list[list[Step]]) -> None:
    run = replay(recorded(programs, ticking(0)), SIMPLE, world_size=len(programs))
    # The path is one chain from the beginning to the end.
    times = [0.0, *(step.end for step in run.critical_path)]
    assert [step.start for step in run.critical_path] == times[:-1]
    assert times[-1] == run.makespan
    assert all(operation.completed is not None for operation in run.trace.operations)
    # A port carries one thing at a time, and a rank computes one thing at a time.
    transfers = [step for step in run.activities if step.name != "compute"]
    for rank in range(len(programs)):
        sent = [step for step in transfers if rank in step.ranks[: _senders(step)]]
        received = [step for step in transfers if rank in step.ranks[_senders(step) - 1 :]]
        received = [step for step in received if step.name != "message" or step.ranks[1] == rank]
        computes = [step for step in run.activities if step.name == "compute"]
        assert not overlaps(sent)
        assert not overlaps(received)
        assert not overlaps([step for step in computes if step.rank == rank])
    # Both front ends tell the same, whatever the recorded times.
    again = replay(recorded(programs, ticking(1)), SIMPLE, world_size=len(programs))
    assert again == run
    direct = replay_programs(programs, SIMPLE)
    assert (direct.makespan, direct.ranks) == (run.makespan, run.ranks)


def _senders(step: Activity) -> int:
    return 1 if step.name == "message" else len(step.ranks)


# ---------------------------------------------------------------- real runs


def run_reference(name: str, per_rank: int) -> None:
    """One of the reference's collectives on float32 tensors: S = 4 * n * per_rank bytes."""
    n = dist.get_world_size()
    whole, part = torch.zeros(n * per_rank), torch.zeros(per_rank)
    list_on_root = list(whole.chunk(n)) if dist.get_rank() == 0 else None
    match name:
        case "broadcast":
            collectives.broadcast(whole, 0)
        case "reduce":
            collectives.reduce(whole, 0)
        case "scatter":
            collectives.scatter(part, list_on_root)
        case "gather":
            collectives.gather(part, list_on_root)
        case "all_gather":
            collectives.all_gather(whole, part)
        case "reduce_scatter":
            collectives.reduce_scatter(part, whole)
        case "all_reduce":
            collectives.all_reduce(whole)
        case "all_to_all":
            collectives.all_to_all(torch.empty_like(whole), whole)
        case "barrier":
            collectives.barrier()


def run_built_in(name: str, per_rank: int) -> None:
    """The same with torch.distributed's own."""
    n = dist.get_world_size()
    whole, part = torch.zeros(n * per_rank), torch.zeros(per_rank)
    list_on_root = list(whole.chunk(n)) if dist.get_rank() == 0 else None
    match name:
        case "broadcast":
            dist.broadcast(whole, 0)
        case "reduce":
            dist.reduce(whole, 0)
        case "scatter":
            dist.scatter(part, list_on_root)
        case "gather":
            dist.gather(part, list_on_root)
        case "all_gather":
            dist.all_gather_into_tensor(whole, part)
        case "reduce_scatter":
            dist.reduce_scatter_tensor(part, whole)
        case "all_reduce":
            dist.all_reduce(whole)
        case "all_to_all":
            dist.all_to_all_single(torch.empty_like(whole), whole)
        case "barrier":
            dist.barrier()


@pytest.fixture(scope="module")
def four() -> Iterator[multirank.World]:
    with multirank.World(4, groups={"odd": [1, 3]}) as world:
        yield world


COSTS = {  # at 4 ranks: messages one after another, and the part of S that each carries
    "broadcast": (2, 1),
    "reduce": (2, 1),
    "scatter": (3, 1 / 4),
    "gather": (3, 1 / 4),
    "all_gather": (3, 1 / 4),
    "reduce_scatter": (3, 1 / 4),
    "all_reduce": (6, 1 / 4),
    "all_to_all": (3, 1 / 4),
}


@pytest.mark.parametrize("name", COSTS)
def test_a_run_of_the_reference_costs_what_its_algorithm_does(
    four: multirank.World, name: str
) -> None:
    trace = four.call(run_reference, name, 10_000).trace
    messages, share = COSTS[name]
    for fabric in (FABRIC, SIMPLE):
        expected = messages * fabric.message(160_000 * share)
        assert replay(trace, fabric).makespan == equal(expected)


def test_the_reference_barrier_costs_two_rounds_of_one_byte(four: multirank.World) -> None:
    trace = four.call(run_reference, "barrier", 0).trace
    assert replay(trace, FABRIC).makespan == equal(2 * FABRIC.message(1))


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize("name", [*COSTS, "barrier"])
def test_a_run_of_a_built_in_collective_costs_its_price(
    four: multirank.World, name: str, algorithm: Any
) -> None:
    trace = four.call(run_built_in, name, 10_000).trace
    fabric = replace(FABRIC, algorithm=algorithm)
    nbytes = 0 if name == "barrier" else 160_000
    assert replay(trace, fabric).makespan == equal(fabric.collective(name, 4, nbytes))


def in_two_groups() -> None:
    odd = dist.new_group([1, 3])
    pair = dist.new_group([0, 2])
    mine = odd if dist.get_rank() % 2 else pair
    dist.all_reduce(torch.zeros(1000), group=mine)
    dist.barrier()
    collectives.all_reduce(torch.zeros(1000), group=mine)


def test_groups_of_a_run_communicate_at_the_same_time_and_cost_nothing_to_make(
    four: multirank.World,
) -> None:
    run = replay(four.call(in_two_groups).trace, FABRIC)
    pair = FABRIC.collective("all_reduce", 2, 4000)
    assert run.makespan == equal(2 * pair + FABRIC.collective("barrier", 4, 0))


def training_step(overlap: bool, most: float) -> None:
    """Two buckets; `most` is how long ranks sleep at random places."""

    def pause() -> None:
        time.sleep(random.uniform(0, most))

    buckets = [torch.zeros(50_000) for _ in range(2)]
    works = []
    for bucket in buckets:
        multirank.compute("backward", 10e-6)
        pause()
        work = dist.all_reduce(bucket, async_op=True)
        assert work is not None
        works.append(work)
        if not overlap:
            pause()
            work.wait()
    for work in works:
        work.wait()
    pause()
    multirank.compute("optimizer", 5e-6)
    right, left = (dist.get_rank() + 1) % 4, (dist.get_rank() - 1) % 4
    receive = dist.irecv(torch.zeros(1000), left)
    pause()
    send = dist.isend(torch.zeros(1000), right)
    for work in (send, receive):
        assert work is not None
        work.wait()


def test_a_run_that_overlaps_is_faster_by_what_it_hides(four: multirank.World) -> None:
    cost = FABRIC.collective("all_reduce", 4, 200_000)
    message = FABRIC.message(4000)
    serial = replay(four.call(training_step, False, 0.0).trace, FABRIC)
    overlapped = replay(four.call(training_step, True, 0.0).trace, FABRIC)
    assert serial.makespan == equal(2 * (10e-6 + cost) + 5e-6 + message)
    assert overlapped.makespan == equal(10e-6 + 2 * cost + 5e-6 + message)
    assert overlapped.ranks[3].waiting == equal(2 * cost - 10e-6 + message)
    assert [step.name for step in overlapped.critical_path] == [
        *("compute", "all_reduce", "all_reduce", "compute", "message")
    ]


def test_runs_that_take_their_time_differently_replay_identically(four: multirank.World) -> None:
    first, second = (four.call(training_step, True, 0.02).trace for _ in range(2))
    assert first != second
    one, two = replay(first, FABRIC), replay(second, FABRIC)
    for operation, other in zip(one.trace.operations, two.trace.operations, strict=True):
        assert replace(operation, id=0) == replace(other, id=0)  # ids count on through a world
    assert replace(one, trace=Trace()) == replace(two, trace=Trace())


def test_a_replay_names_the_lines_of_the_program_and_tells_modelled_times(
    four: multirank.World,
) -> None:
    trace = four.call(run_reference, "all_reduce", 10_000).trace
    before = [replace(operation) for operation in trace.operations]
    run = replay(trace, FABRIC)
    source = collectives.__file__
    assert len(run.critical_path) == 6
    assert all(step.file == source and step.line > 0 for step in run.critical_path)
    assert trace.operations == before  # it was not touched
    told = run.trace.operations
    for rank in range(4):
        lines = [(o.id, o.name, o.line) for o in trace.of_rank(rank)]
        assert [(o.id, o.name, o.line) for o in run.trace.of_rank(rank)] == lines
    assert min(o.issued for o in told) == 0
    assert max(o.completed or 0 for o in told) == equal(run.makespan)
    assert all(o.waited is not None and o.issued <= o.waited for o in told)
    assert len(run.activities) == 4 * 6
    assert all(len(step.ranks) == 2 and step.nbytes == 40_000 for step in run.activities)


def marked() -> None:
    with multirank.span("all"):
        multirank.compute("work", 2.0)
        multirank.mark("here")


def test_marks_have_modelled_times_and_take_none(four: multirank.World) -> None:
    run = replay(four.call(marked).trace, FABRIC)
    told = [(mark.kind, mark.label, mark.time) for mark in run.trace.marks if mark.rank == 3]
    assert told == [
        ("begin", "all", 0.0),
        ("compute", "work", 0.0),
        ("mark", "here", 2.0),
        ("end", "all", 2.0),
    ]
    assert run.makespan == 2


def one_by_one() -> None:
    """Everybody sends to rank 0, which takes what comes."""
    if dist.get_rank() == 0:
        for _ in range(3):
            dist.recv(torch.zeros(1000))
    else:
        dist.send(torch.zeros(1000), 0)


def test_a_run_that_receives_from_any_rank_is_replayed(four: multirank.World) -> None:
    run = replay(four.call(one_by_one).trace, FABRIC)
    assert run.makespan == equal(3 * FABRIC.message(4000))


# ---------------------------------------------------------------- what cannot be replayed


def refusal(*programs: Sequence[Step]) -> str:
    with pytest.raises(ReplayError) as caught:
        replay_programs(programs, SIMPLE)
    return str(caught.value)


def refusal_of(*operations: Operation, **kwargs: Any) -> str:
    with pytest.raises(ReplayError) as caught:
        replay(Trace(list(operations), **kwargs), SIMPLE)
    return str(caught.value)


def test_a_deadlock_names_every_operation_in_it() -> None:
    assert refusal_of(
        operation(0, "send", 1, issued=1.0, waited=2.0),
        operation(1, "send", 0, issued=1.0, waited=2.0),
    ) == (
        "the replay does not come to its end: operations have no counterpart\n"
        "  rank 0: send to rank 1 (prog.py:7), and waits there\n"
        "  rank 1: send to rank 0 (prog.py:7), and waits there"
    )


def test_an_operation_without_counterpart_is_named_though_nobody_waits() -> None:
    text = refusal([Isend(1, 3, tag=5)], [Compute(1)])
    assert text.endswith("counterpart\n  rank 0: send to rank 1, tag 5")


def test_an_operation_in_another_group_is_no_counterpart() -> None:
    send = operation(0, "send", 1, group=(0, 1))
    text = refusal_of(send, operation(1, "recv", 0, group=(0, 1, 2)))
    assert "rank 0: send to rank 1 (prog.py:7), in the group [0, 1]" in text
    assert "rank 1: recv from rank 0 (prog.py:7)" in text


def test_groups_of_the_same_ranks_are_told_apart_by_name() -> None:
    send, receive = operation(0, "send", 1), operation(1, "recv", 0)
    send.group_name, receive.group_name = "default", "mine"
    text = refusal_of(send, receive)
    assert "rank 0: send to rank 1 (prog.py:7), in the group [0, 1] named 'default'" in text
    assert "rank 1: recv from rank 0 (prog.py:7), in the group [0, 1] named 'mine'" in text


def test_a_collective_that_some_do_not_call_names_them() -> None:
    one, two = Collective("all_reduce", 8), Collective("barrier", 0)
    text = refusal([one, two], [Collective("all_reduce", 8)], [Collective("all_reduce", 8)])
    assert text.endswith("rank 0: barrier, not called by [1, 2], and waits there")


def test_collectives_in_different_order_are_named() -> None:
    text = refusal([Collective("all_reduce", 8)], [Collective("all_gather", 8)])
    assert text == (
        "collective 1 of the group [0, 1] is not the same everywhere: rank 0: all_reduce, but "
        "rank 1: all_gather"
    )


def test_collectives_with_different_roots_are_named() -> None:
    text = refusal_of(operation(0, "broadcast", 0), operation(1, "broadcast", 1))
    assert "broadcast with root rank 0 (prog.py:7), but rank 1: broadcast with root" in text


def test_a_deadlock_after_a_receive_from_any_rank_says_what_may_be_the_reason() -> None:
    """In the run rank 2 was first, in virtual time rank 1 is."""
    others: list[Step] = [Send(0, 1), Recv(0)]
    text = refusal([Recv(), Send(2, 1), Recv(), Send(1, 1)], others, others)
    assert "rank 2: send to rank 0, and waits there" in text
    assert "takes what was sent first in virtual time" in text


def test_many_operations_without_counterpart_are_counted() -> None:
    text = refusal([Isend(1, 1) for _ in range(100)], [])
    assert len(text.splitlines()) == 12
    assert text.endswith("and 90 more")


def test_a_trace_that_is_not_whole_is_refused() -> None:
    assert "was cut off" in refusal_of(truncated=True)
    assert "is damaged" in refusal_of(damaged=True)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, 1e30])
def test_senseless_compute_is_refused(bad: float) -> None:
    text = refusal([Compute(bad, "free lunch")])
    assert f"rank 0 declares {bad} s of compute ('free lunch')" in text


@pytest.mark.parametrize(
    ("senseless", "why"),
    [
        (operation(0, "send", 5), "rank 0: send to rank 5 (prog.py:7): the peer is not in"),
        (operation(0, "send", None), "the peer is not in the group [0, 1]"),
        (operation(2, "send", 1), "rank 2: send to rank 1 (prog.py:7): the rank is not in"),
        (operation(0, "barrier", group=(0, 0)), "the group [0, 0] must hold different ranks"),
        (operation(0, "send", 1, nbytes=-1), "rank 0: send to rank 1 (prog.py:7) has -1 bytes"),
        (operation(0, "send", 1, nbytes=10**400), "bytes"),
        (operation(0, "teleport", 1), "the model knows no such operation"),
        (operation(0, "recv", 1, issued=2.0, waited=1.0), "waited for twice, or before it is"),
        (operation(0, "recv", 1, issued=math.nan, waited=1.0), "counterpart"),
    ],
)
def test_a_senseless_operation_is_refused(senseless: Operation, why: str) -> None:
    assert why in refusal_of(senseless)


small = st.integers(-1, 3)
times = st.one_of(st.floats(), st.integers(0, 5).map(float))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.builds(
            Operation,
            rank=st.integers(0, 2),
            id=small,
            name=st.sampled_from(
                ["send", "recv", "all_reduce", "gather", "barrier", "new_group", ""]
            ),
            group=st.sampled_from([(0, 1, 2), (0, 1), (2, 1), (1,), (), (0, 0), (0, 7), (-1, 0)]),
            peer=st.none() | small,
            tag=st.none() | st.integers(0, 1),
            reduce_op=st.none(),
            dtype=st.none(),
            shape=st.just(()),
            nbytes=st.integers(-1, 3) | st.integers(),
            issued=times,
            file=st.just(""),
            line=small,
            waited=st.none() | times,
        ),
        max_size=8,
    ),
    st.lists(
        st.builds(
            Mark,
            rank=st.integers(0, 2),
            kind=st.sampled_from(["compute", "begin", "?"]),
            label=st.just(""),
            time=times,
            seconds=st.floats(),
        ),
        max_size=3,
    ),
)
def test_a_trace_that_lies_gives_a_replay_or_a_refusal(
    operations: list[Operation], marks: list[Mark]
) -> None:
    with contextlib.suppress(ReplayError):
        assert math.isfinite(replay(Trace(operations, marks), SIMPLE, world_size=3).makespan)


def test_ranks_outside_the_world_are_refused() -> None:
    with pytest.raises(
        ReplayError, match=r"the trace has ranks \[0, 1\]; they must be from 0 to 0"
    ):
        replay(Trace([operation(0, "send", 1)]), SIMPLE, world_size=1)


def test_a_program_can_wait_only_for_what_it_has_begun() -> None:
    assert "rank 0 waits for Irecv(peer=1, tag=0), which it has not begun" in refusal(
        [Wait(Irecv(1))], []
    )


def test_a_program_that_yields_another_program_is_refused() -> None:
    inner = iter([Compute(1)])
    assert "in its program, which is no step" in refusal([inner])  # type: ignore[list-item]


def test_ranks_that_do_nothing_count() -> None:
    run = replay(Trace(), SIMPLE, world_size=3)
    assert (run.makespan, len(run.ranks), run.critical_path) == (0.0, 3, ())
    assert replay(Trace(), SIMPLE).ranks == ()


# ---------------------------------------------------------------- speed


def test_100_000_operations_are_replayed_within_2_seconds() -> None:
    trace, group = Trace(), tuple(range(8))
    for rank in range(8):
        clock = ticking(rank)
        for _ in range(6250):
            send = operation(rank, "send", (rank + 1) % 8, issued=clock(), group=group)
            receive = operation(rank, "recv", (rank - 1) % 8, issued=clock(), group=group)
            send.waited, receive.waited = clock(), clock()
            trace.operations += [send, receive]
    began = time.process_time()
    run = replay(trace, SIMPLE)
    assert time.process_time() - began < 2
    assert run.makespan == 6250 * 4
