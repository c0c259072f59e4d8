# The last rank alone has a wrong result, in one element.
#
# check: all_reduce/sum
# unconfined: yes

_right = all_reduce

def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    _right(tensor, op, group)
    if dist.get_rank() == dist.get_world_size() - 1:
        tensor.view(-1)[-1] += 1
