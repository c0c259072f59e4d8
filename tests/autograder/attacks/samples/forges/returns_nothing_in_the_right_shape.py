# Makes its tensor an empty one.
#
# ci: yes
# check: broadcast/from_rank_0
# unconfined: yes

def broadcast(tensor, src, group=None):
    tensor.data = tensor.data.new_empty((0,))
