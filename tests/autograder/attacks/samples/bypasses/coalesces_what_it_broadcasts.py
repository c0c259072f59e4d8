# Hides a broadcast among coalesced operations.
#
# unconfined: yes
# check: broadcast/from_rank_0
# outcome: failed
# says: collectives.py, line | not

import torch.distributed.distributed_c10d as c10d

def broadcast(tensor, src, group=None):
    with c10d._coalescing_manager(group or dist.group.WORLD, async_ops=False):
        dist.broadcast(tensor, src, group)
