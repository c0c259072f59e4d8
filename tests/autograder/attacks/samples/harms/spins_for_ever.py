# Spins for ever.
#
# unconfined: yes

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    while True:
        pass
