"""Cases for launch.py, with recorders in place of torch.distributed's start and stop.

What stands behind the recorders is a process group of one rank, so that whatever else a program
does once it has started (asks for its rank, waits for the others) works.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

ENVIRONMENT = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def setups(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Calls setup once for each of inputs["calls"] (arguments, environment); what it started.

    A timeout is in seconds.

    The recorder stands there before launch.py is imported, however it may import the function.
    """
    start = dist.init_process_group
    signature = inspect.signature(start)
    started: list[dict[str, Any]] = []

    def record(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs).arguments
        environment = {name: os.environ.get(name, "") for name in ENVIRONMENT}
        started.append(
            {
                "backend": str(given.get("backend")),
                "init_method": given.get("init_method") or "env://",
                "rank": int(given.get("rank", -1)),
                "world_size": int(given.get("world_size", -1)),
                "timeout": given["timeout"].total_seconds() if given.get("timeout") else None,
                "environment": environment,
            }
        )
        start("gloo", store=HashStore(), rank=0, world_size=1)

    with replaced("init_process_group", record):
        return {"calls": [_setup(impl, call, started) for call in inputs["calls"]]}


def _setup(impl: Any, call: dict[str, Any], started: list[dict[str, Any]]) -> dict[str, Any]:
    started.clear()
    for name in ENVIRONMENT:
        os.environ.pop(name, None)
    os.environ.update(call["environment"])
    arguments = dict(call["arguments"])
    if "timeout" in arguments:
        arguments["timeout"] = timedelta(seconds=arguments["timeout"])
    try:
        impl.launch.setup(**arguments)
    except ValueError as error:
        return {"raised": "ValueError", "message": str(error), "started": list(started)}
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return {"raised": "nothing", "message": "", "started": list(started)}


def cleanups(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Calls cleanup with a process group there, and again without."""
    stop = dist.destroy_process_group
    destroyed: list[bool] = []

    def destroy(*args: Any, **kwargs: Any) -> None:
        stop(*args, **kwargs)
        destroyed.append(True)

    with replaced("destroy_process_group", destroy):
        impl.launch.cleanup()
        first = len(destroyed)
        impl.launch.cleanup()
    return {"first": first, "second": len(destroyed) - first}


@contextlib.contextmanager
def replaced(name: str, stand_in: Any) -> Iterator[None]:
    """Puts `stand_in` wherever torch.distributed offers `name`, while the block runs."""
    own = getattr(dist, name)
    for module in (dist, dist.distributed_c10d):
        setattr(module, name, stand_in)
    try:
        yield
    finally:
        for module in (dist, dist.distributed_c10d):
            setattr(module, name, own)
