# Does nothing at all.
#
# ci: yes
# check: all_reduce/sum
# unconfined: yes

def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    pass
