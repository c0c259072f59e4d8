# Only rank 0 has a right result.
#
# ci: yes
# check: all_reduce/sum
# unconfined: yes

_right = all_reduce

def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    _right(tensor, op, group)
    if dist.get_rank():
        tensor.zero_()
