"""Programs of communication that exist in the model only: any number of ranks, none of them run.

def ring(rank, n, nbytes):
    for _ in range(2 * (n - 1)):
        send, receive = Isend((rank + 1) % n, nbytes // n), Irecv((rank - 1) % n)
        yield from (send, receive, Wait(send), Wait(receive))

replay_programs([ring(rank, 1000, 2**26) for rank in range(1000)], INFINIBAND).makespan
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..recording.trace import Mark, Operation
from . import virtual_time
from .fabric import Fabric
from .matching import ReplayError
from .replay import Replay
from .virtual_time import Simulation, collection_paused


class Step:
    """What a rank does next: one of the classes below. Each object stands for one step."""

    __slots__ = ()


@dataclass(frozen=True, eq=False, slots=True)
class Send(Step):
    """Sends `nbytes` to rank `peer`; the rank goes on when they have arrived."""

    peer: int
    nbytes: int
    tag: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Recv(Step):
    """Receives what rank `peer` sends, or any rank where it is None; goes on when it is there."""

    peer: int | None = None
    tag: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Isend(Step):
    """Begins to send `nbytes` to rank `peer`. The step is its own handle, for `Wait`."""

    peer: int
    nbytes: int
    tag: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Irecv(Step):
    """Begins to receive from rank `peer`, or any rank where it is None; its own handle too."""

    peer: int | None = None
    tag: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Collective(Step):
    """A built-in collective, priced as the fabric says.

    Attributes:
        name: as in torch.distributed, such as "all_reduce".
        nbytes: the size of the full tensor, see `Fabric.collective`.
        group: the ranks that take part; None: all.
        async_op: whether the rank goes on at once; the step is then a handle, for `Wait`.
    """

    name: str
    nbytes: int
    group: tuple[int, ...] | None = None
    async_op: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Wait(Step):
    """Waits until what `step` (Isend, Irecv or an asynchronous Collective) began is complete."""

    step: Step


@dataclass(frozen=True, eq=False, slots=True)
class Compute(Step):
    """Computes for `seconds`; `label` is for people."""

    seconds: float
    label: str = ""


@collection_paused()
def replay_programs(programs: Sequence[Iterable[Step]], fabric: Fabric) -> Replay:
    """Runs a program for each rank on a modelled fabric, in virtual time.

    Args:
        programs: the steps of rank r at place r: a list, or a generator, which is asked for its
            next step when the rank has come to it.
        fabric: what messages and collectives cost.

    Raises:
        ReplayError: as `replay`.
    """
    everybody = tuple(range(len(programs)))
    simulation = Simulation(
        fabric, [_steps(rank, program, everybody) for rank, program in enumerate(programs)]
    )
    simulation.run()
    return Replay(fabric, simulation.makespan, simulation.rank_times(), simulation.critical_path())


def _steps(
    rank: int, program: Iterable[Step], everybody: tuple[int, ...]
) -> Iterator[virtual_time.Step]:
    """A program's steps in the terms of the model."""
    begun: dict[Step, Operation] = {}
    for number, step in enumerate(program):
        if isinstance(step, Wait):
            if step.step not in begun:
                raise ReplayError(f"rank {rank} waits for {step.step}, which it has not begun")
            yield virtual_time.Wait(begun.pop(step.step))
        elif isinstance(step, Compute):
            yield Mark(rank, "compute", step.label, 0.0, step.seconds)
        else:
            operation = _operation(rank, number, step, everybody)
            yield operation
            if isinstance(step, Send | Recv) or (
                isinstance(step, Collective) and not step.async_op
            ):
                yield virtual_time.Wait(operation)
            else:
                begun[step] = operation


def _operation(rank: int, number: int, step: Step, everybody: tuple[int, ...]) -> Operation:
    name, group, peer, tag, nbytes = "recv", everybody, None, None, 0
    if isinstance(step, Collective):
        name, group, nbytes = step.name, step.group or everybody, step.nbytes
    elif isinstance(step, Recv | Irecv):
        peer, tag = step.peer, step.tag
    elif isinstance(step, Send | Isend):
        name, peer, tag, nbytes = "send", step.peer, step.tag, step.nbytes
    else:
        raise ReplayError(f"rank {rank} has {step!r} in its program, which is no step")
    return Operation(rank, number, name, group, peer, tag, None, None, (), nbytes, 0.0, "", 0)
