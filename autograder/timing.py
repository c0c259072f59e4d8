"""Benchmarks on a device of virtual time: what they must report, and what they did instead.

A probe is data: how long each call takes on each rank, when ranks come, what barriers cost. So what
is right is known to the digit, and each probe is made such that one mistake alone shows in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import multirank
from autograder.failure import CheckFailed
from autograder.judge import Answer, Case, Judge
from multirank.modelling.virtual_device import LAUNCH

MS = 1e-3
_CLOSE = 1e-4  # of what is right: no mistake is as small, and no float32 as coarse
_EVENTS = 10_000  # of one rank; a right solution has some dozens


@dataclass(frozen=True)
class Probe:
    """One measurement by each rank of a group.

    devices: for each rank of the group, the settings of its `multirank.VirtualDevice`.
    warmup, iterations: what is asked for.
    members: the ranks of a sub-group of four ranks; None: all ranks there are.
    """

    devices: Sequence[Mapping[str, Any]]
    warmup: int = 1
    iterations: int = 3
    members: tuple[int, ...] | None = None

    @property
    def ranks(self) -> tuple[int, ...]:
        """The global ranks that take part."""
        return self.members or tuple(range(len(self.devices)))

    @property
    def world_size(self) -> int:
        return 4 if self.members else len(self.devices)

    @property
    def facts(self) -> dict[str, str]:
        """What a student is told about it."""
        facts = {
            "world size": str(self.world_size),
            "warmup": str(self.warmup),
            "iterations": str(self.iterations),
        }
        return facts | ({"group": str(list(self.members))} if self.members else {})

    def case(self, function: str) -> Case:
        return Case("bandwidth", function, self.world_size, self.members, on_gpu=False)

    def inputs(self, **more: Any) -> list[dict[str, Any] | None]:
        """For each global rank its inputs; None for a rank outside the group."""
        asked = {"warmup": self.warmup, "iterations": self.iterations} | more
        given: list[dict[str, Any] | None] = [None] * self.world_size
        for rank, device in zip(self.ranks, self.devices, strict=True):
            given[rank] = asked | {"device": dict(device)}
        return given

    def seconds(self, nbytes: int = 0) -> float:
        """What is right: the slowest rank of each iteration, and their median.

        nbytes: of the operation.
        """
        timed = range(self.warmup, self.warmup + self.iterations)
        return LAUNCH + median(
            max(_duration(device, call, nbytes) for device in self.devices) for call in timed
        )


def _duration(device: Mapping[str, Any], call: int, nbytes: int) -> float:
    durations: Sequence[float] = device["durations"]
    spent: float = nbytes * device.get("seconds_per_byte", 0.0)
    return durations[min(call, len(durations) - 1)] + spent


def require_times(judge: Judge, probes: Sequence[Probe], told: str) -> None:
    """time_op must report the right seconds in every probe, on every rank.

    told: what is special about the probes, as the end of "time_op reports too much ...".

    Raises:
        CheckFailed: it does not.
    """
    for probe in probes:
        (answer,) = judge.run(probe.case("time_op"), [probe.inputs()], facts=[probe.facts])
        reported = [answer.get(rank, "seconds", float) for rank in probe.ranks]
        require_seconds("time_op", reported, probe.seconds(), events(answer, probe), probe, told)


def require_seconds(
    function: str,
    reported: Sequence[float],
    right: float,
    happened: Sequence[Sequence[Any]],
    probe: Probe,
    told: str,
) -> None:
    """The seconds of every rank must be right.

    Raises:
        CheckFailed: with what the events look like.
    """
    for rank, seconds in zip(probe.ranks, reported, strict=True):
        if not is_close(seconds, right):
            much = "too little" if seconds < right else "too much"
            why = multirank.explain_timing(happened, reported, probe.warmup, probe.iterations)
            raise CheckFailed(
                f"rank {rank}: {function} reports {much} time {told}", causes=[why] if why else []
            )


def is_close(found: float, right: float) -> bool:
    """Whether it is right but for rounding; NaN is not."""
    return abs(found - right) <= _CLOSE * abs(right)


def events(answer: Answer, probe: Probe) -> list[list[Any]]:
    """What happened on each rank's device.

    Raises:
        CheckFailed: it is not what a device notes down.
    """
    return [checked_events(rank, answer.plain(rank, "events")) for rank in probe.ranks]


def checked_events(rank: int, found: object) -> list[Any]:
    """The events of a rank, which may have given anything in their place.

    Raises:
        CheckFailed: they are not what a device notes down.
    """
    if not isinstance(found, list) or len(found) > _EVENTS:
        raise CheckFailed(f"rank {rank} gave no answer, or called things far too often")
    for event in found:
        match event:
            case ["clock", float(), float()] | ["launch", float(), int()]:
                continue
            case [str(kind), float(), str()] if kind not in ("clock", "launch"):
                continue
        raise CheckFailed(f"rank {rank} gave no answer")
    return found


def launched(happened: Sequence[Sequence[Any]]) -> list[int]:
    """The bytes of each operation that was launched on one rank."""
    return [event[2] for event in happened if event[0] == "launch"]
