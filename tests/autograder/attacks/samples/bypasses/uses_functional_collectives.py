# Uses functional collectives.
#
# check: broadcast/from_rank_0
# outcome: failed
# unconfined: yes
# ci: yes
# says: collectives.py, line

import torch.distributed._functional_collectives as functional

def broadcast(tensor, src, group=None):
    tensor.copy_(functional.all_reduce(tensor if dist.get_rank() == src else torch.zeros_like(tensor), "sum", group or dist.group.WORLD))
