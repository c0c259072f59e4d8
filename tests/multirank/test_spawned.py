"""Spawned ranks, for where processes cannot be forked: same API, same results, warm and clean."""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import multirank
from multirank import Ending, Run, Source, World
from multirank.gallery import GALLERY, WORLD_SIZE
from tests.multirank.processes import still_running

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow  # 30 s together, most of them for workers that import torch


@pytest.fixture(scope="module", autouse=True)
def spawning() -> Iterator[None]:
    """A pool of this module's own, which is ended with it."""
    stops: list[Callable[[], None]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MULTIRANK_START", "spawn")
        patch.setenv("MULTIRANK_ZYGOTE", "")
        patch.setattr(atexit, "register", lambda stop, *args: stops.append(lambda: stop(*args)))
        multirank.run(os.getpid, 8)  # warm from here on
        yield
        for stop in stops:
            stop()


def pid_and_sum(x: torch.Tensor) -> tuple[int, torch.Tensor]:
    dist.all_reduce(x)
    return os.getpid(), x


def pids(run: Run) -> set[int]:
    return {result[0] for result in run.results}


def ones() -> torch.Tensor:
    return torch.ones(3)


def test_ranks_are_not_forked_and_serve_one_world_after_another() -> None:
    runs = [multirank.run(pid_and_sum, 4, ones()) for _ in range(4)]
    for run in runs:
        assert all(torch.equal(result[1], 4 * ones()) for result in run.results)
    everybody = set.union(*map(pids, runs))
    assert len(everybody) < 16  # with new ones each time it would be 16
    for pid in everybody:
        assert b"processes.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_run_takes_less_than_a_second_once_workers_are_warm() -> None:
    multirank.run(pid_and_sum, 4, ones())
    seconds = []
    for _ in range(5):
        started = time.monotonic()
        multirank.run(pid_and_sum, 4, ones())
        seconds.append(time.monotonic() - started)
    assert sorted(seconds)[2] < 1.0, seconds


def leave_traces() -> None:
    sys.path.insert(0, "/nowhere")
    sys.modules["assignment"] = sys
    os.environ["TRACES"] = "left"
    os.chdir("/")
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.manual_seed(7)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR2, lambda *_: None)
    os.umask(0o027)
    sys.setrecursionlimit(sys.getrecursionlimit() + 1)
    dist.all_reduce = lambda *_, **__: None
    torch.Tensor.doubled = lambda self: 2 * self  # type: ignore[attr-defined]
    del time.sleep


def look_for_traces() -> dict[str, Any]:
    import warnings

    warnings.warn("once a world", stacklevel=1)
    return {
        "path": "/nowhere" in sys.path,
        "modules": "assignment" in sys.modules,
        "environment": os.environ.get("TRACES", ""),
        "directory": os.getcwd(),  # noqa: PTH109
        "dtype": str(torch.get_default_dtype()),
        "gradients": torch.is_grad_enabled(),
        "random": torch.rand(2),
        "handler": callable(signal.getsignal(signal.SIGUSR2)),
        "ignored": signal.getsignal(signal.SIGTERM) is signal.SIG_IGN,
        "initialized": dist.is_initialized(),
        "backend": dist.get_backend(),
        "umask": os.umask(0),
        "depth": sys.getrecursionlimit(),
        "all_reduce": dist.all_reduce.__module__,
        "doubled": hasattr(torch.Tensor, "doubled"),
        "sleep": hasattr(time, "sleep"),
    }


def test_a_world_finds_nothing_that_the_one_before_it_has_left() -> None:
    before = multirank.run(look_for_traces, 8)
    multirank.run(leave_traces, 8)
    after = multirank.run(look_for_traces, 8)
    for one, other in zip(before.ranks, after.ranks, strict=True):
        assert torch.equal(one.result.pop("random"), other.result.pop("random"))
        assert one.result == other.result
        assert one.log == other.log
        assert "once a world" in other.log
    assert before.ranks[0].result["directory"] == str(Path.cwd())


def leave_a_thread() -> int:
    threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
    return os.getpid()


def leave_a_child() -> int:
    return subprocess.Popen(["sleep", "30"]).pid


def test_a_worker_that_cannot_be_made_as_new_is_not_used_again() -> None:
    spoiled = set(multirank.run(leave_a_thread, 2).results)
    assert still_running(spoiled, within=5) == []


def test_what_a_rank_has_started_ends_with_its_world() -> None:
    children = multirank.run(leave_a_child, 2).results
    assert still_running(children, within=5) == []


def test_a_submodule_of_the_users_is_imported_anew_in_every_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    helper = tmp_path / "spawned_helper.py"

    def ask() -> int:
        import spawned_helper  # type: ignore[import-not-found]

        return int(spawned_helper.VALUE)

    for value in (1, 22):
        helper.write_text(f"VALUE = {value}\n")
        assert multirank.run(ask, 2).results == [value, value]


def raise_on_rank_1() -> None:
    if dist.get_rank() == 1:
        raise ValueError("no")
    dist.barrier()


def die_on_rank_1(how: Callable[[], None]) -> None:
    if dist.get_rank() == 1:
        how()
    dist.barrier()


def never_end() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("how", "ending"),
    [
        (functools.partial(os._exit, 3), Ending.DIED),
        (never_end, Ending.TIMED_OUT),
    ],
    ids=["crash", "hang"],
)
def test_after_a_crash_or_a_hang_the_next_run_is_as_before(
    how: Callable[[], None], ending: Ending
) -> None:
    failed = multirank.run(die_on_rank_1, 3, how, timeout=3, check=False)
    assert failed.ranks[1].ending is ending
    if ending is Ending.DIED:
        assert failed.ranks[1].exit_code == 3
    run = multirank.run(pid_and_sum, 4, ones())
    assert all(torch.equal(result[1], 4 * ones()) for result in run.results)


def test_a_signal_that_ends_a_rank_is_named() -> None:
    def crash() -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    run = multirank.run(crash, 2, check=False)
    assert run.ranks[0].signal == "SIGSEGV"


def test_a_failure_of_the_program_does_not_cost_its_workers() -> None:
    before = pids(multirank.run(pid_and_sum, 8, ones()))
    failed = multirank.run(raise_on_rank_1, 8, check=False)
    assert failed.ranks[1].exception is not None
    assert failed.warnings == []
    assert len(before & pids(multirank.run(pid_and_sum, 8, ones()))) >= 7


@pytest.mark.nightly
def test_a_world_larger_than_the_pool_is_served() -> None:
    run = multirank.run(pid_and_sum, 10, ones())
    assert len(pids(run)) == 10


def test_two_worlds_live_at_once_and_one_can_be_held() -> None:
    with World(2) as one, World(2) as other:
        one.hold()
        assert len(pids(other.call(pid_and_sum, ones()))) == 2
        one.release()
        assert not pids(one.call(pid_and_sum, ones())) & pids(other.call(pid_and_sum, ones()))


def test_a_program_that_initialises_torch_itself_is_served_twice() -> None:
    def main() -> int:
        dist.init_process_group("gloo")
        dist.barrier()
        return dist.get_world_size()

    for _ in range(2):
        assert multirank.run(main, 2, process_group=False).results == [2, 2]


def test_a_hook_before_the_ranks_is_refused_for_nobody_could_call_it() -> None:
    hook = Source("def hook():\n    pass\n", "hook")
    with pytest.raises(ValueError, match="before_ranks needs a leader that forks"):
        World(2, before_ranks=hook)


def test_another_way_to_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULTIRANK_START", "thread")
    with pytest.raises(ValueError, match="MULTIRANK_START is 'thread'; it must be fork or spawn"):
        multirank.run(os.getpid, 2)


PROGRAM = """
import os, signal, sys, multirank

def main():
    return [os.getpid(), os.getppid()]

if __name__ == "__main__":
    print(multirank.run(main, 2).results, flush=True)
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", [pytest.param("ends", marks=pytest.mark.nightly), "killed"])
def test_no_worker_and_no_pool_outlives_the_program(how: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    environment = os.environ | {"MULTIRANK_ZYGOTE": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(program), how],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = {pid for rank in json.loads(done.stdout) for pid in rank}
    assert len(found) == 3
    assert still_running(found, within=10) == []


# --- the same as forked ones ----------------------------------------------------------------------

SAMPLE = ("everybody_receives_first", "different_sizes", "dropped_handle")


def told_in_both_ways(function: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    told = []
    for how in ("fork", "spawn"):
        with monkeypatch.context() as patch:
            patch.setenv("MULTIRANK_START", how)
            if how == "fork":
                patch.setenv("MULTIRANK_ZYGOTE", os.environ.get("FORKING", ""))
            told.append(multirank.run(function, WORLD_SIZE, timeout=10, check=False).story)
            if how == "fork":
                os.environ["FORKING"] = os.environ["MULTIRANK_ZYGOTE"]
    return told


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(one, marks=() if one.__name__ in SAMPLE else pytest.mark.nightly)
        for one in GALLERY
    ],
    ids=lambda one: one.__name__,
)
def test_the_gallery_is_told_as_where_ranks_are_forked(
    function: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    forked, spawned = told_in_both_ways(function, monkeypatch)
    assert spawned == forked


@pytest.mark.nightly  # 3 minutes
@pytest.mark.parametrize("package", ["reference", "assignment"])
def test_the_public_tests_say_the_same_as_where_ranks_are_forked(
    package: str, tmp_path: Path
) -> None:
    told = []
    for how in ("fork", "spawn"):
        results = tmp_path / f"{how}.xml"
        subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "tests/assignment", "-n", "2", "-q"),
                *(f"--implementation={package}", f"--junitxml={results}"),
            ],
            cwd=ROOT,
            env=os.environ | {"MULTIRANK_START": how, "MULTIRANK_ZYGOTE": ""},
            capture_output=True,
            timeout=900,
        )
        told.append(
            {
                f"{case.get('classname')}::{case.get('name')}": [
                    (child.tag, re.sub(r"[\d.]+ s\b", "some s", child.get("message") or ""))
                    for child in case
                    if child.tag != "properties"
                ]
                for case in ElementTree.parse(results).iter("testcase")
            }
        )
    assert len(told[0]) > 200
    assert told[1] == told[0]
