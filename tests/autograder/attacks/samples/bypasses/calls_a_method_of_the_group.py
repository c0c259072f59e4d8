# Calls a method of the group.
#
# check: broadcast/from_rank_0
# outcome: failed
# unconfined: yes
# says: collectives.py, line

def broadcast(tensor, src, group=None):
    whole = group or dist.group.WORLD
    how = dist.BroadcastOptions()
    how.rootRank, how.rootTensor = dist.get_group_rank(whole, src), 0
    whole.broadcast([tensor], how).wait()
