# Raises SystemExit(0).
#
# unconfined: yes

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    raise SystemExit(0)
