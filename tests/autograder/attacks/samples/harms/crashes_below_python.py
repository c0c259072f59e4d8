# Writes to address zero.
#
# outcome: crashed
# unconfined: yes
# ci: yes

import ctypes

def barrier(group=None):
    ctypes.memset(0, 1, 1)
