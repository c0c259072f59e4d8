"""One rank: sets up its process groups, then serves calls until it is ended.

The order is the contract: watched process groups and declared sub-groups first, then the hook
`before_user_code` (which may drop privileges), and only then anything of the user's: packages,
functions, arguments.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import random
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from .. import inside
from ..recording import watch
from ..recording.stack import is_plumbing
from ..recording.trace import Recorder
from ..source import Source
from .devices import take_device
from .memory import Arena, describe, unpack
from .packages import serve
from .wire import ANSWER_BYTES, receive_frame, send_frame

if TYPE_CHECKING:
    from .leader import WorldSetup

_PR_SET_PDEATHSIG = 1
_TEXT_LIMIT = 1 << 16


def main(
    rank: int,
    setup: WorldSetup,
    directory: Path,
    leaders: Iterable[int],
    descriptors: Sequence[int],
) -> NoReturn:
    """Is one rank; never returns. `leaders`: descriptors that are none of its business; its own
    are of the kinds that `leading.KINDS` lists."""
    try:
        for descriptor in (*leaders, signal.set_wakeup_fd(-1)):
            os.close(descriptor)
        serve_world(rank, setup, directory, descriptors)
    finally:
        os._exit(0)


def serve_world(rank: int, setup: WorldSetup, directory: Path, descriptors: Sequence[int]) -> bool:
    """Serves the calls of one world; whether that came to a regular end in the rank itself.

    Its descriptors are closed then, but for that of the stacks, which faulthandler has.
    """
    control, *streams, trace, stacks = descriptors
    pid = os.getpid()
    with socket.socket(fileno=control) as connection:
        ended = _serve(rank, setup, directory, connection, streams, trace, stacks)
    return ended and os.getpid() == pid


def _serve(
    rank: int,
    setup: WorldSetup,
    directory: Path,
    connection: socket.socket,
    streams: Sequence[int],
    trace: int,
    stacks: int,
) -> bool:
    pid = os.getpid()
    try:
        _become_a_process_of_its_own(streams, stacks)
        if rank == setup.terminal:
            os.environ["TERM"] = setup.terminal_type
        with contextlib.suppress(OSError):  # it may have been removed
            os.chdir(setup.directory)
        recorder = Recorder(trace)
        os.close(trace)
        watch.install(recorder, rank, setup.world_size)
        context = _join(rank, setup, directory)
        inside.enter(context, recorder)
        if setup.before_user_code is not None:
            setup.before_user_code.load()(context)
        _die_with_leader()  # a change of user forgets it
        serve(setup.packages)
        sys.path[:] = [*setup.import_path, *(p for p in sys.path if p not in setup.import_path)]
        _answer(connection, {"ready": True})
        while (received := receive_frame(connection, max_descriptors=2)) is not None:
            answer = _run(*received)
            if os.getpid() != pid:
                return False  # a child that the function forked; only the rank answers
            if threading.active_count() > 1:
                recorder.write("unsure")
            watch.look_at_futures()
            recorder.flush()
            try:
                _answer(connection, answer)
            except ConnectionError:  # nobody waits for it any more
                return True
        return True
    except BaseException as error:
        _answer(connection, {"raised": _explain(error)})
        return False


def _become_a_process_of_its_own(streams: Sequence[int], stacks: int) -> None:
    """Takes the three standard streams that are meant for it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _die_with_leader()
    for target, source in enumerate(streams):
        os.dup2(source, target)
        os.close(source)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout, sys.stderr = (
        os.fdopen(
            descriptor,
            "w",
            encoding="utf-8",
            errors="backslashreplace",
            buffering=1,
            closefd=False,
        )
        for descriptor in (1, 2)
    )
    faulthandler.enable(file=stacks)
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    random.seed()
    np.random.seed()


def _die_with_leader() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _join(rank: int, setup: WorldSetup, directory: Path) -> inside.RankContext:
    """Sets the environment that torchrun sets, and makes the groups that the world declares."""
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(setup.world_size),
        LOCAL_WORLD_SIZE=str(setup.world_size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(setup.port),
    )
    rendezvous = str(directory / "rendezvous")
    context = inside.RankContext(
        rank=rank,
        world_size=setup.world_size,
        device=take_device(setup.backend, rank),
        group_ranks={name: sorted(ranks) for name, ranks in setup.groups.items()},
        rendezvous=rendezvous,
    )
    if not setup.process_group:
        return context
    store = FileStore(rendezvous, setup.world_size)
    # Nobody knows how long a person at the terminal thinks.
    patience = None if setup.terminal is None else timedelta(days=7)
    dist.init_process_group(
        setup.backend, store=store, rank=rank, world_size=setup.world_size, timeout=patience
    )
    for name, ranks in context.group_ranks.items():
        group = dist.new_group(ranks)
        context.groups[name] = group if rank in ranks else None
    return context


def _run(payload: bytes, descriptors: list[int]) -> dict[str, Any]:
    """Serves one call. Its descriptors: where the result's tensors go, then the arguments'."""
    try:
        function, args, kwargs = unpack(payload, descriptors[1] if descriptors[1:] else None)
        if isinstance(function, Source):
            function = function.load()
        result = function(*args, **kwargs)
        return {"result": describe(result, Arena(descriptors[0], writable=True))}
    except BaseException as error:
        return {"raised": _explain(error)}
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _answer(connection: socket.socket, message: dict[str, Any]) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the program closed it, or put something else there
            stream.flush()
    frame = json.dumps(message).encode()
    if len(frame) > ANSWER_BYTES:
        error = ValueError(
            f"what the function returned is too long: {len(frame)} bytes of numbers and strings, "
            f"and {ANSWER_BYTES} is most; return a tensor instead of a long list"
        )
        frame = json.dumps({"raised": _explain(error)}).encode()
    send_frame(connection, frame)


def _explain(error: BaseException) -> dict[str, str]:
    """What the parent is told of an exception; its own `__str__` may misbehave."""
    try:
        message = str(error)
    except BaseException:
        message = "(its text cannot be shown)"
    try:
        summary = traceback.TracebackException.from_exception(error)
        summary.stack = traceback.StackSummary.from_list(
            [frame for frame in summary.stack if not is_plumbing(frame.filename)]
        )
        text = "".join(summary.format())
    except BaseException:
        text = ""
    return {
        "type": type(error).__qualname__[:200],
        "message": message[:_TEXT_LIMIT],
        "traceback": text[-_TEXT_LIMIT:],
    }
