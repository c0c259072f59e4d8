"""Two implementations of one thing, timed as pairs.

Two worlds are alive at once and take turns, the other one stopped, so that noise hits both alike;
what counts is the median of the paired ratios.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch.distributed as dist

import multirank

_WARMUPS = 2


@dataclass(frozen=True)
class Pairs:
    """ratio: our time over theirs, the median of all pairs. ours, theirs: median times, in ms."""

    ratio: float
    ours: float
    theirs: float


def use(call: Callable[[], object]) -> None:
    """In a rank: this is what is timed."""
    multirank.context().state["call"] = call


def timed() -> float:
    """In a rank: seconds that one call took on it, from a barrier on."""
    call = multirank.context().state["call"]
    dist.barrier()
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def paired(ours: partial[None], theirs: partial[None], ranks: int, pairs: int) -> Pairs:
    """How long ours takes beside theirs; the slowest rank's time counts.

    Args:
        ours, theirs: are called on every rank of a world each, and call `use` there.
        pairs: how often both are timed.
    """
    with multirank.World(ranks) as our_world, multirank.World(ranks) as their_world:
        worlds = {"ours": our_world, "theirs": their_world}
        for world, prepare in ((our_world, ours), (their_world, theirs)):
            world.call(prepare)
            world.hold()
        times: dict[str, list[float]] = {"ours": [], "theirs": []}
        for pair in range(pairs + _WARMUPS):
            for name in sorted(worlds, reverse=pair % 2 == 1):
                worlds[name].release()
                seconds = max(worlds[name].call(timed).results)
                worlds[name].hold()
                if pair >= _WARMUPS:
                    times[name].append(seconds)
        for world in worlds.values():
            world.release()
    logs = [math.log(a / b) for a, b in zip(times["ours"], times["theirs"], strict=True)]
    return Pairs(
        round(math.exp(statistics.median(logs)), 3),
        round(1000 * statistics.median(times["ours"]), 2),
        round(1000 * statistics.median(times["theirs"]), 2),
    )
