# Records marks without number.
#
# says: record | had not finished
# unconfined: yes

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    import multirank
    for number in range(300_000):
        multirank.mark("x" * 200)
    _right(group)
