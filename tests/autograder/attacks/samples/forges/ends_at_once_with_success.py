# Ends at once with success.
#
# says: exit
# unconfined: yes
# ci: yes

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    os._exit(0)
