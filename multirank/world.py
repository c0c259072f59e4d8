"""A world: live ranks in fresh processes, which can be called again and again.

`World` is the parent's side. It asks the zygote for a leader, gives each rank a control socket, a
log pipe and a trace file, and then serves calls: sends the function down, collects the answers,
drains the logs, keeps the deadline, and ends everybody as soon as one rank has failed.
"""

from __future__ import annotations

import contextlib
import functools
import json
import mmap
import os
import pickle
import secrets
import selectors
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from .processes import connect
from .processes.devices import BACKENDS
from .processes.leader import WorldSetup
from .processes.leading import KINDS
from .processes.memory import RESULT_BYTES, AnswerError, Arena, build, pack, shared_file
from .processes.wire import (
    ANSWER_BYTES,
    FrameReader,
    FrameWriter,
    WireError,
    receive_frame,
    send_frame,
)
from .proving.ledger import Ledger
from .proving.prover import TICK, Prover
from .proving.verdict import Verdict, mismatch
from .recording.misuse import warnings
from .recording.stack import STACK_BYTES, user_stack
from .recording.trace import TRACE_BYTES, Trace, TraceReader
from .result import Ending, RaisedException, RankRun, Run
from .source import PerRank, Source

MAX_WORLD_SIZE = 64
_TYPE_LENGTH, _TEXT_LENGTH = 200, 1 << 16  # characters kept of an exception
_LOG_HEAD, _LOG_TAIL, _LOG_LIMIT = 48 << 10, 16 << 10, 64 << 20
_GRACE = 0.3  # seconds that peers get to finish, or to fail by themselves, once one has failed
_LEADER_TIMEOUT = 20.0  # a leader answers at once, unless its machine stands still
_STACKS_TIMEOUT = 0.5
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
# How gloo says that a peer is gone.
_LOST = (
    ("RuntimeError", "DistBackendError", "DistNetworkError"),
    ("Connection closed by peer", "Connection reset", "Broken pipe", "Socket closed"),
)


class World:
    """Ranks that can be called.

    Args:
        world_size: number of ranks.
        groups: sub-groups, by name, as lists of global ranks; they exist before any user code is
            imported, and a rank finds them in `multirank.context().groups`.
        packages: packages served from memory, as `{name: {file name: bytes}}`.
        before_ranks: called in the leader before anything of the world's exists: it may move the
            leader into other namespaces, and go on in a child. (Not where ranks are spawned.)
        before_user_code: called in every rank, with its `RankContext`, when its groups exist and
            before anything of the user's is imported.
        import_path: the ranks' `sys.path` entries before the installed packages'; None: ours.
        process_group: False leaves it to the program to initialise torch.distributed.
        backend: "gloo", or "nccl", with which each rank has a GPU of its own.
        terminal: a rank that gets our standard input, output and error, so that a debugger works
            there; until it waits for others itself, nothing ends its calls.
        on_output: is given a rank and what it has printed, as soon as it has.
        result_bytes: how large the tensors may be, all together, that a rank returns from a call;
            we hold as much for each rank, whatever it claims to return.

    Raises:
        ValueError: bad arguments.
        connect.StartError: the ranks could not be started.
    """

    def __init__(
        self,
        world_size: int,
        *,
        groups: Mapping[str, Sequence[int]] | None = None,
        packages: Mapping[str, Mapping[str, bytes]] | None = None,
        before_ranks: Source | None = None,
        before_user_code: Source | None = None,
        import_path: Sequence[str] | None = None,
        process_group: bool = True,
        backend: str = "gloo",
        terminal: int | None = None,
        on_output: Callable[[int, bytes], None] | None = None,
        result_bytes: int = RESULT_BYTES,
    ) -> None:
        groups = groups or {}
        _check_world(world_size, groups)
        if backend not in BACKENDS:
            raise ValueError(f"backend is {backend!r}; it must be one of {', '.join(BACKENDS)}")
        if before_ranks is not None and connect.method() is connect.Method.SPAWN:
            raise ValueError("before_ranks needs a leader that forks; here ranks are spawned")
        if terminal is not None and terminal not in range(world_size):
            raise ValueError(f"terminal is {terminal}; the ranks are 0 to {world_size - 1}")
        self.world_size = world_size
        self.alive = False
        self._owner = os.getpid()
        setup = WorldSetup(
            world_size=world_size,
            groups={name: list(ranks) for name, ranks in groups.items()},
            packages=packages or {},
            before_ranks=before_ranks,
            before_user_code=before_user_code,
            import_path=_own_import_path() if import_path is None else list(import_path),
            process_group=process_group,
            backend=backend,
            port=0 if process_group else _free_port(),
            directory=str(Path.cwd()),
            terminal=terminal,
            terminal_type=os.environ.get("TERM", "dumb"),
        )
        self._terminal = terminal
        self._on_output = on_output
        self._result_bytes = result_bytes
        self._leader = connect.leader()
        self._leader.settimeout(_LEADER_TIMEOUT)
        self._links: list[_Link] = []
        self._ledger = Ledger(world_size)
        try:
            self._start(setup)
        except BaseException:
            self.close()
            raise

    def call(
        self,
        function: Callable[..., Any] | Source,
        *args: Any,
        timeout: float = 60.0,
        check: bool = True,
        **kwargs: Any,
    ) -> Run:
        """Calls `function(*args, **kwargs)` on every rank and waits for all of them.

        A function is sent with its own module's functions by value, everything else that it uses
        by reference; arguments are pickled, and plain tensors in them arrive as contiguous copies.
        After a call that did not finish on every rank the world is closed.

        Args:
            timeout: seconds after which every rank is ended; `math.inf` for never.
            check: raise when a rank fails.

        Raises:
            RanksFailed: `check` is true and some rank did not finish.
            RuntimeError: the world is closed.
            TypeError: the function or an argument cannot be pickled.
            ValueError: a `per_rank` argument does not have one item for each rank, or is part of
                another argument; `timeout` is not positive.
        """
        self._check_alive()
        if not timeout > 0:
            raise ValueError(f"timeout is {timeout}; it must be a positive number of seconds")
        with contextlib.ExitStack() as files:
            messages = self._pack(function, args, kwargs, files)
            for link in self._links:
                link.begin()
            self._ledger.begin_call()
            run = Run(self.world_size, [link.run for link in self._links], timeout=timeout)
            started = time.monotonic()
            try:
                for link, (payload, tensors) in zip(self._links, messages, strict=True):
                    link.send(payload, tensors, self._result_bytes)
                run.verdict = self._wait(started + timeout, run.trace)
            except BaseException:
                self.close()
                raise
        run.seconds = time.monotonic() - started
        if not run.ok:
            self.close()
        for link in self._links:
            link.finish(run.trace)
        finished = {rank.rank for rank in run.ranks if rank.ending is Ending.FINISHED}
        finished = finished if run.verdict is None else set()  # which tells all
        run.warnings = warnings(run.trace, finished, self._ledger.deserted())
        return run.check() if check else run

    def hold(self) -> None:
        """Stops every rank (SIGSTOP) until `release`, so that another world has the machine.

        Raises:
            RuntimeError: the world is closed.
        """
        self._check_alive()
        self._ask(b"hold")

    def release(self) -> None:
        """Lets the ranks go on.

        Raises:
            RuntimeError: the world is closed.
        """
        self._check_alive()
        self._ask(b"release")

    def close(self) -> None:
        """Ends every rank and whatever the ranks started. Harmless when closed already."""
        self.alive = False
        if self._leader.fileno() >= 0:
            if self._owner == os.getpid():  # a forked child's copy must not end the world
                self._dismiss_leader()
            self._leader.close()
        for link in self._links:
            link.close()

    def __enter__(self) -> World:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _check_alive(self) -> None:
        if not self.alive:
            raise RuntimeError(
                "this world is closed: an earlier call failed, or close() was called"
            )
        if self._owner != os.getpid():
            raise RuntimeError("this world belongs to the process that made it, not to its child")

    # ------------------------------------------------------------ starting

    def _start(self, setup: WorldSetup) -> None:
        for rank in range(self.world_size):
            link = _Link(rank, self.world_size, self._ledger, self._on_output)
            self._links.append(link)
            if rank == self._terminal:
                link.give_terminal()
        try:
            for kind in range(KINDS):
                theirs = [link.theirs[kind] for link in self._links]
                send_frame(self._leader, b"" if kind else pickle.dumps(setup), theirs)
        except OSError as error:
            raise connect.StartError(
                f"the process that starts ranks has died ({error})\n{connect.complaint()}"
            ) from error
        finally:
            for link in self._links:
                link.give_away()
        trace = Trace()
        self._wait(time.monotonic() + connect.START_TIMEOUT, trace)
        for link in self._links:
            link.finish(trace)
        ranks = [link.run for link in self._links]
        run = Run(self.world_size, ranks, trace, timeout=connect.START_TIMEOUT)
        if not run.ok:
            raise connect.StartError(
                f"the ranks could not be started: {run.story}\n{connect.complaint()}"
            )
        self.alive = True

    def _pack(
        self,
        function: Callable[..., Any] | Source,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        files: contextlib.ExitStack,
    ) -> list[tuple[bytes, int | None]]:
        """What every rank is sent; `files` closes the descriptors."""
        for value in (*args, *kwargs.values()):
            if isinstance(value, PerRank) and len(value.items) != self.world_size:
                raise ValueError(
                    f"per_rank was given {len(value.items)} item(s) for {self.world_size} ranks"
                )
        differ = any(isinstance(value, PerRank) for value in (*args, *kwargs.values()))
        messages = []
        for rank in range(self.world_size if differ else 1):
            payload, tensors = pack(
                (function, *_for_rank(rank, args, kwargs)), _module_of(function)
            )
            if tensors is not None:
                files.callback(os.close, tensors)
            messages.append((payload, tensors))
        return messages if differ else messages * self.world_size

    # ------------------------------------------------------------ waiting

    def _wait(self, deadline: float, trace: Trace) -> Verdict | None:
        """Returns when every rank's call has ended, one way or another; the verdict, if any."""
        prover = Prover(self._ledger)
        verdict: Verdict | None = None
        with selectors.DefaultSelector() as selector:
            selector.register(self._leader, _READ, self._watch_leader)
            for link in self._links:
                for descriptor, events, handler in link.handlers():
                    selector.register(descriptor, events, handler)
            first_failure: float | None = None
            while any(link.run.ending is None for link in self._links):
                if first_failure is None and any(link.failed for link in self._links):
                    first_failure = time.monotonic()
                limit = deadline if first_failure is None else min(deadline, first_failure + _GRACE)
                patience = min(max(0.0, limit - time.monotonic()), TICK)
                for key, _ in selector.select(patience):
                    events = key.data()
                    if not events:
                        selector.unregister(key.fileobj)
                    elif events != key.events:
                        selector.modify(key.fileobj, events, key.data)
                verdict = self._look(prover, trace)
                if self._is_being_debugged():
                    verdict = None
                elif verdict is not None:
                    self._give_up(Ending.STOPPED)
                elif time.monotonic() >= limit:
                    self._give_up(Ending.TIMED_OUT if first_failure is None else Ending.STOPPED)
            for link in self._links:
                link.drain()
                link.read_trace(trace)
            if any(link.run.ending is Ending.DIED for link in self._links):
                for link in self._links:
                    link.forgive_lost_connection()
        return self._final_verdict(verdict)

    def _look(self, prover: Prover, trace: Trace) -> Verdict | None:
        """Lets the prover look at what is new, when it is time."""
        if not prover.due(sum(link.recorded for link in self._links)):
            return None
        changed = [link.read_trace(trace) for link in self._links]
        for link in self._links:
            if link.run.ending is not None:
                self._ledger.over(link.run.rank, str(link.run.ending))
        return prover.look(any(changed))

    def _is_being_debugged(self) -> bool:
        """Whether somebody at the terminal decides what comes next."""
        if self._terminal is None or self._links[self._terminal].run.ending is not None:
            return False
        return not self._ledger.is_waiting(self._terminal)

    def _final_verdict(self, verdict: Verdict | None) -> Verdict | None:
        """A mismatch explains whatever came after; a failed rank, why its peers wait."""
        if self._ledger.mismatch is not None:
            return mismatch(self._ledger.mismatch)
        failed = (Ending.RAISED, Ending.DIED)
        return None if any(link.run.ending in failed for link in self._links) else verdict

    def _give_up(self, ending: Ending) -> None:
        """The rest will not finish; at a deadline each first writes down its stacks."""
        unfinished = [link for link in self._links if link.run.ending is None]
        if ending is Ending.TIMED_OUT:
            with contextlib.suppress(connect.StartError):
                self._ask(b"stacks")
            limit = time.monotonic() + _STACKS_TIMEOUT
            while time.monotonic() < limit and not all(link.has_stack for link in unfinished):
                time.sleep(0.005)
        for link in unfinished:
            if link.run.ending is None:
                link.run.ending = ending

    # ------------------------------------------------------------ the leader

    def _ask(self, request: bytes) -> None:
        try:
            send_frame(self._leader, request)
        except OSError as error:
            raise connect.StartError(f"the leader of this world is gone ({error})") from error
        while (message := self._hear_leader()) is not None:
            if message.get("done") == request.decode():
                return
        raise connect.StartError("the leader of this world is gone")

    def _watch_leader(self) -> int:
        return 0 if self._hear_leader() is None else _READ

    def _hear_leader(self) -> dict[str, Any] | None:
        """Takes one message of the leader's; None when it is gone, and all ranks with it."""
        try:
            received = receive_frame(self._leader)
        except (OSError, WireError):
            received = None
        if received is None:
            for link in self._links:
                link.exited(None)
            return None
        message: dict[str, Any] = json.loads(received[0])
        if "fault" in message:
            raise connect.StartError(f"the leader of this world failed:\n{message['fault']}")
        if "exit" in message:
            self._links[message["exit"]].exited(message["code"])
        return message

    def _dismiss_leader(self) -> None:
        """Returns when the leader has ended everything, and itself."""
        with contextlib.suppress(OSError):
            self._leader.shutdown(socket.SHUT_WR)
            while self._leader.recv(1 << 12):
                pass


class _Link:
    """The parent's ends of what connects it with one rank."""

    def __init__(
        self,
        rank: int,
        world_size: int,
        ledger: Ledger,
        on_output: Callable[[int, bytes], None] | None,
    ) -> None:
        self.run = RankRun(rank)
        self._control, rank_control = socket.socketpair()
        self._control.setblocking(False)
        self._reader = FrameReader(self._control, ANSWER_BYTES)
        self._writer = FrameWriter(self._control)
        self._exit_code: int | None = None
        self._exited = False
        self._log, rank_log = os.pipe()
        os.set_blocking(self._log, False)
        self._log_bytes = _Log()
        self._on_output = on_output
        nothing = os.open(os.devnull, os.O_RDONLY)
        trace = shared_file(TRACE_BYTES, "multirank-trace")
        self._trace = TraceReader(rank, world_size, trace, ledger)
        stacks = shared_file(STACK_BYTES, "multirank-stacks")
        self._stacks = mmap.mmap(stacks, STACK_BYTES, prot=mmap.PROT_READ)
        self._output: Arena | None = None
        self._owned: list[socket.socket] = [rank_control]
        self._lent = [nothing, rank_log, trace, stacks]
        self.theirs = [rank_control.fileno(), nothing, rank_log, rank_log, trace, stacks]

    @property
    def failed(self) -> bool:
        return self.run.ending not in (None, Ending.FINISHED)

    def give_terminal(self) -> None:
        """Gives the rank our own standard streams."""
        self.theirs[1:4] = (0, 1, 2)

    def give_away(self) -> None:
        """Closes the rank's ends here, once the leader has them."""
        self._owned.pop().close()
        for descriptor in self._lent:
            os.close(descriptor)

    def begin(self) -> None:
        """Makes ready for a new call."""
        self.hear()  # what came after the last answer counts for nothing
        self.run = RankRun(self.run.rank)
        self._trace.skip()
        self._log_bytes = _Log()
        if self._exited:
            self.exited(self._exit_code)

    def send(self, payload: bytes, tensors: int | None, result_bytes: int) -> None:
        """Begins to send a call; `tensors` is the arguments' file."""
        output = shared_file(result_bytes, "multirank-output")
        self._output = Arena(output, writable=False)
        self._writer.put(payload, [output] if tensors is None else [output, os.dup(tensors)])

    def handlers(self) -> list[tuple[Any, int, Callable[[], int]]]:
        """What to watch, for which events, and what then to do: it says what to watch for next."""
        events = _READ if self._writer.flush() else _READ | _WRITE
        control: tuple[Any, int, Callable[[], int]] = (self._control, events, self.talk)
        log: tuple[Any, int, Callable[[], int]] = (self._log, _READ, self.drain)
        return [log] if self._reader.closed else [control, log]

    def talk(self) -> int:
        """Takes what the rank says, and sends it what it has not been told yet."""
        sent = self._writer.flush()
        if not self.hear():
            return 0
        return _READ if sent else _READ | _WRITE

    def hear(self) -> bool:
        """Takes what the rank says; whether it may say more."""
        try:
            for frame in self._reader.frames():
                if self.run.ending is None:
                    self._take(json.loads(frame))
        except (WireError, AnswerError, ValueError, TypeError, RecursionError) as error:
            self._fail(f"sent something that is no answer ({str(error)[:200]})")
            return False
        return not self._reader.closed

    def drain(self) -> int:
        """Takes what the rank printed: a pipe full, and not more at once, for it may never stop."""
        for _ in range(16):
            try:
                part = os.read(self._log, 1 << 16)
            except BlockingIOError:
                break
            if not part:
                return 0
            self._log_bytes.add(part)
            if self._on_output is not None:
                self._on_output(self.run.rank, part)
        if self._log_bytes.total > _LOG_LIMIT:
            self._fail(f"was ended: it printed more than {_LOG_LIMIT >> 20} MiB")
        return _READ

    @property
    def recorded(self) -> int:
        """How much the rank has recorded so far, in bytes."""
        return self._trace.recorded

    def read_trace(self, trace: Trace) -> bool:
        """Adds to `trace` what the rank has recorded since the last time; whether anything."""
        return self._trace.read_into(trace)

    def exited(self, code: int | None) -> None:
        """The rank's process has ended; what it said before still counts."""
        self.hear()
        self._exited, self._exit_code = True, code
        if self.run.ending is None:
            self.run.ending = Ending.DIED
            self.run.exit_code = code
            if code is None:
                self.run.note = "was lost, with the process that led it"

    def forgive_lost_connection(self) -> None:
        """A peer died: what gloo then raised in this rank is no failure of its own."""
        error = self.run.exception
        if error and error.type in _LOST[0] and any(sign in error.message for sign in _LOST[1]):
            self.run.ending = Ending.STOPPED

    def finish(self, trace: Trace) -> None:
        """Completes the run's record once the call is over."""
        self.read_trace(trace)
        self.run.log = self._log_bytes.text()
        if self.run.ending in (Ending.DIED, Ending.TIMED_OUT):
            self.run.stack = user_stack(self._stacks[:].rstrip(b"\0").decode("utf-8", "replace"))
        self._output = None

    @property
    def has_stack(self) -> bool:
        """Whether the rank has written down where it is."""
        return self._stacks[0] != 0

    def close(self) -> None:
        """Closes the parent's ends; the log is read to its end first."""
        if self._control.fileno() >= 0:
            self.drain()
            self._writer.discard()
            self._control.close()
            os.close(self._log)

    def _take(self, answer: Any) -> None:
        match answer:
            case {"ready": True} if self._output is None:
                self.run.ending = Ending.FINISHED
            case {"result": tree} if self._output is not None:
                self.run.result = build(tree, self._output)
                self.run.ending = Ending.FINISHED
            case {"raised": {"type": str(kind), "message": str(text), "traceback": str(lines)}}:
                self.run.exception = RaisedException(
                    _printable(kind[:_TYPE_LENGTH]),
                    _printable(text[:_TEXT_LENGTH]),
                    _printable(lines[-_TEXT_LENGTH:]),
                )
                self.run.ending = Ending.RAISED
            case _:
                raise AnswerError("unknown message")

    def _fail(self, note: str) -> None:
        if self.run.ending is None:
            self.run.ending, self.run.note = Ending.DIED, note


class _Log:
    """The first and the last part of what a rank printed."""

    def __init__(self) -> None:
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, part: bytes) -> None:
        self.total += len(part)
        room = _LOG_HEAD - len(self._head)
        self._head += part[:room]
        self._tail += part[room:] if room > 0 else part
        del self._tail[:-_LOG_TAIL]

    def text(self) -> str:
        cut = self.total - len(self._head) - len(self._tail)
        gap = f"\n[... {cut} bytes left out ...]\n".encode() if cut else b""
        return bytes(self._head + gap + self._tail).decode("utf-8", "replace")


def run(
    function: Callable[..., Any] | Source,
    world_size: int,
    *args: Any,
    groups: Mapping[str, Sequence[int]] | None = None,
    timeout: float = 60.0,
    check: bool = True,
    process_group: bool = True,
    backend: str = "gloo",
    **kwargs: Any,
) -> Run:
    """Calls `function(*args, **kwargs)` on `world_size` fresh ranks; see `World` and `World.call`.

    Example:
        def hello():
            x = torch.ones(2) * dist.get_rank()
            dist.all_reduce(x)
            return x

        multirank.run(hello, 4).results
    """
    with World(world_size, groups=groups, process_group=process_group, backend=backend) as world:
        return world.call(function, *args, timeout=timeout, check=check, **kwargs)


def _check_world(world_size: int, groups: Mapping[str, Sequence[int]]) -> None:
    if not 1 <= world_size <= MAX_WORLD_SIZE:
        raise ValueError(f"world_size is {world_size}; it must be from 1 to {MAX_WORLD_SIZE}")
    for name, ranks in groups.items():
        if not ranks or len(set(ranks)) < len(ranks) or not set(ranks) <= set(range(world_size)):
            raise ValueError(
                f"group {name!r} is {list(ranks)}; it must hold different ranks from 0 to "
                f"{world_size - 1}"
            )


def _for_rank(
    rank: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (
        tuple(_own(rank, value) for value in args),
        {name: _own(rank, value) for name, value in kwargs.items()},
    )


def _own(rank: int, value: Any) -> Any:
    return value.items[rank] if isinstance(value, PerRank) else value


def _module_of(function: Callable[..., Any] | Source) -> ModuleType | None:
    """The module that travels with a function, by value.

    Importing the caller's module in every rank would run it there again (a test module imports
    pytest, 0.1 s in every rank), and it need not be importable at all. An installed package's
    function is imported; what `__main__` defines travels by value in any case.
    """
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__module__", None) or ""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if (
        isinstance(function, Source)
        or file is None
        or name == "__main__"
        or name.partition(".")[0] in sys.stdlib_module_names
        or {"site-packages", "dist-packages"} & {*Path(file).parts}
    ):
        return None
    return module


def _printable(text: str) -> str:
    """Without the halves of characters that no encoding can print."""
    return text.encode("utf-8", "backslashreplace").decode()


def _own_import_path() -> list[str]:
    return [str(Path(path or ".").resolve()) for path in sys.path]


def _free_port() -> int:
    """A port that nobody listens on, below those that the system gives to connections.

    The program binds it a moment later; one of the system's own might be somebody else's by then.
    """
    while True:
        port = 15_000 + secrets.randbelow(15_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
