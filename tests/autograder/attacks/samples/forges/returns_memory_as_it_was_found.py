# Returns memory as it was found.
#
# check: broadcast/from_rank_0
# unconfined: yes

def broadcast(tensor, src, group=None):
    tensor.copy_(torch.empty_like(tensor))
