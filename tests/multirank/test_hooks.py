"""The two places at which a world is open: before its ranks, and before user code."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import multirank
from multirank import Source, StartError, World, context
from tests.multirank.processes import still_running

LEADER_HOOK = """
import os, sys
def hook(path):
    with open(path, "a") as out:
        print(os.getpid(), sorted(sys.modules).count("assignment"), file=out)
    os.environ["FROM_THE_LEADER"] = "yes"
"""


def test_before_ranks_runs_once_in_the_leader_before_it_forks(tmp_path: Path) -> None:
    hook = Source(LEADER_HOOK, "hook", arguments={"path": str(tmp_path / "ran")})

    def look() -> list[Any]:
        return [os.getppid(), os.environ.get("FROM_THE_LEADER")]

    with World(2, before_ranks=hook) as world:
        results = world.call(look).results
    (line,) = (tmp_path / "ran").read_text().splitlines()
    assert results == [[int(line.split()[0]), "yes"]] * 2


def test_before_ranks_may_choose_where_the_world_keeps_its_files(tmp_path: Path) -> None:
    hook = Source(
        "import tempfile\ndef hook(directory):\n    tempfile.tempdir = directory\n",
        "hook",
        arguments={"directory": str(tmp_path)},
    )
    with World(1, before_ranks=hook) as world:
        rendezvous = Path(world.call(lambda: context().rendezvous).results[0])
        assert rendezvous.parent.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_before_ranks_may_go_on_in_a_child() -> None:
    """As it must to become the first process of a namespace."""
    text = """
import os
def hook():
    if child := os.fork():
        os.closerange(0, 1 << 12)
        os.waitpid(child, 0)
        os._exit(0)
"""
    with World(2, before_ranks=Source(text, "hook")) as world:
        assert world.call(dist.get_rank).results == [0, 1]
        pids = world.call(os.getpid).results
    assert still_running(pids) == []


def test_before_ranks_may_run_programs_and_sees_how_they_end() -> None:
    hook = Source(
        "import subprocess\ndef hook():\n"
        "    code = subprocess.run(['sh', '-c', 'exit 7']).returncode\n"
        "    assert code == 7, code\n",
        "hook",
    )
    with World(1, before_ranks=hook) as world:
        assert world.call(os.getpid).ok


USER_HOOK = """
import sys
import torch, torch.distributed as dist

def hook(context):
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    group = context.groups["last"]
    context.state["before"] = {
        "initialised": dist.is_initialized(),
        "sum": tensor.item(),
        "member": group is not None and dist.get_process_group_ranks(group),
        "packages": any(type(finder).__name__ == "MemoryPackage" for finder in sys.meta_path),
        "path": "/nowhere/in/particular" in sys.path,
        "rank": context.rank,
    }
"""


def test_before_user_code_runs_when_the_groups_exist_and_nothing_of_the_users_does() -> None:
    with World(
        3,
        groups={"last": [1, 2]},
        packages={"assignment": {"__init__.py": b""}},
        before_user_code=Source(USER_HOOK, "hook"),
        import_path=["/nowhere/in/particular"],
    ) as world:
        results = world.call(lambda: context().state["before"]).results
    for rank, result in enumerate(results):
        assert result == {
            "initialised": True,
            "sum": 3.0,
            "member": [1, 2] if rank else False,
            "packages": False,
            "path": False,
            "rank": rank,
        }


def test_before_user_code_runs_without_a_process_group_too() -> None:
    text = "def hook(context):\n    context.state['ran'] = context.world_size\n"
    with World(2, before_user_code=Source(text, "hook"), process_group=False) as world:
        assert world.call(lambda: context().state["ran"]).results == [2, 2]


@pytest.mark.parametrize("hook", ["before_ranks", "before_user_code"])
@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise OSError('no room here')", "no room here"),
        ("import os; os._exit(3)", "could not be started|failed"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "could not be started|failed"),
        ("x = = 1", "SyntaxError"),
    ],
)
def test_a_hook_that_fails_is_a_clear_failure_to_start(hook: str, body: str, told: str) -> None:
    source = Source(f"def hook(*context):\n    {body}\n", "hook", "the_hook.py")
    started = time.monotonic()
    with pytest.raises(StartError, match=told):
        World(2, **{hook: source})  # type: ignore[arg-type]
    assert time.monotonic() - started < 5


DROP_USER = """
import os
def drop(context, uid):
    if context.rank == 0:
        os.chown(context.rendezvous, uid, uid)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
"""
UID = 61_234


def dropped(**options: Any) -> World:
    hook = Source(DROP_USER, "drop", arguments={"uid": UID})
    return World(2, before_user_code=hook, **options)


@pytest.mark.root
def test_a_hook_may_drop_the_user_for_everything_that_follows() -> None:
    def look() -> list[Any]:
        return [list(os.getresuid()), list(os.getresgid()), os.getgroups()]

    def use_it() -> float:
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        group = dist.new_group([0, 1])
        dist.all_reduce(tensor, group=group)
        return tensor.item()

    with dropped() as world:
        assert world.call(look).results == [[[UID] * 3, [UID] * 3, []]] * 2
        assert world.call(use_it).results == [4.0, 4.0]


@pytest.mark.root
def test_a_package_is_imported_as_the_dropped_user() -> None:
    files = {"__init__.py": b"import os\nUID = os.getuid()\n"}

    def look() -> int:
        return int(importlib.import_module("assignment").UID)

    with dropped(packages={"assignment": files}, import_path=()) as world:
        assert world.call(look).results == [UID, UID]


@pytest.mark.root
def test_the_dropped_user_can_train_a_model() -> None:
    def train() -> float:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        optimizer = torch.optim.AdamW(model.parameters(), fused=False)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        return sum(p.sum().item() for p in model.parameters())

    with dropped(import_path=()) as world:
        first, second = world.call(train).results
        assert first == second


@pytest.mark.root
def test_ranks_of_the_dropped_user_end_with_their_leader_and_at_close() -> None:
    with dropped() as world:
        pids = world.call(os.getpid).results
        directory = world.call(lambda: str(Path(context().rendezvous).parent)).results[0]
        os.kill(world.call(os.getppid).results[0], signal.SIGKILL)
        assert still_running(pids, within=1.0) == []
        shutil.rmtree(directory)  # a leader that is killed cannot

    def loop() -> None:
        print(os.getpid())
        while True:
            pass

    with dropped() as world:
        run = world.call(loop, timeout=0.4, check=False)
    assert {str(rank.ending) for rank in run.ranks} == {"timed out"}
    assert all(rank.stack for rank in run.ranks)
    assert still_running([int(rank.log) for rank in run.ranks]) == []


@pytest.mark.root
def test_the_dropped_user_can_be_held_and_released() -> None:
    with dropped() as world:
        world.hold()
        world.release()
        assert world.call(os.getuid).results == [UID, UID]


@pytest.mark.root
def test_the_dropped_user_reaches_neither_the_zygote_nor_the_worlds_directory() -> None:
    def look(zygote: str) -> list[Any]:
        import socket

        mode = stat.S_IMODE(Path(context().rendezvous).parent.stat().st_mode)
        try:
            socket.socket(socket.AF_UNIX).connect(zygote)
            connected = True
        except OSError:
            connected = False
        try:
            (Path(context().rendezvous).parent / "new").touch()
            made = True
        except OSError:
            made = False
        return [oct(mode), connected, made, "torch" in sys.modules]

    with dropped() as world:
        results = world.call(look, os.environ["MULTIRANK_ZYGOTE"]).results
    assert results == [["0o711", False, False, True]] * 2


@pytest.mark.root
def test_a_hook_that_is_given_too_little_says_so() -> None:
    with pytest.raises(StartError, match="missing 1 required positional argument: 'uid'"):
        World(1, before_user_code=Source(DROP_USER, "drop"))


def test_multirank_itself_has_no_hook_of_its_own() -> None:
    assert multirank.run(os.getuid, 1).results == [os.getuid()]
