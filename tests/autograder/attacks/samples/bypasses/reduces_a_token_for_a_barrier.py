# Reduces a token, and calls that a barrier.
#
# unconfined: yes
# check: barrier/sub_group
# outcome: failed
# says: collectives.py, line

def barrier(group=None):
    dist.all_reduce(torch.ones(1), group=group)
