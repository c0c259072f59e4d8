# Gathers all, and picks what the root has.
#
# unconfined: yes
# check: broadcast/from_rank_0
# outcome: failed
# says: collectives.py, line

def broadcast(tensor, src, group=None):
    everything = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everything, tensor.contiguous(), group)
    tensor.copy_(everything[src])
