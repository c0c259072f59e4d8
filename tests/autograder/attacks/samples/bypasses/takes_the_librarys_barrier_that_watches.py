# Takes a barrier of the library's that is not called so.
#
# unconfined: yes
# check: barrier/sub_group
# outcome: failed
# says: collectives.py, line | record

def barrier(group=None):
    dist.monitored_barrier(group)
