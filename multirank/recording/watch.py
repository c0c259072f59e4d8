"""A process group around gloo or NCCL that records every operation and is otherwise not noticed.

It stands where the backend stands, so it sees what `dist.*`, functional collectives, DDP's C++
reducer, FSDP2, DTensor and DeviceMesh do alike. It replaces the class that
`torch.distributed.distributed_c10d` constructs for "gloo", and where there is one, for "nccl"; the
real backend is registered on it, and on an inner plain ProcessGroup to which every operation is
passed on.

With NCCL to wait for an operation is to queue that wait on the GPU: `waited` and `completed` then
say when the program asked for it, in the order in which things happen on the GPU.

This rests on parts of torch that are not public; `tests/multirank/test_watch_compatibility.py`
names what broke when torch changes.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from types import CodeType
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch._C._distributed_c10d import ProcessGroupGloo, Store, Work

from ..processes.memory import dtype_name
from .buffers import Buffer, buffer_of
from .caller import calling_frame, calling_line, is_library
from .trace import Recorder

# What the backend calls an operation -> what torch.distributed calls it.
_NAMES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "broadcast": "broadcast",
    "send": "send",
    "recv": "recv",
    "recv_anysource": "recv",
    "barrier": "barrier",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_single_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "allgather_coalesced": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_single_coalesced": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "gather": "gather",
    "scatter": "scatter",
    "reduce": "reduce",
}

_REDUCING = frozenset(
    method for method, name in _NAMES.items() if name in ("all_reduce", "reduce", "reduce_scatter")
)
_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
_WITH_OPTIONS = frozenset({"allreduce", "broadcast", "reduce"})
_SIMPLE = _WITH_OPTIONS | {"send", "recv", "recv_anysource"}  # of one tensor, in a list
_AUTOGRAD = str(Path(torch.__file__).parent / "autograd") + os.sep
_FOR_EVER = timedelta(minutes=30)  # gloo's own patience: whoever asks for less reckons with it

_MOST_LINES, _MOST_ALIKE = 1000, 8  # by which operations of a group are described

_recorder: Recorder
_next_group: tuple[str, list[int]] = ("", [])  # name and ranks of the one that is being made
_life = 0  # of the default group, which a program may destroy and make again
_we: tuple[int, int]  # our rank, and the size of the world
_futures: dict[int, tuple[Any, WatchedWork]] = {}  # by operation, of those not seen complete


class WatchedWork(Work):
    """A Work that records when it is waited for, seen complete, and dropped.

    Args:
        work: gloo's.
        number: the operation's.
        buffer: what nobody may change before it is complete, if that is to be watched.
    """

    def __init__(self, work: Work, number: int, buffer: Buffer | None = None) -> None:
        super().__init__()
        self._work = work
        self._number = number
        self._buffer = buffer
        self._seen_complete = False
        self._waited = False

    def wait(self, timeout: timedelta | None = None) -> bool:
        _look_at_future(self._number)
        if not self._seen_complete:
            self._check_buffer()
        if not (self._seen_complete and self._waited):
            _recorder.wait(self._number, for_ever=not timeout or timeout >= _FOR_EVER)
            self._waited = True
        try:
            done = self._work.wait() if not timeout else self._work.wait(timeout)
        except BaseException:
            _recorder.step("leave", self._number)
            raise
        if not self._seen_complete:
            self._check_buffer()
        self._complete()
        return done

    def is_completed(self) -> bool:
        _look_at_future(self._number)
        done = self._work.is_completed()
        if done and not self._seen_complete:
            self._check_buffer()
            self._complete()
        return done

    def get_future(self) -> Any:
        future = self._work.get_future()
        _futures[self._number] = future, self
        future.add_done_callback(lambda _: _look_at_future(self._number))
        asker = sys._getframe(1).f_code.co_filename
        if asker.startswith(_AUTOGRAD):  # a C++ reducer, in the midst of a backward
            self._wait_when_backward_ends()
        elif not is_library(asker):  # whose callbacks we do not see
            _recorder.write("unsure")
        return future

    def _wait_when_backward_ends(self) -> None:
        """Records that DDP waits for its buckets: when backward is over, inside C++.

        Its engine then calls what was queued, in order: this, then the reducer's own, which waits;
        then `leave`, at once if the reducer had nothing queued.
        """

        def leave() -> None:
            if not self._seen_complete:
                _recorder.step("leave", self._number)

        def wait() -> None:
            _recorder.wait(self._number)
            engine.queue_callback(leave)

        engine: Any = torch.autograd.Variable._execution_engine
        with contextlib.suppress(RuntimeError):  # no backward is under way
            engine.queue_callback(wait)

    def _check_buffer(self) -> None:
        if self._buffer is not None and self._buffer.changed():
            _recorder.step("change", self._number)
            self._buffer = None

    def is_success(self) -> bool:
        return self._work.is_success()

    def exception(self) -> Any:
        return self._work.exception()

    def result(self) -> list[torch.Tensor]:
        return self._work.result()

    def synchronize(self) -> None:
        self._work.synchronize()

    def source_rank(self) -> int:
        return self._work._source_rank()

    def _source_rank(self) -> int:
        return self._work._source_rank()

    def _complete(self) -> None:
        if not self._seen_complete:
            self._seen_complete = True
            _recorder.step("complete", self._number)

    def __del__(self) -> None:
        del self._work  # first: from now on a message that has not left is withdrawn
        _recorder.drop(self._number)


class Known:
    """An operation that has been recorded in full, to compare others of its line with."""

    __slots__ = ("_code", "_dtype", "_method", "_operation", "_rest", "_root", "_shape", "number")

    def __init__(
        self, number: int, method: str, args: Sequence[Any], options: Any, code: CodeType
    ) -> None:
        (tensor,) = args[0]
        self.number = number
        self._code = code  # so that its id stays its own
        self._method = method
        self._shape, self._dtype = tensor.shape, tensor.dtype
        self._rest = None if method in _WITH_OPTIONS else args[1:]
        self._operation = options.reduceOp.op if method in _REDUCING else None
        self._root = options.rootRank if method in _ROOTED else None

    def is_like(self, method: str, args: Sequence[Any], options: Any) -> bool:
        """Whether the same record would be written."""
        try:
            (tensor,) = args[0]
        except ValueError:
            return False
        return (
            method is self._method
            and tensor.shape == self._shape
            and tensor.dtype is self._dtype
            and tensor.is_contiguous()
            and (self._rest is None or args[1:] == self._rest)
            and (self._operation is None or options.reduceOp == self._operation)
            and (self._root is None or options.rootRank == self._root)
        )


class _LikeTheReal(type(dist.ProcessGroup)):  # type: ignore[misc]
    """Lets torch.distributed recognise its own backend by the class that it finds in its place."""

    def __instancecheck__(cls, instance: object) -> bool:
        real = getattr(cls, "real", None)
        return (real is not None and isinstance(instance, real)) or super().__instancecheck__(
            instance
        )


class WatchedProcessGroup(dist.ProcessGroup, metaclass=_LikeTheReal):
    """What torch.distributed gets when it asks for a backend.

    Each subclass is for one: `real` is torch's class, which is constructed with the same arguments.
    """

    real: type[Any]
    backend: str
    device: str
    kind: Any

    def __init__(self, store: Store, rank: int, size: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        name, self._ranks = _next_group
        self._group_number = _recorder.new_id()
        self._known: dict[tuple[int, int], tuple[Known, ...]] = {}
        _recorder.write("group", self._group_number, name, self._ranks)
        self._real = self.real(store, rank, size, *args, **kwargs)
        self._inner = dist.ProcessGroup(store, rank, size)
        for group in (self, self._inner):
            group._register_backend(torch.device(self.device), self.kind, self._real)
            group._set_default_backend(self.kind)

    @property
    def options(self) -> Any:
        return self._real.options

    def _set_sequence_number_for_group(self) -> None:
        self._real._set_sequence_number_for_group()

    def getBackendName(self) -> str:
        return self.backend

    def shutdown(self) -> None:
        _issue_plainly("destroy_process_group", self._group_number)
        super().shutdown()

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        number = _issue_plainly("monitored_barrier", self._group_number)
        inner: Any = self._inner
        limit = {"timeout": timeout} if timeout else {}
        with _waiting(number, for_ever=not timeout or timeout >= _FOR_EVER):
            inner.monitored_barrier(**limit, wait_all_ranks=wait_all_ranks)

    def issue(
        self, method: str, args: Sequence[Any], kwargs: dict[str, Any], options: Any, waits: bool
    ) -> int:
        """Records that an operation is about to start; its number.

        A line mostly does the same again, and then little has to be looked at and written.
        """
        frame = calling_frame(2)
        if frame is None or kwargs or method not in _SIMPLE:
            line = ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
            return self._describe(method, args, kwargs, options, line, waits)
        known = self._known.get((id(frame.f_code), frame.f_lasti), ())
        for one in known:
            if one.is_like(method, args, options):
                return _recorder.again(one.number, waits)
        line = frame.f_code.co_filename, frame.f_lineno
        number = self._describe(method, args, kwargs, options, line, waits)
        if len(known) < _MOST_ALIKE and len(self._known) < _MOST_LINES:
            one = Known(number, method, args, options, frame.f_code)
            self._known[id(frame.f_code), frame.f_lasti] = (*known, one)
        return number

    def _describe(
        self,
        method: str,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        options: Any,
        line: tuple[str, int],
        waits: bool,
    ) -> int:
        name = _NAMES[method]
        first: torch.Tensor | None = None
        nbytes = 0
        for argument in (*args, *kwargs.values()):
            tensors = _tensors(argument)
            if tensors:
                if name not in ("send", "recv"):
                    _refuse_strided(name, tensors)
                first = tensors[0] if first is None else first
                nbytes = max(nbytes, sum([t.numel() * t.element_size() for t in tensors]))
        peer = tag = reduce_op = None
        if method in ("send", "recv"):
            peer, tag = self._global_rank(name, args[1]), int(args[2])
        elif method == "recv_anysource":
            tag = int(args[1])
        elif method in _ROOTED:
            peer = self._global_rank(name, options.rootRank)
        if method in _REDUCING:
            reduce_op = _op_name(options.reduceOp.op)
        return _recorder.issue(
            name,
            self._group_number,
            peer,
            tag,
            reduce_op,
            None if first is None else dtype_name(first.dtype),
            () if first is None else first.shape,
            nbytes,
            *line,
            waits,
        )

    def _writes(self, method: str, options: Any) -> int:
        """How often gloo changes what it reduces in a way that torch counts."""
        if self.backend != "gloo" or method not in _REDUCING:
            return 0
        copied = method == "allreduce_coalesced"  # the result, into place
        divided: bool = options.reduceOp == dist.ReduceOp.AVG  # the sum, by the number of ranks
        return copied + divided

    def _global_rank(self, name: str, group_rank: int) -> int:
        if not 0 <= group_rank < len(self._ranks):
            raise ValueError(
                f"dist.{name}: rank {group_rank} is not in this group of {len(self._ranks)} ranks"
            )
        return self._ranks[group_rank]


def _watched(method: str) -> Callable[..., Work | None]:
    name = _NAMES[method]

    def operation(self: WatchedProcessGroup, *args: Any, **kwargs: Any) -> Work | None:
        options: Any = kwargs.get("opts") if kwargs else args[-1] if args else None
        waits = not getattr(options, "asyncOp", True)
        number = self.issue(method, args, kwargs, options, waits)
        buffer = None
        if args and not waits:
            buffer = buffer_of(name, args[0], self._writes(method, options))
        try:
            work: Work = getattr(self._inner, method)(*args, **kwargs)
            if waits:  # as torch.distributed would, that then need not
                work.wait()
        except BaseException:
            _recorder.step("leave", number)
            raise
        if waits:
            _recorder.end(number)
            return None
        return WatchedWork(work, number, buffer)

    operation.__name__ = method
    return operation


for _method in _NAMES:
    if hasattr(dist.ProcessGroup, _method):
        setattr(WatchedProcessGroup, _method, _watched(_method))


class WatchedGloo(WatchedProcessGroup):
    """In the place of gloo."""

    real = ProcessGroupGloo
    Options = ProcessGroupGloo.Options
    backend, device, kind = "gloo", "cpu", dist.ProcessGroup.BackendType.GLOO


def _watched_nccl(real: Any) -> type[WatchedProcessGroup]:
    """What stands in the place of NCCL, which not every torch has."""

    class WatchedNCCL(WatchedProcessGroup):
        Options = real.Options
        backend, device, kind = "nccl", "cuda", dist.ProcessGroup.BackendType.NCCL

    WatchedNCCL.real = real
    return WatchedNCCL


def _tensors(argument: Any) -> list[torch.Tensor]:
    if isinstance(argument, torch.Tensor):
        return [argument]
    if isinstance(argument, (list, tuple)):
        return [tensor for item in argument for tensor in _tensors(item)]
    return []


@functools.cache
def _op_name(operation: Any) -> str:
    return str(operation).rpartition(".")[2]


def _refuse_strided(name: str, tensors: Sequence[torch.Tensor]) -> None:
    """gloo's collectives take a tensor's memory from its first element on, whatever the strides:
    wrong numbers, or a crash. So do ranks that differ in their memory format."""
    for tensor in tensors:
        if tensor.layout is not torch.strided or tensor.is_contiguous():
            continue
        raise ValueError(
            f"dist.{name} needs contiguous tensors; this one has shape {tuple(tensor.shape)} and "
            f"strides {tensor.stride()}. Call .contiguous() first (and copy the result back, if "
            "the operation is in place)"
        )


def look_at_futures() -> None:
    """Records what is complete by now: who waits for a future goes on before its callbacks run."""
    for number in [*_futures]:
        _look_at_future(number)


def _look_at_future(number: int) -> None:
    found = _futures.get(number)
    if found and found[0].done() and _futures.pop(number, None):
        found[1]._complete()


def install(recorder: Recorder, rank: int, world_size: int) -> None:
    """From now on every group that this process makes is watched, and recorded here."""
    global _recorder, _we, _life
    _recorder, _we, _life = recorder, (rank, world_size), 0
    _futures.clear()
    torch_names: Any = c10d
    torch_names.ProcessGroupGloo = WatchedGloo
    if c10d.is_nccl_available():
        torch_names.ProcessGroupNCCL = _watched_nccl(torch_names.ProcessGroupNCCL)
    torch_names.rendezvous = _meeting(torch_names.rendezvous)
    torch_names._new_process_group_helper = _making_group(torch_names._new_process_group_helper)
    torch_names._store_based_barrier = _joining(torch_names._store_based_barrier)


def stop() -> None:
    """From now on nothing is recorded, until the next `install`."""
    _recorder.stop()


def _meeting(rendezvous: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def recorded(url: str, rank: int = -1, size: int = -1, **kwargs: Any) -> Iterator[Any]:
        asked = os.environ.get("WORLD_SIZE") if size < 0 else str(size)
        everybody = range(_we[1]) if asked == str(_we[1]) else ()
        with _recorded("init_process_group", f"meeting {_life + 1}", everybody):
            met = next(rendezvous(url, rank, size, **kwargs))
        yield met

    return recorded


def _making_group(make_group: Callable[..., Any]) -> Callable[..., Any]:
    def recorded(
        size: int, rank: int, ranks: list[int], backend: Any, store: Any, name: str, **kwargs: Any
    ) -> Any:
        global _life, _next_group
        what = "new_group" if c10d.is_initialized() else "init_process_group"
        if what == "init_process_group":
            _life += 1
            if (rank, size) != _we:
                _recorder.write("lost")  # the program's ranks are not ours
            member = True
        else:
            member = dist.get_rank() in ranks
        _next_group = _unique(name), ranks or list(range(size))
        with _recorded(what, *_next_group) if member else contextlib.nullcontext():
            return make_group(size, rank, ranks, backend, store, name, **kwargs)

    return recorded


def _joining(join_barrier: Callable[..., None]) -> Callable[..., None]:
    def recorded(rank: int, store: Store, name: str, count: int, *args: Any, **kwargs: Any) -> None:
        everybody = list(range(dist.get_world_size()))
        with _recorded(
            "new_group_barrier",
            _unique(name),
            everybody if count == len(everybody) else _next_group[1],
        ):
            join_barrier(rank, store, name, count, *args, **kwargs)

    return recorded


def _unique(name: str) -> str:
    """torch's name of a group; the groups of a later default group have the same ones again."""
    return name if _life == 1 else f"{name} of life {_life}"


@contextlib.contextmanager
def _recorded(what: str, name: str, ranks: Iterable[int]) -> Iterator[None]:
    """Within it all of `ranks` are waited for; it is no operation of a group that exists."""
    group = _recorder.new_id()
    _recorder.write("group", group, name, list(ranks))
    with _waiting(_issue_plainly(what, group)):
        yield


def _issue_plainly(what: str, group: int) -> int:
    """Records that something without tensors is about to start; its number."""
    return _recorder.issue(what, group, None, None, None, None, (), 0, *calling_line())


@contextlib.contextmanager
def _waiting(number: int, for_ever: bool = True) -> Iterator[None]:
    """Records that an operation is waited for within it."""
    _recorder.wait(number, for_ever)
    try:
        yield
    except BaseException:
        _recorder.step("leave", number)
        raise
    _recorder.step("complete", number)
