"""What runs on the ranks for the tests of launch.py; it travels to them as `calls.py` does."""

from __future__ import annotations

import importlib
import inspect
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import multirank

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def record_setup(
    package: str, module: str, arguments: dict[str, Any], environment: dict[str, str]
) -> dict[str, Any]:
    """Calls setup with recorders in place of what starts a process group and selects a GPU.

    Returns:
        "folder": where the process works; "started": the arguments of each call of
        init_process_group, by name; "devices": what was selected before, in words.
    """
    started: list[dict[str, Any]] = []
    devices: list[str] = []
    signature = inspect.signature(dist.init_process_group)

    def start(*args: Any, **kwargs: Any) -> None:
        given = dict(signature.bind(*args, **kwargs).arguments)
        given["init_method"] = given.get("init_method") or "env://"  # for torch it is the same
        if "timeout" in given:
            given["timeout"] = given["timeout"].total_seconds()
        started.append({name: _plain(value) for name, value in given.items()})

    def select(device: Any) -> None:
        if not started:
            devices.append(str(device).removeprefix("cuda:"))

    # Before the module is imported, so that it finds these however it imports them.
    _replace("init_process_group", start)
    setattr(torch.cuda, "set_device", select)  # noqa: B010
    for name in _VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(environment)
    setup = importlib.import_module(f"{package}.{module}").setup
    multirank.mark("call 0")
    setup(**arguments)
    return {"folder": str(Path.cwd()), "started": started, "devices": devices}


def record_cleanups(package: str, module: str) -> list[int]:
    """Calls cleanup with a group and then without one; how many groups each call destroyed."""
    groups, destroyed = [1], [0]

    def destroy(*args: Any, **kwargs: Any) -> None:
        if not groups:
            raise ValueError("there is no process group to destroy")
        groups.pop()
        destroyed[-1] += 1

    _replace("is_initialized", lambda: bool(groups))
    _replace("destroy_process_group", destroy)
    cleanup = importlib.import_module(f"{package}.{module}").cleanup
    multirank.mark("call 0")
    cleanup()
    destroyed.append(0)
    multirank.mark("call 1")
    cleanup()
    return destroyed


def start_and_stop(package: str, module: str, file: str, port: int) -> list[dict[str, Any]]:
    """Starts through a file, a port and torchrun's variables; runs the first program each time."""
    launch = importlib.import_module(f"{package}.{module}")
    me = {"rank": multirank.context().rank, "world_size": multirank.context().world_size}
    multirank.mark("call 0")
    outcomes = []
    for arguments in (me | {"file": file}, me | {"port": port}, {}):
        launch.setup(**arguments, backend="gloo")
        result = launch.first_program()
        launch.cleanup()
        outcomes.append({"sum": result, "left over": dist.is_initialized()})
    return outcomes


def _replace(name: str, stand_in: Any) -> None:
    setattr(dist, name, stand_in)
    setattr(dist.distributed_c10d, name, stand_in)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, int | float) else str(value)
