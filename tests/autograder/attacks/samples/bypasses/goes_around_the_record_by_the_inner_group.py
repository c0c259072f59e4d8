# Uses the group inside the one that records.
#
# flagged: by the kernel's count
# check: broadcast/from_rank_0
# earns: all
# ci: yes

def broadcast(tensor, src, group=None):
    whole = group or dist.group.WORLD
    how = dist.BroadcastOptions()
    how.rootRank, how.rootTensor = dist.get_group_rank(whole, src), 0
    values = tensor.contiguous()
    whole._inner.broadcast([values], how).wait()
    tensor.copy_(values)
