# Calls the library's own function by a name put together.
#
# check: broadcast/from_rank_0
# outcome: failed
# ci: yes
# unconfined: yes
# says: collectives.py, line

def broadcast(tensor, src, group=None):
    getattr(dist, "broad" + "cast")(tensor, src, group)
