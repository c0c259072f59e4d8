"""Nothing is left behind: no process, no descriptor, no file, however a run ends."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import multirank
from multirank import World, context
from tests.multirank.processes import is_running, still_running, wait_until

ROOT = Path(__file__).resolve().parents[2]


def daemonise() -> int:
    """Starts a process that leaves its parent, its session and its signals behind; its pid."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            os.write(writing, str(os.getpid()).encode())
            while True:
                time.sleep(60)
        os._exit(0)
    return int(os.read(reading, 16))


def litter() -> list[int]:
    """Leaves a thread, a program and a daemon behind; the pids of the rank and its children."""
    threading.Thread(target=time.sleep, args=(60,)).start()
    program = subprocess.Popen(["sleep", "60"], start_new_session=True)
    return [os.getpid(), program.pid, daemonise()]


def world_directories() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("multirank-world-*")}


# ---------------------------------------------------------------- processes


def test_what_ranks_left_behind_is_gone_when_the_world_is_closed() -> None:
    with World(2) as world:
        pids = [pid for result in world.call(litter).results for pid in result]
        assert len(pids) == 6
        assert all(is_running(pid) for pid in pids)
    assert still_running(pids) == []


def test_what_ranks_left_behind_is_gone_after_a_failure() -> None:
    def fail() -> None:
        print(*litter())
        if dist.get_rank() == 1:
            os._exit(1)
        dist.barrier()

    run = multirank.run(fail, 2, check=False)
    pids = [int(word) for rank in run.ranks for word in rank.log.split()]
    assert len(pids) == 6
    assert still_running(pids) == []


def test_a_chain_of_processes_that_fork_and_leave_is_caught() -> None:
    def run_away() -> int:
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.setsid()
            for _ in range(100_000):
                if os.fork():
                    os._exit(0)
                with contextlib.suppress(OSError):
                    os.write(writing, b".")
                time.sleep(0.001)
        os.read(reading, 4)
        return os.getpid()

    started = time.monotonic()
    with World(1, process_group=False) as world:
        session_of = world.call(run_away).results[0]
    assert time.monotonic() - started < 5
    assert still_running([session_of]) == []


def test_the_leader_ends_with_its_world() -> None:
    with World(1) as world:
        leader = world.call(os.getppid).results[0]
        assert is_running(leader)
    assert still_running([leader], within=1.0) == []


def test_ranks_end_when_their_leader_is_killed() -> None:
    with World(2) as world:
        pids = world.call(os.getpid).results
        directory = world.call(lambda: str(Path(context().rendezvous).parent)).results[0]
        os.kill(world.call(os.getppid).results[0], signal.SIGKILL)
        started = time.monotonic()
        run = world.call(time.sleep, 60, check=False, timeout=20)
        assert time.monotonic() - started < 5
        assert "was lost, with the process that led it" in run.story
        shutil.rmtree(directory)  # a leader that is killed cannot
    assert still_running(pids, within=1.0) == []


PARENT = """
import os, sys, time
import multirank

def idle(file):
    with open(file, "a") as out:
        out.write(f"{os.getpid()} ")
    time.sleep(60)

if __name__ == "__main__":
    multirank.run(idle, 2, sys.argv[1])
"""


@contextlib.contextmanager
def parent_of_two_ranks(directory: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A process that runs two ranks, and their pids."""
    program, file = directory / "parent.py", directory / "pids"
    program.write_text(PARENT)
    with subprocess.Popen(
        [sys.executable, str(program), str(file)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    ) as parent:
        try:
            assert wait_until(
                lambda: file.exists() and len(file.read_text().split()) == 2, within=60
            )
            yield parent, [int(pid) for pid in file.read_text().split()]
        finally:
            parent.kill()


def test_ranks_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    with parent_of_two_ranks(tmp_path) as (parent, pids):
        assert still_running(pids) == pids
        parent.kill()
        assert still_running(pids, within=1.0) == []


def test_ranks_end_when_their_parent_is_interrupted(tmp_path: Path) -> None:
    with parent_of_two_ranks(tmp_path) as (parent, pids):
        parent.send_signal(signal.SIGINT)
        _, errors = parent.communicate(timeout=20)
        assert still_running(pids) == []
        assert errors.rstrip().endswith("KeyboardInterrupt")


def test_an_interrupted_call_closes_its_world() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    world = World(2)
    try:
        pids = world.call(os.getpid).results
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            world.call(time.sleep, 60)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert not world.alive
    assert still_running(pids) == []


def test_a_world_that_is_forgotten_ends() -> None:
    world = World(1)
    pids = world.call(os.getpid).results
    del world
    gc.collect()
    assert still_running(pids, within=2.0) == []


def test_a_forked_child_of_the_parent_neither_uses_nor_ends_the_world() -> None:
    with World(2) as world:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                world.call(os.getpid)
            except RuntimeError as error:
                code = 0 if "belongs to the process that made it" in str(error) else 2
            finally:
                world.close()
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert world.call(dist.get_rank).results == [0, 1]


# ---------------------------------------------------------------- descriptors, files, memory


def open_descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def fail(how: str) -> torch.Tensor:
    if how == "die" and dist.get_rank() == 1:
        os._exit(1)
    if how == "raise":
        raise ValueError
    if how == "hang":
        time.sleep(60)
    return torch.ones(3)


@pytest.mark.parametrize(
    ("how", "runs"),
    [
        ("finish", 10),
        pytest.param("finish", 50, marks=pytest.mark.slow),
        ("raise", 3),
        ("die", 5),
        ("hang", 3),
    ],
)
def test_runs_leave_no_descriptor_and_no_file(how: str, runs: int) -> None:
    def once() -> None:
        timeout = 0.1 if how == "hang" else 30.0
        multirank.run(fail, 2, how, timeout=timeout, check=False)

    once()
    descriptors, threads = open_descriptors(), threading.active_count()
    for _ in range(runs):
        once()
    assert open_descriptors() == descriptors
    assert threading.active_count() == threads


def test_calls_leave_no_descriptor_on_either_side() -> None:
    def count(tensor: torch.Tensor) -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with World(2) as world:
        first = world.call(count, torch.ones(4)).results
        descriptors = open_descriptors()
        for _ in range(20):
            last = world.call(count, torch.ones(4)).results
        assert open_descriptors() == descriptors
        assert last == first


def test_arguments_that_cannot_be_sent_leave_no_descriptor() -> None:
    with World(2) as world:
        world.call(dist.get_rank)
        descriptors = open_descriptors()
        for _ in range(5):
            with pytest.raises(TypeError):
                world.call(len, multirank.per_rank([torch.ones(4), threading.Lock()]))
        assert open_descriptors() == descriptors


def test_a_world_that_cannot_start_leaves_no_descriptor() -> None:
    def attempt() -> None:
        with pytest.raises(multirank.StartError):
            World(2, before_ranks=multirank.Source("def f():\n    raise OSError('no')", "f"))

    attempt()
    descriptors = open_descriptors()
    for _ in range(5):
        attempt()
    assert open_descriptors() == descriptors


def test_a_closed_world_leaves_no_directory() -> None:
    def mine() -> str:
        return Path(context().rendezvous).parent.name

    with World(2) as world:
        name = world.call(mine).results[0]
        assert name in world_directories()
    assert name not in world_directories()

    with World(2) as world:
        name = world.call(mine).results[0]
        world.call(os._exit, 1, check=False)
    assert name not in world_directories()


def zygote_of(world: World) -> int:
    leader = world.call(os.getppid).results[0]
    return int(Path(f"/proc/{leader}/stat").read_text().rpartition(")")[2].split()[1])


def test_the_zygote_does_not_grow() -> None:
    def figures(pid: int) -> tuple[int, int]:
        status = Path(f"/proc/{pid}/status").read_text()
        resident = int(status.partition("VmRSS:")[2].split()[0])
        return resident, len(list(Path(f"/proc/{pid}/fd").iterdir()))

    with World(1, process_group=False) as world:
        pid = zygote_of(world)
    before = figures(pid)
    for _ in range(20):
        World(1, process_group=False).close()
    after = figures(pid)
    assert after[1] == before[1]
    assert after[0] - before[0] < 1024  # kB
