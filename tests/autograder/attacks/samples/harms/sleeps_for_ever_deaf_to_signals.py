# Sleeps for ever, deaf to signals.
#
# unconfined: yes

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    time.sleep(1e6)
