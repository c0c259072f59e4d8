"""What leaders of both kinds do: of ranks that are forked, and of spawned ones.

The pool imports it, which has no torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from .wire import receive_frame, send_frame

KINDS = 6  # of descriptors that a rank is given: control socket, three streams, trace, stacks


def tell(connection: socket.socket, **message: Any) -> None:
    """Tells the parent something."""
    with contextlib.suppress(OSError):  # the parent is gone: seen at the next read
        send_frame(connection, json.dumps(message).encode())


def receive_setup(connection: socket.socket) -> tuple[bytes, list[list[int]]] | None:
    """The world's description, pickled, and the ranks' descriptors, by kind; None when the parent
    is gone."""
    frames: list[tuple[bytes, list[int]]] = []
    while len(frames) < KINDS:  # the first carries the description, each one kind
        received = receive_frame(connection, max_descriptors=250)
        if received is None:
            return None
        frames.append(received)
    return frames[0][0], [descriptors for _, descriptors in frames]


def signal_ranks(request: bytes, ranks: Collection[int], top: Collection[int]) -> None:
    """Does to the ranks, children of this process, what the parent asks for.

    Whoever is stopped gives the machine to others: so what the ranks have started stops, too.

    top: everything that the ranks have started descends from these, the ranks themselves or us.
    """
    if request == b"stacks":
        _signal(ranks, signal.SIGUSR1)
    elif request == b"release":
        _signal({*ranks, *descendants(top)}, signal.SIGCONT)
    else:
        _hold(ranks, top)


def children() -> dict[int, dict[int, str]]:
    """Of every process those that it has started or inherited, each with its state as a letter
    (proc(5)), dead ones that are not yet reaped included; where there is no /proc, nothing."""
    found: dict[int, dict[int, str]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            # a process may be called what it likes, but fields follow the last parenthesis
            state, parent = stat.read_bytes().rpartition(b")")[2].split()[:2]
            found.setdefault(int(parent), {})[int(stat.parent.name)] = state.decode()
    return found


def descendants(pids: Collection[int]) -> dict[int, str]:
    """What descends from these processes, with its state, as `children` tells it."""
    of_all, found = children(), dict[int, str]()
    todo = list(pids)
    while todo:
        own = of_all.get(todo.pop(), {})
        todo += own.keys() - found.keys()
        found |= own
    return found


def _signal(pids: Iterable[int], number: int) -> set[int]:
    """Returns those that are another user's by now, as programs that change the user are."""
    refused = set()
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            refused.add(pid)
    return refused


def _hold(ranks: Collection[int], top: Collection[int]) -> None:
    """Returns when all are stopped, which takes a moment, in which they may start others."""
    _signal(ranks, signal.SIGSTOP)
    if hasattr(os, "waitid"):
        for pid in ranks:
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    refused: set[int] = set()
    while running := {pid for pid, state in descendants(top).items() if state in "RS"} - refused:
        refused |= _signal(running, signal.SIGSTOP)
        time.sleep(0.001)
