# Broadcasts an object, which is pickled and run by the others.
#
# check: broadcast/from_rank_0
# outcome: failed
# unconfined: yes
# says: collectives.py, line

def broadcast(tensor, src, group=None):
    box = [tensor.clone()]
    dist.broadcast_object_list(box, src, group)
    tensor.copy_(box[0])
