"""The pool: keeps spawned workers warm, and leads the worlds that they are the ranks of.

It stands in the zygote's place where processes cannot be forked, and is asked in the same way:
whoever connects gets a leader, here a thread of the pool, which takes as many workers as the world
has ranks. A worker comes back when its world is over and it has put itself in order; one that has
died or hung, or does not come back at once, is ended and replaced. There are no namespaces here,
and nobody inherits orphans: each worker has a session of its own, which is ended as a whole.

The main thread alone starts workers and knows which are ready; leaders ask it through `_Pool.post`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from .leading import receive_setup, signal_ranks, tell
from .wire import WireError, receive_frame, send_frame

WARM = 8  # workers that are kept, at least; more once worlds have needed more
_SEED = secrets.randbits(63)  # of the workers' random numbers
_CORES = os.cpu_count() or 1
_PATIENCE = 0.4  # seconds in which a worker must come back from a world that is over
_TICK = 0.05  # how often the dead are looked for: an orphan may hold a dead worker's connection
_MOST_FAILURES = 3  # workers in a row that do not get as far as being ready


class Worker:
    """A process that can be a rank."""

    def __init__(self, command: Sequence[str]) -> None:
        self.link, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(_SEED)],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def is_ready(self) -> bool:
        """Takes its word that it is ready; False when it is gone."""
        try:
            return receive_frame(self.link) is not None
        except (OSError, WireError):
            return False

    def end(self) -> None:
        """Ends it and what it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self.link.close()


class Pool:
    """The main thread's: who is starting, who is ready, who waits for how many."""

    def __init__(self, listener: socket.socket, command: Sequence[str]) -> None:
        self._listener = listener
        self._command = command
        self._starting: set[Worker] = set()
        self._ready: deque[Worker] = deque()
        self._lent: set[Worker] = set()
        self._wanted: deque[tuple[int, queue.SimpleQueue[list[Worker]]]] = deque()
        self._most = WARM
        self._failures = 0
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._bell, self._ringer = socket.socketpair()
        self._ended = False
        self._waiting = selectors.DefaultSelector()

    # ------------------------------------------------------------ for leaders, from any thread

    def take(self, count: int) -> list[Worker]:
        """So many workers that are ready; none when there is no hope of that."""
        answer: queue.SimpleQueue[list[Worker]] = queue.SimpleQueue()
        self._post(lambda: self._wanted.append((count, answer)))
        return answer.get()

    def give_back(self, good: Sequence[Worker], ended: Sequence[Worker]) -> None:
        """The workers of a world that is over: those that are ready, and those that were ended."""

        def back() -> None:
            self._lent.difference_update(good, ended)
            for worker in good:
                self._receive(worker)

        self._post(back)

    def _post(self, what: Callable[[], None]) -> None:
        self._posted.put(what)
        self._ringer.send(b"!")

    # ------------------------------------------------------------ the main thread

    def serve(self) -> NoReturn:
        """Serves until standard input is closed."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._waiting.register(self._listener, selectors.EVENT_READ, self._lead)
        self._waiting.register(0, selectors.EVENT_READ, self._end)
        self._waiting.register(self._bell, selectors.EVENT_READ, self._hear)
        while True:
            self._refill()
            for key, _ in self._waiting.select():
                key.data()

    def _lead(self) -> None:
        connection, _ = self._listener.accept()
        threading.Thread(target=_lead, args=(connection, self), daemon=True).start()

    def _end(self) -> NoReturn:
        for worker in (*self._starting, *self._ready, *self._lent):
            worker.end()
        shutil.rmtree(Path(self._listener.getsockname()).parent, ignore_errors=True)
        os._exit(0)

    def _hear(self) -> None:
        self._bell.recv(1 << 12)
        while not self._posted.empty():
            self._posted.get()()

    def _refill(self) -> None:
        """Hands out who is ready, and starts as many as are missing."""
        while self._wanted and len(self._ready) >= self._wanted[0][0]:
            count, answer = self._wanted.popleft()
            taken = [self._ready.popleft() for _ in range(count)]
            for worker in taken:
                self._waiting.unregister(worker.link)
            self._lent.update(taken)
            answer.put(taken)
        if self._failures >= _MOST_FAILURES:
            while self._wanted:
                self._wanted.popleft()[1].put([])
            self._failures = 0  # the next world may have better luck
            return
        needed = sum(count for count, _ in self._wanted)
        self._most = max(self._most, needed + len(self._lent))
        missing = self._most - len(self._ready) - len(self._starting) - len(self._lent)
        # Those that are only for later must not slow the others down.
        room = max(_CORES, needed - len(self._ready)) - len(self._starting)
        for _ in range(min(missing, room)):
            worker = Worker(self._command)
            self._starting.add(worker)
            self._waiting.register(
                worker.link, selectors.EVENT_READ, lambda worker=worker: self._started(worker)
            )

    def _started(self, worker: Worker) -> None:
        self._waiting.unregister(worker.link)
        self._starting.remove(worker)
        if worker.is_ready():
            self._failures = 0
            self._receive(worker)
        else:
            self._failures += 1
            worker.end()

    def _receive(self, worker: Worker) -> None:
        self._ready.append(worker)
        self._waiting.register(worker.link, selectors.EVENT_READ, lambda: self._lost(worker))

    def _lost(self, worker: Worker) -> None:
        """One that was ready and had nothing to do has died."""
        self._waiting.unregister(worker.link)
        self._ready.remove(worker)
        worker.end()


def _lead(connection: socket.socket, pool: Pool) -> None:
    """Leads one world; a thread's whole life."""
    with connection, contextlib.suppress(OSError):
        connection.sendall(b"+")
        try:
            if (received := receive_setup(connection)) is not None:
                _World(connection, pool, *received).lead()
        except Exception:
            tell(connection, fault=traceback.format_exc())


class _World:
    """A world whose ranks are workers."""

    def __init__(
        self,
        connection: socket.socket,
        pool: Pool,
        description: bytes,
        by_kind: Sequence[Sequence[int]],
    ) -> None:
        self._connection = connection
        self._pool = pool
        self._description = description
        self._descriptors = [list(own) for own in zip(*by_kind, strict=True)]
        self._ranks: dict[Worker, int] = {}
        self._back: list[Worker] = []
        self._ended: list[Worker] = []

    def lead(self) -> None:
        """Has the ranks serve until the parent closes the connection or is gone."""
        directory = Path(tempfile.mkdtemp(prefix="multirank-world-"))
        controls = [socket.socket(fileno=os.dup(own[0])) for own in self._descriptors]
        try:
            workers = self._pool.take(len(controls))
            if not workers:
                raise RuntimeError("no worker gets as far as being ready")
            (directory / "rendezvous").touch()
            self._assign(workers, directory)
            self._serve()
        finally:
            self._close_descriptors()
            for control in controls:
                with contextlib.suppress(OSError):
                    control.shutdown(socket.SHUT_RDWR)  # the rank serves no more
                control.close()
            self._dismiss()
            shutil.rmtree(directory, ignore_errors=True)

    def _assign(self, workers: Sequence[Worker], directory: Path) -> None:
        self._ranks = {worker: rank for rank, worker in enumerate(workers)}
        for worker, rank in self._ranks.items():
            task = pickle.dumps((rank, str(directory), self._description))
            with contextlib.suppress(OSError):  # it has died, and that is seen next
                send_frame(worker.link, task, self._descriptors[rank])
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        for own in self._descriptors:
            while own:
                os.close(own.pop())

    def _serve(self) -> None:
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._connection, selectors.EVENT_READ)
            while True:
                if waiting.select(_TICK):
                    received = receive_frame(self._connection)
                    if received is None:
                        return
                    ranks = [worker.process.pid for worker in self._serving]
                    signal_ranks(received[0], ranks, top=ranks)
                    tell(self._connection, done=received[0].decode())
                self._look_for_the_dead()

    @property
    def _serving(self) -> list[Worker]:
        return [one for one in self._ranks if one not in self._ended and one not in self._back]

    def _look_for_the_dead(self) -> None:
        for worker in self._serving:
            if (code := worker.process.poll()) is not None:
                self._end([worker])
                tell(self._connection, exit=self._ranks[worker], code=code)

    def _dismiss(self) -> None:
        """Gives the workers back that come back, and ends the others.

        A deadlock keeps them all; but the end of one frees its peers, which then have nobody to
        wait for, and are spared.
        """
        for worker in self._serving:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.process.pid, signal.SIGCONT)
        self._await_back()
        self._end(self._serving[:1])
        self._await_back()
        self._end(self._serving)
        self._pool.give_back(self._back, self._ended)

    def _await_back(self) -> None:
        """Returns when all have come back, or nobody has for a while."""
        with selectors.DefaultSelector() as waiting:
            for worker in self._serving:
                waiting.register(worker.link, selectors.EVENT_READ, worker)
            while self._serving and (found := waiting.select(_PATIENCE)):
                for key, _ in found:
                    waiting.unregister(key.fileobj)
                    if key.data.is_ready():
                        self._back.append(key.data)
                    else:
                        self._end([key.data])

    def _end(self, workers: Sequence[Worker]) -> None:
        for worker in workers:
            worker.end()
            self._ended.append(worker)


def main() -> None:
    """Runs as `python -I -S -c ... DESCRIPTOR COMMAND...`: the listening socket, and what starts a
    worker."""
    Pool(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:]).serve()
