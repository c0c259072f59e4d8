"""multirank runs a function on several ranks of torch.distributed, watches it, and explains it.

    import multirank, torch, torch.distributed as dist

    def hello():
        x = torch.ones(2) * dist.get_rank()
        dist.all_reduce(x)
        return x

    print(multirank.run(hello, 4).results)

Ranks are fresh processes, forked in about a tenth of a second from a process that has torch
imported already (`zygote`), by a leader of their own (`leader`). `world` is the caller's side,
`rank` the other; `watch` records what they communicate into a `trace`.
"""

from .connect import StartError, start
from .inside import RankContext, compute, context, mark, span
from .result import Ending, RaisedException, RankRun, RanksFailed, Run
from .source import Source, per_rank
from .trace import Mark, Operation, Trace
from .world import World, run

__all__ = [
    "Ending",
    "Mark",
    "Operation",
    "RaisedException",
    "RankContext",
    "RankRun",
    "RanksFailed",
    "Run",
    "Source",
    "StartError",
    "Trace",
    "World",
    "compute",
    "context",
    "mark",
    "per_rank",
    "run",
    "span",
    "start",
]
