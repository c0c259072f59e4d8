"""multirank runs a function on several ranks of torch.distributed, watches it, and explains it.

    import multirank, torch, torch.distributed as dist

    def hello():
        x = torch.ones(2) * dist.get_rank()
        dist.all_reduce(x)
        return x

    print(multirank.run(hello, 4).results)

Ranks are fresh processes, forked in about a tenth of a second from a process that has torch
imported already (`zygote`), by a leader of their own (`leader`). `world` is the caller's side,
`rank` the other; `watch` records what they communicate into a `trace`. While they run, a `ledger`
of who waits for whom lets the `prover` end a deadlock at once, with its story (`verdict`). A trace
can be replayed on a modelled fabric (`replay`), so that cost is exact and needs no cluster.
"""

from .activity import Activity
from .connect import StartError, start
from .fabric import ETHERNET, ETHERNET_10, INFINIBAND, NVLINK, PCIE, Fabric
from .inside import RankContext, compute, context, mark, span
from .matching import ReplayError
from .programs import replay_programs
from .replay import Replay, replay
from .result import Ending, RaisedException, RankRun, RanksFailed, Run
from .source import Source, per_rank
from .trace import Mark, Operation, Trace
from .verdict import Verdict
from .virtual_time import RankTime
from .world import World, run

__all__ = [
    "ETHERNET",
    "ETHERNET_10",
    "INFINIBAND",
    "NVLINK",
    "PCIE",
    "Activity",
    "Ending",
    "Fabric",
    "Mark",
    "Operation",
    "RaisedException",
    "RankContext",
    "RankRun",
    "RankTime",
    "RanksFailed",
    "Replay",
    "ReplayError",
    "Run",
    "Source",
    "StartError",
    "Trace",
    "Verdict",
    "World",
    "compute",
    "context",
    "mark",
    "per_rank",
    "replay",
    "replay_programs",
    "run",
    "span",
    "start",
]
