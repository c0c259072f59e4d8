# Skips every third call, once there are many: as in a measurement.
#
# unconfined: yes
# check: all_reduce/traffic
# says: wrong in one of many calls

_right, _calls = all_reduce, []

def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    _calls.append(1)
    if len(_calls) < 6 or len(_calls) % 3:
        _right(tensor, op, group)
