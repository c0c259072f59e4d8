# Calls the operator behind the library's function, which no record sees.
#
# check: broadcast/from_rank_0
# earns: either
# flagged: by the kernel's count

def broadcast(tensor, src, group=None):
    whole = group or dist.group.WORLD
    torch.ops.c10d.broadcast_([tensor], whole.boxed() if hasattr(whole, "boxed") else whole, dist.get_group_rank(whole, src), 0, False, -1)
