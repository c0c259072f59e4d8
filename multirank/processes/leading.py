"""What leaders of both kinds do: of ranks that are forked, and of spawned ones.

The pool imports it, which has no torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterable
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


def signal_ranks(request: bytes, pids: Iterable[int]) -> None:
    """Does to the ranks, children of this process, what the parent asks for."""
    number = {
        b"stacks": signal.SIGUSR1,
        b"hold": signal.SIGSTOP,
        b"release": signal.SIGCONT,
    }[request]
    for pid in pids:
        os.kill(pid, number)
    if number == signal.SIGSTOP and hasattr(os, "waitid"):  # which takes a moment
        for pid in pids:
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
