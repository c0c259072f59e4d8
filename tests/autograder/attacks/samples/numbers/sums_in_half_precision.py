# Sends its numbers in bfloat16.
#
# check: all_reduce/sum
# unconfined: yes
# ci: yes

_right = all_reduce

def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    half = tensor.bfloat16()
    _right(half, op, group)
    tensor.copy_(half)
