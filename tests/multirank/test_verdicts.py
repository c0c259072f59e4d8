"""Which programs are ended with a verdict, what it says and how soon; and which never are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

import multirank
from multirank import Ending, Run, World, context
from multirank.proving.dependence import indispensable
from multirank.proving.verdict import WIDTH
from tests.multirank import hangs, honest
from tests.multirank.hangs import HANGS, MISFITS, Hang, Misfit

SOON = 1.0  # seconds from the moment that the last rank blocks


def ends(
    program: Callable[..., Any], size: int, *, process_group: bool = True, **options: Any
) -> tuple[Run, float]:
    """The run, and how long after the last rank had blocked it ended."""
    groups = {
        name: [rank for rank in ranks if rank < size]
        for name, ranks in hangs.GROUPS.items()
        if process_group and min(ranks) < size
    }
    with World(size, groups=groups, process_group=process_group) as world:
        run = world.call(program, check=False, **{"timeout": 15, **options})
        ended = time.monotonic()
    blocked = [op.waited for rank in range(size) for op in run.trace.pending(rank) if op.waited]
    return run, ended - max(blocked, default=ended)


def is_soon(seconds: float) -> bool:
    """Whether a verdict came in time; a machine that does several things gets more."""
    busy = max(1.0, 2 * os.getloadavg()[0] / (os.cpu_count() or 1))
    return seconds < SOON * busy


def assert_named(run: Run, expected: dict[int, set[int]]) -> None:
    """The verdict names these ranks, and each of them with its lines."""
    assert run.verdict is not None, run.story
    assert set(run.verdict.ranks) == set(expected), run.story
    for line in {line for lines in expected.values() for line in lines}:
        assert f"(hangs.py:{line})" in run.story, run.story


@pytest.mark.parametrize("hang", HANGS, ids=lambda hang: hang.program.__name__)
def test_a_hang_is_proven_and_explained(hang: Hang) -> None:
    run, latency = ends(hang.program, hang.size, process_group=hang.process_group)
    assert run.verdict is not None, run.story
    assert run.verdict.kind == "deadlock", run.story
    assert_named(run, hangs.named(hang.program))
    _, _, cause = run.story.partition("The usual cause:")
    if hang.cause:
        assert re.search(hang.cause, " ".join(cause.split())), run.story
    assert is_soon(latency), run.story
    assert run.seconds < 10


@pytest.mark.parametrize("rank", [1, 0])
@pytest.mark.parametrize("collective", hangs.COLLECTIVES, ids=lambda one: one.__name__)
def test_a_rank_that_does_not_come_to_a_collective_is_named(
    collective: Callable[[], Any], rank: int
) -> None:
    run, latency = ends(hangs.missing(collective, rank), 3)
    assert run.verdict is not None, run.story
    assert run.verdict.kind == "deadlock"
    assert set(run.verdict.ranks) <= {0, 1, 2} - {rank}
    assert f"(hangs.py:{hangs.line_of(collective)})" in run.story
    assert f"rank {rank} has finished and never entered it" in " ".join(run.story.split())
    assert "a branch on the rank" in run.story
    assert is_soon(latency)


@pytest.mark.parametrize("misfit", MISFITS, ids=lambda misfit: misfit.program.__name__)
def test_operations_that_do_not_fit_are_named(misfit: Misfit) -> None:
    run, _ = ends(misfit.program, misfit.size)
    assert run.verdict is not None, run.story
    assert run.verdict.kind == "mismatch", run.story
    assert f"do not agree on the {misfit.what}" in run.story
    if expected := hangs.named(misfit.program):
        assert_named(run, expected)
    assert run.seconds < 5


def test_a_message_that_does_not_fit_outranks_the_crash_that_it_causes() -> None:
    def program() -> None:
        if dist.get_rank() == 0:
            dist.send(torch.ones(1 << 20), 1)
        else:
            dist.recv(torch.ones(4), 0)
            os.abort()

    run, _ = ends(program, 2)
    assert run.story.startswith("Mismatch: ranks 0 and 1 do not agree on the size")


def test_garbage_that_arrives_without_an_error_is_a_mismatch() -> None:
    def program() -> float:
        tensor = torch.zeros(8)
        if dist.get_rank() == 0:
            dist.send(torch.ones(4), 1)
        else:
            dist.recv(tensor, 0)
        return tensor.sum().item()

    run, _ = ends(program, 2)
    assert not run.ok
    assert run.story.startswith("Mismatch:")


def test_everybody_who_calls_the_same_is_told_in_one_line() -> None:
    run, _ = ends(hangs.another_size, 3)
    line = hangs.line_of(hangs.another_size, "all_reduce")
    assert f"  ranks 0 and 1 call all_reduce (hangs.py:{line}), float32[8], SUM" in run.story
    assert f"  rank 2 calls all_reduce (hangs.py:{line}), float32[5], SUM" in run.story


def test_a_story_fits_into_a_terminal() -> None:
    for program in (hangs.missing(hangs.all_reduce, 1), hangs.a_cycle_of_a_send_and_receives):
        run, _ = ends(program, 3)
        assert all(len(line) <= WIDTH for line in run.story.splitlines()), run.story


# ---------------------------------------------------------------- peers that fail


def test_a_peer_that_raised_is_the_story_and_those_who_wait_for_it_are_not() -> None:
    def program() -> None:
        if dist.get_rank() == 1:
            raise ValueError("no such file")
        dist.barrier()

    run, _ = ends(program, 3)
    assert run.verdict is None
    assert [rank.ending for rank in run.ranks] == [Ending.STOPPED, Ending.RAISED, Ending.STOPPED]
    assert run.seconds < 2


def test_a_peer_that_died_is_the_story_and_those_who_wait_for_it_are_not() -> None:
    def program() -> None:
        if dist.get_rank() == 1:
            os._exit(3)
        dist.recv(torch.ones(1), 1)

    run, _ = ends(program, 3)
    assert run.verdict is None
    assert run.ranks[1].ending is Ending.DIED
    assert run.seconds < 2


# ---------------------------------------------------------------- what is no verdict


@pytest.mark.parametrize(
    ("program", "size"), honest.HONEST, ids=[one.__name__ for one, _ in honest.HONEST]
)
def test_a_program_that_comes_to_its_end_is_let(program: Callable[[], None], size: int) -> None:
    run = multirank.run(program, size, timeout=60, check=False)
    assert run.ok, run.story


@pytest.mark.parametrize(
    ("program", "size"), honest.ORDINARY, ids=[one.__name__ for one, _ in honest.ORDINARY]
)
def test_a_program_with_groups_of_its_own_is_let(program: Callable[[], None], size: int) -> None:
    run = multirank.run(program, size, timeout=60, check=False, process_group=False)
    assert run.ok, run.story


def test_who_polls_has_until_the_deadline() -> None:
    def program() -> None:
        handle = dist.irecv(torch.ones(1), 1 - dist.get_rank())
        assert handle is not None
        while not handle.is_completed():
            time.sleep(0.001)

    run = multirank.run(program, 2, timeout=1, check=False)
    assert run.verdict is None
    assert [rank.ending for rank in run.ranks] == [Ending.TIMED_OUT] * 2
    assert all("in program" in rank.stack for rank in run.ranks)


def test_an_endless_loop_has_until_the_deadline_and_so_have_those_who_wait_for_it() -> None:
    def program() -> None:
        while dist.get_rank() == 1:
            pass
        dist.barrier()

    run = multirank.run(program, 3, timeout=1, check=False)
    assert run.verdict is None
    assert [rank.ending for rank in run.ranks] == [Ending.TIMED_OUT] * 3


def test_a_message_may_be_received_in_the_next_call() -> None:
    def first() -> None:
        if dist.get_rank() == 0:
            context().state["sent"] = dist.isend(torch.full((2,), 5.0), 1)

    def second() -> list[float]:
        tensor = torch.zeros(2)
        if dist.get_rank() == 0:
            time.sleep(0.5)
            context().state.pop("sent").wait()
        else:
            dist.recv(tensor, 0)
        return tensor.tolist()

    with World(2) as world:
        assert world.call(first).ok
        assert world.call(second).results[1] == [5.0, 5.0]
        assert world.call(dist.barrier).ok


def test_a_hang_in_a_later_call_is_proven_too() -> None:
    with World(3) as world:
        for _ in range(3):
            assert world.call(dist.barrier).ok
        run = world.call(hangs.a_ring_of_receives, check=False, timeout=15)
    assert_named(run, hangs.named(hangs.a_ring_of_receives))


def test_a_hang_is_proven_while_other_ranks_communicate_without_end() -> None:
    def program() -> None:
        r = dist.get_rank()
        if r == 0:
            dist.recv(torch.ones(1), 1)
        while r >= 2:
            dist.send(torch.ones(1), 5 - r) if r == 2 else dist.recv(torch.ones(1), 5 - r)

    started = time.monotonic()
    run = multirank.run(program, 4, timeout=15, check=False)
    assert run.verdict is not None
    assert run.verdict.ranks == (0,)
    assert is_soon((time.monotonic() - started) / 2)


@pytest.mark.parametrize("records", range(40, 46))
def test_nothing_is_claimed_of_a_rank_whose_record_is_full(
    monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    """After it nobody knows what the rank does; it may end with a wait."""
    monkeypatch.setattr("multirank.recording.trace.MOST_RECORDS", records)

    def program() -> None:
        r = dist.get_rank()
        for _ in range(4 * r):
            multirank.mark("so that rank 1 is cut an operation earlier")
        for _ in range(30):
            dist.send(torch.ones(1), 1) if r == 0 else dist.recv(torch.ones(1), 0)
        if r == 0:
            time.sleep(0.5)

    run = multirank.run(program, 2, timeout=20, check=False)
    assert run.ok, run.story
    assert run.trace.truncated


# ---------------------------------------------------------------- by chance


@pytest.fixture
def busy() -> Iterator[None]:
    """Two endless loops beside the test."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


def alarms(seeds: range, rounds: int) -> list[str]:
    """The stories of random correct programs that did not come to their end."""
    found = []
    for size in (2, 3, 4):
        world = World(size)
        for seed in seeds[size - 2 :: 3]:
            run = world.call(honest.random_program, seed, rounds, timeout=60, check=False)
            if not run.ok:
                found.append(f"seed {seed} on {size} ranks:\n{run.story}")
                world = World(size)
            elif run.warnings:
                found.append(f"seed {seed} on {size} ranks: {run.warnings}")
        world.close()
    return found


@pytest.mark.usefixtures("busy")
def test_no_false_alarm_in_some_random_programs() -> None:
    assert alarms(range(10), 12) == []


@pytest.mark.slow
@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("programs", [40, pytest.param(200, marks=pytest.mark.nightly)])
def test_no_false_alarm_in_many_random_programs(programs: int) -> None:
    assert alarms(range(100, 100 + programs), 12) == []


# ---------------------------------------------------------------- what gloo waits for


def collective(name: str, root: int, elements: int) -> None:
    r, n = dist.get_rank(), dist.get_world_size()
    tensor, whole = torch.ones(elements), torch.ones(elements * n)
    parts = list(whole.chunk(n)) if r == root else None
    if name == "broadcast":
        dist.broadcast(tensor, root)
    elif name == "reduce":
        dist.reduce(tensor, root)
    elif name == "gather":
        dist.gather(tensor, parts, dst=root)
    elif name == "scatter":
        dist.scatter(tensor, parts, src=root)
    elif name == "all_reduce":
        dist.all_reduce(tensor)
    elif name == "all_gather":
        dist.all_gather_into_tensor(whole, tensor)
    elif name == "reduce_scatter":
        dist.reduce_scatter_tensor(tensor, whole)
    elif name == "all_to_all":
        splits = [0 if abs(r - other) == 2 else elements for other in range(n)]
        dist.all_to_all_single(torch.ones(sum(splits)), torch.ones(sum(splits)), splits, splits)
    elif name == "barrier":
        dist.barrier()


def left_early(name: str, root: int, elements: int, late: list[int], late_by: float) -> list[bool]:
    """Whether this rank has left the collective before the late one came; for each of `late`."""
    result = []
    for late_rank in late:
        entries = [torch.zeros(1, dtype=torch.float64) for _ in range(dist.get_world_size())]
        time.sleep(late_by if dist.get_rank() == late_rank else 0)
        entered = torch.tensor([time.monotonic()], dtype=torch.float64)
        collective(name, root, elements)
        left = time.monotonic()
        dist.all_gather(entries, entered)
        result.append(left < entries[late_rank].item())
    return result


ROOTED = ("broadcast", "reduce", "gather", "scatter")
OTHERS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")


def assert_as_in_gloo(
    name: str, root: int, elements: int, late: list[int], late_by: float = 0.25
) -> None:
    run = multirank.run(left_early, 5, name, root, elements, late, late_by)
    for rank, left in enumerate(run.results):
        operations = [op for op in run.trace.of_rank(rank) if op.name == name]
        operations = operations[::2] if name == "all_gather" else operations
        for late_rank, operation, has_left in zip(late, operations, left, strict=True):
            if rank == late_rank:
                continue
            if late_rank in indispensable(operation):
                assert not has_left, (rank, late_rank)
            elif (name, elements) == ("reduce", 12):
                continue  # less is known than could be
            elif not has_left and late_by < 1:  # on a busy machine nobody is quick
                return assert_as_in_gloo(name, root, elements, late, late_by=2.0)
            else:
                assert has_left, (rank, late_rank)


@pytest.mark.parametrize(
    ("name", "elements", "late"),
    [
        *((name, 500, [1, 3]) for name in (*ROOTED, *OTHERS)),
        *(("reduce", elements, [1, 2]) for elements in (0, 3, 12)),
        ("all_reduce", 0, [3]),
    ],
)
def test_who_waits_for_whom_in_a_collective_is_as_in_gloo(
    name: str, elements: int, late: list[int]
) -> None:
    """Without whoever is called indispensable to a rank, and only then, it does not leave."""
    assert_as_in_gloo(name, 0, elements, late)


@pytest.mark.slow
@pytest.mark.parametrize("elements", [0, 1, 3, 12, 500, 1_000_000])
@pytest.mark.parametrize(
    ("name", "root"),
    [*((name, root) for name in ROOTED for root in (0, 3)), *((name, 0) for name in OTHERS)],
)
def test_who_waits_for_whom_in_any_collective_is_as_in_gloo(
    name: str, root: int, elements: int
) -> None:
    assert_as_in_gloo(name, root, elements, list(range(5)))
