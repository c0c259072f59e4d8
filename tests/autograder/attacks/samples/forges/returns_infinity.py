# Returns infinity.
#
# check: broadcast/from_rank_0
# unconfined: yes
# ci: yes

def broadcast(tensor, src, group=None):
    tensor.fill_(float("inf"))
