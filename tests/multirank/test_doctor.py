"""`python -m multirank.doctor`: what works here, in words, and what to do where it does not."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import pytest
import torch
import torch.distributed as dist

from multirank import StartError, doctor


class Room(NamedTuple):
    total: int
    used: int
    free: int


def fails(error: Exception) -> Callable[..., NoReturn]:
    def raising(*_: Any, **__: Any) -> NoReturn:
        raise error

    return raising


def told() -> tuple[int, str]:
    lines: list[str] = []
    code = doctor.main(lines.append)
    return code, "\n".join(lines)


def test_where_everything_works_it_says_so_line_by_line() -> None:
    code, said = told()
    assert code == 0, said
    names = ("Python", "torch", "cores", "shared memory", "loopback", "names", "ranks", "GPUs")
    for name in names:
        assert f" {name} " in said
    assert "two ranks run in" in said
    assert said.endswith("Everything that is needed works here.")


def test_it_is_a_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "multirank.doctor"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "torch" in done.stdout


@pytest.mark.parametrize(
    ("target", "name", "instead", "said"),
    [
        (platform, "system", lambda: "Windows", "use WSL2"),
        (sys, "version_info", (3, 10), "3.11 or newer is needed"),
        (torch, "__version__", "2.12.0", "tested with 2.13: pip install -c constraints.txt torch"),
        (dist, "is_gloo_available", lambda: False, "built without gloo"),
        (shutil, "disk_usage", lambda _: Room(1, 1, 1 << 20), "only 1 MiB are free in"),
        (socket, "create_connection", fails(TimeoutError("timed out")), "a firewall stands"),
        (socket, "getaddrinfo", fails(socket.gaierror(8, "not known")), "localhost is not found"),
        (doctor, "run", fails(StartError("no process")), "do not work: no process"),
        (doctor, "run", fails(KeyError("odd")), "cannot be found out (KeyError: 'odd'); show this"),
        (shutil, "disk_usage", fails(OSError("odd")), "cannot be found out (OSError: odd); show"),
    ],
)
def test_what_does_not_work_is_told_with_what_to_do(
    target: object, name: str, instead: object, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name != "run":
        monkeypatch.setattr(doctor, "run", lambda *_, **__: None)
    monkeypatch.setattr(target, name, instead)
    code, shown = told()
    line = next(line for line in shown.splitlines() if said in line)
    assert line.startswith("NO ")
    assert code == 1
    assert shown.endswith("Mend what says NO, and try again.")


def test_a_name_of_its_own_that_is_not_found_is_worth_knowing_and_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = socket.getaddrinfo

    def resolve(name: str, *args: Any) -> Any:
        if name == "localhost":
            return real("127.0.0.1", *args)
        raise socket.gaierror(8, "not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    found = doctor.own_name()
    assert found.good is None
    assert f"`127.0.0.1 {socket.gethostname()}`" in found.told


def test_a_single_core_and_what_cannot_be_found_out_are_no_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert doctor.cores().good is None
    monkeypatch.setattr(os, "getloadavg", fails(OSError("not here")))
    assert "--  cores          cannot be found out (OSError: not here)" in told()[1]
