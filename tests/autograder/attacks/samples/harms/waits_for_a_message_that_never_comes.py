# Waits for a message that never comes.
#
# unconfined: yes

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    dist.recv(torch.ones(1), 0)
