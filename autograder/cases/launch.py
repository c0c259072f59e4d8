"""Cases for launch.py, with recorders in place of torch.distributed's start and stop."""

from __future__ import annotations

import inspect
import os
from typing import Any

import torch.distributed as dist

ENVIRONMENT = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def setups(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Calls setup once for each of inputs["calls"] (arguments, environment); what it started.

    The recorder stands there before launch.py is imported, however it may import the function.
    """
    signature = inspect.signature(dist.init_process_group)
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
                "environment": environment,
            }
        )

    replace("init_process_group", record)
    return {"calls": [_setup(impl, call, started) for call in inputs["calls"]]}


def _setup(impl: Any, call: dict[str, Any], started: list[dict[str, Any]]) -> dict[str, Any]:
    started.clear()
    for name in ENVIRONMENT:
        os.environ.pop(name, None)
    os.environ.update(call["environment"])
    try:
        impl.launch.setup(**call["arguments"])
    except ValueError:
        return {"raised": "ValueError", "started": list(started)}
    return {"raised": "nothing", "started": list(started)}


def cleanups(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Calls cleanup with a process group there, and again without."""
    destroyed: list[bool] = []
    there = [True]

    def destroy(*args: Any, **kwargs: Any) -> None:
        if not there[0]:
            raise ValueError("there is no process group to destroy")
        destroyed.append(True)
        there[0] = False

    replace("destroy_process_group", destroy)
    replace("is_initialized", lambda: there[0])
    impl.launch.cleanup()
    first = len(destroyed)
    impl.launch.cleanup()
    return {"first": first, "second": len(destroyed) - first}


def replace(name: str, stand_in: Any) -> None:
    """Puts `stand_in` wherever torch.distributed offers `name`."""
    setattr(dist, name, stand_in)
    setattr(dist.distributed_c10d, name, stand_in)
