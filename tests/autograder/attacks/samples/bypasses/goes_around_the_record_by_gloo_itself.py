# Uses gloo's object behind the group.
#
# flagged: by the kernel's count
# ci: yes
# check: broadcast/from_rank_0
# earns: all

def broadcast(tensor, src, group=None):
    whole = group or dist.group.WORLD
    how = dist.BroadcastOptions()
    how.rootRank, how.rootTensor = dist.get_group_rank(whole, src), 0
    values = tensor.contiguous()
    whole._real.broadcast([values], how).wait()
    tensor.copy_(values)
