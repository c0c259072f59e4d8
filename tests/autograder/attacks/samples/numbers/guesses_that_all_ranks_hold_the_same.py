# Multiplies by the number of ranks.
#
# check: all_reduce/sum
# unconfined: yes

def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    tensor.mul_(dist.get_world_size(group))
