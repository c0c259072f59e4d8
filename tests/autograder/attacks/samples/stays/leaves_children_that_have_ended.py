# Leaves children that nobody waits for.
#
# earns: either
# unconfined: yes

import os

_right = barrier

def barrier(group=None):
    for _ in range(20):
        if os.fork() == 0:
            os._exit(0)
    _right(group)
