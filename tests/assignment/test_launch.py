"""Your setup and cleanup: what they ask torch.distributed for, and whether programs really start.

Most of the tests put a recorder in place of `init_process_group` and look at what it was given.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from multirank import World

from . import starts
from .calls import Call
from .running import DEADLINE, Subject, fail, require_finished

Arguments = dict[str, Any]


@pytest.fixture
def subject(implementation: str) -> Subject:
    """The module that is tested."""
    return Subject(implementation, "launch")


def recorded(subject: Subject, arguments: Arguments, environment: dict[str, str]) -> Arguments:
    """What setup with these arguments did, in this environment."""
    __tracebackhide__ = True
    with World(1, process_group=False) as world:
        done = world.call(
            starts.record_setup,
            subject.package,
            subject.module,
            arguments,
            environment,
            timeout=DEADLINE,
            check=False,
        )
    require_finished(subject, done, [Call("setup", {0: arguments})])
    outcome: Arguments = done.results[0]
    if len(outcome["started"]) != 1:
        fail(f"setup calls init_process_group {len(outcome['started'])} times; it must once.")
    return outcome


def expect(outcome: Arguments, called: str, **wanted: Any) -> None:
    """Fails unless init_process_group was given all this."""
    __tracebackhide__ = True
    given = outcome["started"][0]
    for name, value in wanted.items():
        if name not in given:
            fail(f"setup does not give init_process_group {name}; it must be {value!r}.", [called])
        if given[name] != value:
            fail(
                f"setup gives init_process_group {name}={given[name]!r}; it must be {value!r}.",
                [called],
            )


@pytest.mark.problem("launch", share=0.2)
def test_setup_through_a_file_names_its_absolute_path(subject: Subject) -> None:
    for rank, file in ((2, "/somewhere/meeting"), (0, "meeting")):
        outcome = recorded(
            subject, {"rank": rank, "world_size": 3, "backend": "gloo", "file": file}, {}
        )
        expect(
            outcome,
            f"called: setup({rank}, 3, 'gloo', file={file!r})",
            backend="gloo",
            init_method=f"file://{Path(outcome['folder'], file)}",
            rank=rank,
            world_size=3,
        )


@pytest.mark.problem("launch", share=0.2)
def test_setup_through_a_port_names_address_and_port(subject: Subject) -> None:
    arguments = {"rank": 1, "world_size": 4, "backend": "gloo", "address": "node7", "port": 1234}
    expect(
        recorded(subject, arguments | {"timeout": timedelta(seconds=30)}, {}),
        "called: setup(1, 4, 'gloo', address='node7', port=1234, timeout=timedelta(seconds=30))",
        backend="gloo",
        init_method="tcp://node7:1234",
        rank=1,
        world_size=4,
        timeout=30.0,
    )


@pytest.mark.problem("launch", share=0.2)
def test_setup_under_torchrun_reads_the_environment(subject: Subject) -> None:
    environment = {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "MASTER_ADDR": "node7",
        "MASTER_PORT": "1234",
    }
    expect(
        recorded(subject, {"backend": "gloo"}, environment),
        "called: setup(backend='gloo') with RANK=5, WORLD_SIZE=8, LOCAL_RANK=1",
        backend="gloo",
        init_method="env://",
        rank=5,
        world_size=8,
    )


@pytest.mark.problem("launch", share=0.1)
def test_setup_with_nccl_selects_the_gpu_of_its_local_rank_first(subject: Subject) -> None:
    for environment, gpu in (({"LOCAL_RANK": "3"}, "3"), ({}, "7")):
        outcome = recorded(subject, {"rank": 7, "world_size": 8, "backend": "nccl"}, environment)
        called = f"called: setup(7, 8, 'nccl') with {environment or 'no LOCAL_RANK'}"
        expect(outcome, called, backend="nccl", rank=7)
        if outcome["devices"] != [gpu]:
            selected = ", then ".join(outcome["devices"]) or "none"
            fail(
                f"setup must select GPU {gpu}, with torch.cuda.set_device, before it calls "
                f"init_process_group; it selects {selected}.",
                [called],
            )


@pytest.mark.problem("launch", share=0.1)
def test_cleanup_destroys_the_group_and_does_no_harm_without_one(subject: Subject) -> None:
    with World(1, process_group=False) as world:
        done = world.call(
            starts.record_cleanups,
            subject.package,
            subject.module,
            timeout=DEADLINE,
            check=False,
        )
    require_finished(subject, done, [Call("cleanup", {0: {}})] * 2)
    with_group, without = done.results[0]
    if (with_group, without) != (1, 0):
        fail(
            f"cleanup calls destroy_process_group {with_group} times where there is a process "
            f"group, and {without} times where there is none; it must call it once, and not at all."
        )


@pytest.mark.problem("launch", share=0.2)
def test_two_processes_start_add_up_and_stop_in_all_three_ways(
    subject: Subject, tmp_path: Path
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with World(2, process_group=False) as world:
        done = world.call(
            starts.start_and_stop,
            subject.package,
            subject.module,
            str(tmp_path / "meeting"),
            port,
            timeout=DEADLINE,
            check=False,
        )
    require_finished(subject, done)
    for rank, outcomes in enumerate(done.results):
        for way, outcome in zip(("a file", "a port", "torchrun"), outcomes, strict=True):
            if outcome["sum"].tolist() != [1, 3, 5, 7]:
                fail(
                    f"first_program, started through {way}, returns {outcome['sum'].tolist()} on "
                    f"rank {rank} of 2; it must return [1, 3, 5, 7]."
                )
            if outcome["left over"]:
                fail(f"cleanup leaves a process group behind on rank {rank} of 2.")
