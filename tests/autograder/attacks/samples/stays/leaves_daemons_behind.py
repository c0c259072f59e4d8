# Leaves daemons behind.
#
# earns: either

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for number in (1, 2, 15):
                    signal.signal(number, signal.SIG_IGN)
                time.sleep(600)
            os._exit(0)
    _right(group)
