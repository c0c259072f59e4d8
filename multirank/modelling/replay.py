"""A run's trace again, on a modelled fabric and in virtual time.

    run = multirank.run(train, 8)
    replay = multirank.replay(run.trace, multirank.INFINIBAND)
    print(replay.makespan, replay.ranks[0].waiting)

What counts is what each rank did and in which order: what it issued, what it waited for, and the
compute that it declared with `multirank.compute`. No recorded time does, so every run of a program
gives the same result, on any machine. `virtual_time` holds the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from operator import attrgetter, itemgetter

from ..recording.trace import Operation, Trace
from .activity import Activity
from .fabric import Fabric
from .matching import ReplayError
from .virtual_time import RankTime, Simulation, Step, Wait, collection_paused


@dataclass(frozen=True)
class Replay:
    """What came of a replay; all times are seconds of virtual time, which begins at 0.

    Attributes:
        fabric: what it ran on.
        makespan: when everything was over.
        ranks: how each rank spent its time, in order.
        critical_path: the activities that determine the makespan, in order: the first begins at 0,
            each ends when the next one begins, and the last ends at the makespan.
        activities: all messages, collectives and computes, in the order of their starts. Empty for
            programs (`replay_programs`), of which nothing is kept.
        trace: the trace with the model's times instead of the recorded ones: operations, rank
            after rank, are issued, waited for and complete in virtual time, and marks lie in it;
            `dropped` is None. Empty for programs.
    """

    fabric: Fabric
    makespan: float
    ranks: tuple[RankTime, ...]
    critical_path: tuple[Activity, ...]
    activities: tuple[Activity, ...] = ()
    trace: Trace = field(default_factory=Trace)

    def bus_bandwidth(self, nbytes: float, factor: float) -> float:
        """Bus bandwidth in bytes per second, if all of this was one collective.

        factor * nbytes / makespan, as nccl-tests defines it (doc/PERFORMANCE.md); 0.0 if no time
        passed.

        Args:
            nbytes: the size S of the full tensor.
            factor: 2 (n-1)/n for all_reduce, (n-1)/n for reduce_scatter, all_gather, all_to_all,
                gather and scatter, 1 for broadcast and reduce.
        """
        return factor * nbytes / self.makespan if self.makespan else 0.0


@collection_paused()
def replay(trace: Trace, fabric: Fabric, world_size: int | None = None) -> Replay:
    """Replays what was recorded, on a modelled fabric.

    An operation that nobody waited for (a future's callback is no wait) holds up no rank, only the
    makespan. Making a group is free. A message has the size that its sender gave it.

    Args:
        trace: of a run that finished; it is not changed.
        fabric: what messages and collectives cost.
        world_size: the number of ranks, if there may be some that did nothing.

    Raises:
        ReplayError: the trace is damaged or not complete (a deadlock, an operation without a
            counterpart, collectives that do not fit together); its text names the operations.
    """
    if trace.damaged or trace.truncated:
        what = "is damaged" if trace.damaged else "was cut off, because it had grown too long"
        raise ReplayError(f"the trace {what}, so it cannot be replayed")
    recorded = sorted(trace.operations, key=attrgetter("rank"))  # each rank's stay in order
    operations = [_without_times(operation) for operation in recorded]
    found = {operation.rank for operation in operations} | {mark.rank for mark in trace.marks}
    found.update(rank for group in {op.group for op in operations} for rank in group)
    size = max(found, default=-1) + 1 if world_size is None else world_size
    if not found <= set(range(size)):
        raise ReplayError(f"the trace has ranks {sorted(found)}; they must be from 0 to {size - 1}")

    steps: list[list[tuple[float, Step]]] = [[] for _ in range(size)]
    for original, operation in zip(recorded, operations, strict=True):
        steps[operation.rank].append((original.issued, operation))
        if original.waited is not None:
            steps[operation.rank].append((original.waited, Wait(operation)))
    for mark in trace.marks:
        steps[mark.rank].append((mark.time, mark))

    simulation = Simulation(fabric, [_in_order(of_rank) for of_rank in steps], record=True)
    simulation.run()
    return Replay(
        fabric,
        simulation.makespan,
        simulation.rank_times(),
        simulation.critical_path(),
        simulation.activities(),
        Trace(operations, simulation.marks),
    )


_all_fields = attrgetter(*(each.name for each in fields(Operation)))


def _without_times(operation: Operation) -> Operation:
    """A copy that nobody has waited for yet (`dataclasses.replace` takes four times as long)."""
    copy = Operation(*_all_fields(operation))
    copy.waited = copy.completed = copy.dropped = None
    return copy


def _in_order(steps: list[tuple[float, Step]]) -> Iterator[Step]:
    """One rank's steps in the order in which it took them."""
    return iter([step for _, step in sorted(steps, key=itemgetter(0))])
