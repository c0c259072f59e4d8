"""Checks of problem launch: what `setup` and `cleanup` ask of torch.distributed.

Recorders stand where init_process_group and destroy_process_group are; nothing is started.
"""

from __future__ import annotations

from typing import Any

from autograder.failure import CheckFailed
from autograder.judge import Answer, Case, Judge
from autograder.problem import problem

TORCHRUN = {
    "RANK": "2",
    "WORLD_SIZE": "3",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "127.0.0.7",
    "MASTER_PORT": "23456",
}


@problem("launch", share="1/5")
def test_address(judge: Judge) -> None:
    """setup with an address, a port and a timeout."""
    arguments = {"rank": 1, "world_size": 3, "address": "127.0.0.5", "port": 12345}
    started = _start(judge, arguments | {"timeout": 77.0})
    _require(started, rank=1, world_size=3, meeting="tcp://127.0.0.5:12345")
    if started.get("timeout") != 77.0:
        raise CheckFailed("init_process_group got another timeout than setup was told")


@problem("launch", share="1/5")
def test_file(judge: Judge) -> None:
    """setup with a file."""
    arguments = {"rank": 0, "world_size": 2, "file": "/tmp/a-meeting-place"}
    started = _start(judge, arguments)
    _require(started, rank=0, world_size=2, meeting="file:///tmp/a-meeting-place")


@problem("launch", share="1/5")
def test_torchrun(judge: Judge) -> None:
    """setup under torchrun."""
    started = _start(judge, {}, TORCHRUN)
    _require(started, rank=2, world_size=3, meeting="tcp://127.0.0.7:23456")


@problem("launch", share="1/5", function="cleanup")
def test_cleanup(judge: Judge) -> None:
    """cleanup destroys the group if there is one, and does no harm if there is none."""
    (answer,) = judge.run(Case("launch", "cleanups", 1), [[{}]])
    first, second = answer.get(0, "first", int), answer.get(0, "second", int)
    if first != 1:
        raise CheckFailed(f"cleanup called destroy_process_group {first} times; once was asked for")
    if second != 0:
        raise CheckFailed("a second cleanup must not call destroy_process_group again")


@problem("launch", share="1/20", function="setup")
def test_backend(judge: Judge) -> None:
    """The backend that was asked for; gloo where there is no GPU."""
    arguments = {"rank": 0, "world_size": 1, "port": 12345}
    for backend in ("gloo", None):
        started = _start(judge, arguments | {"backend": backend})
        if "gloo" not in str(started.get("backend")):
            raise CheckFailed(
                f"setup(backend={backend!r}) started {started.get('backend')!r} where there is no "
                "GPU"
            )


@problem("launch", share="3/20", kind="edges", function="setup")
def test_refusals(judge: Judge) -> None:
    """Bad arguments raise ValueError before anything is started."""
    _start(judge, {"rank": 0, "world_size": 1, "port": 12345})
    bad: list[tuple[dict[str, Any], dict[str, str], str]] = [
        ({"rank": 0}, {}, "only a rank"),
        ({"rank": 2, "world_size": 2}, {}, "a rank as large as the world size"),
        ({}, {"RANK": "0"}, "a torchrun variable missing"),
        ({"file": "/tmp/a-meeting-place"}, {}, "a file, without rank and world size"),
    ]
    calls = [
        {"arguments": arguments, "environment": environment} for arguments, environment, _ in bad
    ]
    case = Case("launch", "setups", 1, process_group=False)
    (answer,) = judge.run(case, [[{"calls": calls}]])
    for (_, _, what), found in zip(bad, _calls(answer, len(bad)), strict=True):
        if found.get("raised") != "ValueError" or found.get("started"):
            raise CheckFailed(f"setup with {what} must raise ValueError and start nothing")


def _start(
    judge: Judge, arguments: dict[str, Any], environment: dict[str, str] | None = None
) -> dict[str, Any]:
    """What one call of setup asked init_process_group for."""
    call = {"arguments": arguments, "environment": environment or {}}
    case = Case("launch", "setups", 1, process_group=False)
    (answer,) = judge.run(case, [[{"calls": [call]}]])
    (found,) = _calls(answer, 1)
    if found.get("raised") != "nothing":
        raise CheckFailed(f"setup raised ValueError for good arguments: {found.get('message')}")
    started = _dictionaries(found.get("started"))
    if len(started) != 1:
        raise CheckFailed(
            f"setup called init_process_group {len(started)} times; once was asked for"
        )
    return started[0]


def _calls(answer: Answer, count: int) -> list[dict[str, Any]]:
    """What the case tells of each call."""
    calls = _dictionaries(answer.plain(0, "calls"))
    if len(calls) != count:
        raise CheckFailed("rank 0 gave no answer")
    return calls


def _dictionaries(found: object) -> list[dict[str, Any]]:
    """An answer's list without whatever the case does not put there."""
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _require(started: dict[str, Any], rank: int, world_size: int, meeting: str) -> None:
    """Who the process said it is and where it meets the others, in whichever of torch's forms."""
    environment = next(iter(_dictionaries([started.get("environment")])), {})
    where = started.get("init_method")
    by_environment = where == "env://"
    if by_environment:
        where = f"tcp://{environment.get('MASTER_ADDR')}:{environment.get('MASTER_PORT')}"
    if where != meeting:
        raise CheckFailed("the ranks would meet at another place than setup was told")
    for name, given, variable in (
        ("rank", rank, "RANK"),
        ("world_size", world_size, "WORLD_SIZE"),
    ):
        found = started.get(name)
        if found == -1 and by_environment:
            found = environment.get(variable)
        if str(found) != str(given):
            raise CheckFailed(f"init_process_group got another {name} than setup was told")
