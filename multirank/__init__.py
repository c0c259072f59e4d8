"""multirank runs a function on several ranks of torch.distributed, watches it, and explains it.

    import multirank, torch, torch.distributed as dist

    def hello():
        x = torch.ones(2) * dist.get_rank()
        dist.all_reduce(x)
        return x

    print(multirank.run(hello, 4).results)

Ranks are fresh processes, forked in about a tenth of a second from a process that has torch
imported already (`processes`). `world` is the caller's side of them. What they communicate is
recorded (`recording`); while they run, it is worked out who waits for whom, so that a deadlock ends
at once, with its story (`proving`). A trace can be replayed on a modelled fabric (`modelling`), so
that cost is exact and needs no cluster, and a benchmark can be tried on a virtual device. `explain`
says what wrong numbers look like (`explaining`), `explain_shards` what wrong parts of a tensor do,
`explain_timing` what a benchmark did wrong.
`timeline` draws a run or a replay (`timelines`).
"""

from .explaining.evidence import Facts
from .explaining.explain import Explanation, WrongRank, explain
from .explaining.shards import explain_shards
from .explaining.timing import explain_timing
from .inside import RankContext, compute, context, mark, span
from .modelling.activity import Activity
from .modelling.fabric import ETHERNET, ETHERNET_10, INFINIBAND, NVLINK, PCIE, Fabric
from .modelling.matching import ReplayError
from .modelling.programs import replay_programs
from .modelling.replay import Replay, replay
from .modelling.virtual_device import VirtualDevice
from .modelling.virtual_time import RankTime
from .processes.connect import StartError, start
from .proving.verdict import Verdict
from .recording.trace import Mark, Operation, Trace
from .result import Ending, RaisedException, RankRun, RanksFailed, Run
from .source import Source, per_rank
from .timelines.timeline import Timeline, timeline
from .world import World, run

__all__ = [
    "ETHERNET",
    "ETHERNET_10",
    "INFINIBAND",
    "NVLINK",
    "PCIE",
    "Activity",
    "Ending",
    "Explanation",
    "Fabric",
    "Facts",
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
    "Timeline",
    "Trace",
    "Verdict",
    "VirtualDevice",
    "World",
    "WrongRank",
    "compute",
    "context",
    "explain",
    "explain_shards",
    "explain_timing",
    "mark",
    "per_rank",
    "replay",
    "replay_programs",
    "run",
    "span",
    "start",
    "timeline",
]
