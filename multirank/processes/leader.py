"""The leader of one world: forks its ranks, reports how they end, and leaves nothing running.

It is forked from the zygote and talks to the parent over one connection. When the parent closes
it, or is gone, the leader kills every rank and everything that they left behind, and then ends;
so the end of the connection tells the parent that nothing is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ..source import Source
from . import rank as rank_process
from .leading import children, receive_setup, signal_ranks, tell
from .wire import receive_frame

_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class WorldSetup:
    """What a leader is told about its world (see `World` for the fields)."""

    world_size: int
    groups: Mapping[str, Sequence[int]]
    packages: Mapping[str, Mapping[str, bytes]]
    before_ranks: Source | None
    before_user_code: Source | None
    import_path: Sequence[str]
    process_group: bool
    backend: str
    port: int
    terminal: int | None
    terminal_type: str
    directory: str


def main(connection: socket.socket) -> NoReturn:
    """Leads one world; never returns."""
    try:
        connection.sendall(b"+")  # here I am
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        Leader(connection).lead()
    except BaseException:
        tell(connection, fault=traceback.format_exc())
    finally:
        os._exit(0)


class Leader:
    """The leader's loop."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pids: dict[int, int] = {}

    def lead(self) -> None:
        """Receives the world's description, forks the ranks, and serves until the end."""
        if (received := receive_setup(self._connection)) is None:
            return
        setup: WorldSetup = pickle.loads(received[0])
        descriptors = received[1]
        if setup.before_ranks is not None:
            setup.before_ranks.load()()  # which may give us other directories
        directory = Path(tempfile.mkdtemp(prefix="multirank-world-"))
        try:
            directory.chmod(0o711)
            (directory / "rendezvous").touch()
            wakeup = _child_signal()
            self._fork_ranks(setup, directory, descriptors, wakeup)
            self._serve(wakeup)
        finally:
            self._end_everything()
            shutil.rmtree(directory, ignore_errors=True)

    def _fork_ranks(
        self, setup: WorldSetup, directory: Path, by_kind: list[list[int]], wakeup: int
    ) -> None:
        descriptors = [descriptor for kind in by_kind for descriptor in kind]
        for rank in range(setup.world_size):
            pid = os.fork()
            if pid == 0:
                mine = [kind[rank] for kind in by_kind]
                others = {*descriptors, self._connection.fileno(), wakeup}.difference(mine)
                rank_process.main(rank, setup, directory, others, mine)
            self._pids[pid] = rank
        for descriptor in descriptors:
            os.close(descriptor)

    def _serve(self, wakeup: int) -> None:
        waiting = selectors.DefaultSelector()
        waiting.register(self._connection, selectors.EVENT_READ)
        waiting.register(wakeup, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fd == wakeup:
                    os.read(wakeup, 512)
                    self._reap()
                    continue
                received = receive_frame(self._connection)
                if received is None:
                    return
                signal_ranks(received[0], self._pids, top=[os.getpid()])
                tell(self._connection, done=received[0].decode())

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._pids:
                rank = self._pids.pop(pid)
                tell(self._connection, exit=rank, code=os.waitstatus_to_exitcode(status))

    def _end_everything(self) -> None:
        """Kills children until there are none: as a subreaper we inherit every orphan."""
        while left := _children():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._reap()
            time.sleep(0.001)


def _children() -> list[int]:
    """Processes whose parent is this one, dead ones that are not yet reaped included."""
    me = os.getpid()
    listing = Path(f"/proc/{me}/task/{me}/children")
    try:
        return [int(pid) for pid in listing.read_text().split()]
    except OSError:
        return list(children().get(me, ()))


def _child_signal() -> int:
    """A descriptor that becomes readable when a child ends."""
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reading
