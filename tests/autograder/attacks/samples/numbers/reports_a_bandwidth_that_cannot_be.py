# Reports that everything takes a nanosecond.
#
# module: bandwidth
# check: time_op/barrier_is_not_timed, time_op/sub_group
# unconfined: yes

import dataclasses

_right_time_op = time_op

def time_op(*arguments, **more):
    _right_time_op(*arguments, **more)
    return 1e-9
