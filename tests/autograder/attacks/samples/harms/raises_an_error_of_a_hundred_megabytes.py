# Raises an error of a hundred megabytes.
#
# unconfined: yes

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    raise RuntimeError('\x1b]0;owned\x07</pre><script>' + 'x' * (100 << 20))
