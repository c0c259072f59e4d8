"""A device in virtual time, to try a benchmark on: what its operations take is known, to the digit.

On a GPU a collective returns when it is launched, and is complete later; a benchmark that does not
wait measures launches. On CPU the same benchmark looks right. Here it does not:

    device = multirank.VirtualDevice([1e-3], asynchronous=True)   # on every rank
    with device:
        seconds = time_op(
            device.operation,
            clock=device.clock, synchronize=device.synchronize, barrier=device.barrier,
        )
    device.events                                                 # what it did, and when

Nothing waits for real, and `seconds` is the same on every machine. As with NCCL, `operation`
launches and returns; `synchronize` is there when all that this rank has launched is complete;
`barrier` lets the hosts wait for one another, while their devices may still work; and whoever
touches a tensor that an operation has yet to write waits for it. Inside the `with` block, torch's
own operations take time on the device as well.

`multirank.explain_timing` says what the events look like.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

LAUNCH = 5e-6  # seconds on the host for launching anything
KERNEL = 2e-3  # seconds on the device for one of torch's own operations

Event = tuple[str, float, str | float]
"""What happened, when (in virtual seconds, from 0), and what it was about: "clock", with what it
showed; "synchronize" and "barrier"; "launch", with the bytes of the larger side; "kernel" and
"message", with the name of an operation of torch's; "touch", with the name of what touched a tensor
that was not complete."""


class VirtualDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The device of one rank, and the clock of its host.

    Args:
        durations: what the calls of operations take on this rank, in seconds, in order; the last
            holds for all that follow.
        seconds_per_byte: comes on top, for each byte.
        asynchronous: operations return at launch, as on a GPU; else when they are complete.
        meet: an operation starts when the last rank has launched it; else at once.
        group: the ranks that meet, there and in barriers. None: all.
        late: the host begins this much later than time 0.
        busy: the device is at work until then.
        pause: what the host does for itself after each operation, once the clock has been read.
        barrier_seconds: what a barrier takes when all are there.
        origin: what the clock shows at time 0.

    Attributes:
        events: what happened on this rank.
    """

    def __init__(
        self,
        durations: Sequence[float],
        *,
        seconds_per_byte: float = 0.0,
        asynchronous: bool = False,
        meet: bool = True,
        group: dist.ProcessGroup | None = None,
        late: float = 0.0,
        busy: float = 0.0,
        pause: float = 0.0,
        barrier_seconds: float = 0.0,
        origin: float = 0.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.events: list[Event] = []
        self._durations = durations
        self._seconds_per_byte = seconds_per_byte
        self._asynchronous = asynchronous
        self._meet = meet
        self._group = group
        self._now = float(late)
        self._busy_until = busy
        self._pause = pause
        self._barrier_seconds = barrier_seconds
        self._origin = origin
        self._launched = 0
        self._unread = False  # whether the clock has not been read since the last operation
        self._pending: dict[int, float] = {}  # when the tensor at an address is complete
        self._ours = False  # whether the device itself communicates

    def clock(self) -> float:
        """The time in seconds; clocks of different ranks need not agree."""
        shown = self._origin + self._now
        self._note("clock", shown)
        if self._unread:
            self._now += self._pause
            self._unread = False
        return shown

    def synchronize(self) -> None:
        """Waits until all that this rank has launched is complete."""
        self._note("synchronize")
        self._now = max(self._now, self._busy_until)

    def barrier(self) -> None:
        """Waits for the hosts of the other ranks, and not for any device."""
        self._note("barrier")
        self._now = self._latest(self._now) + self._barrier_seconds

    def operation(self, *arguments: Any, **_: Any) -> None:
        """Launches a collective on these tensors, which are left as they are."""
        tensors = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor)]
        nbytes = max((_nbytes(argument) for argument in arguments), default=0)
        self._note("launch", nbytes)
        self._now += LAUNCH
        place = min(self._launched, len(self._durations) - 1)
        duration = self._durations[place] + nbytes * self._seconds_per_byte
        ready = max(self._now, self._busy_until)
        self._busy_until = (self._latest(ready) if self._meet else ready) + duration
        self._launched += 1
        self._unread = True
        if self._asynchronous:
            self._pending |= {_address(tensor): self._busy_until for tensor in tensors}
        else:
            self._now = self._busy_until

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not self._ours:
            self._run(function, [*tree_leaves(args), *tree_leaves(kwargs or {})])
        return function(*args, **(kwargs or {}))

    def _run(self, function: Any, arguments: Sequence[Any]) -> None:
        """What an operation of torch's costs."""
        name = str(function).removesuffix(".default")
        if name.startswith("c10d"):
            self._note("message", name)
            self._now += LAUNCH + self._barrier_seconds
        elif not function.is_view:
            touched = [self._pending.get(_address(t), 0.0) for t in arguments if _is_tensor(t)]
            if max(touched, default=0.0) > self._now:
                self._note("touch", name)
                self._now = max(touched)
            self._note("kernel", name)
            self._busy_until = max(self._busy_until, self._now) + KERNEL
            if not self._asynchronous or "_local_scalar_dense" in name:
                self._now = self._busy_until

    def _note(self, what: str, detail: str | float = "") -> None:
        self.events.append((what, self._now, detail))

    def _latest(self, moment: float) -> float:
        """The latest of the ranks' moments: real communication, for no virtual time."""
        self._ours = True
        try:
            latest = torch.tensor(moment, dtype=torch.float64)
            dist.all_reduce(latest, dist.ReduceOp.MAX, group=self._group)
            return latest.item()
        finally:
            self._ours = False


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _nbytes(argument: Any) -> int:
    """The bytes of a tensor, or of all tensors of a list."""
    return sum(leaf.nbytes for leaf in tree_leaves(argument) if isinstance(leaf, Tensor))
