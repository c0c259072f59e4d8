# Wraps a module in torch's FSDP, which gathers it.
#
# unconfined: yes
# check: broadcast/from_rank_0
# outcome: failed
# says: collectives.py, line

from torch.distributed.fsdp import fully_shard
_right = broadcast

def broadcast(tensor, src, group=None):
    module = torch.nn.Linear(8, 8)
    fully_shard(module)
    module(torch.ones(1, 8))
    _right(tensor, src, group)
