# Closes what it talks with.
#
# unconfined: yes

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    os.closerange(0, 4096)
    time.sleep(1e6)
