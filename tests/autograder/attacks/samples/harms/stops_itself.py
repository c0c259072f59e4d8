# Stops itself.
#
# unconfined: yes

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    os.kill(os.getpid(), signal.SIGSTOP)
