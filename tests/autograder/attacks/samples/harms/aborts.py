# Aborts.
#
# unconfined: yes

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    os.abort()
