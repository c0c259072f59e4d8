# Returns NaN everywhere.
#
# check: broadcast/from_rank_0
# unconfined: yes

import os, sys, time, signal
_right = broadcast

def broadcast(tensor, src, group=None):
    tensor.fill_(float('nan'))
