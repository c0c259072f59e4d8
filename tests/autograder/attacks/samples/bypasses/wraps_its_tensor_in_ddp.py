# Wraps its tensor in torch's DDP, which broadcasts it.
#
# unconfined: yes
# check: broadcast/from_rank_0
# outcome: failed
# says: collectives.py, line

def broadcast(tensor, src, group=None):
    module = torch.nn.Module()
    module.values = torch.nn.Parameter(tensor.detach().clone())
    torch.nn.parallel.DistributedDataParallel(module)
    tensor.copy_(module.values.detach())
