# Prints without end.
#
# says: printed more than
# unconfined: yes
# ci: yes

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    while True:
        os.write(1, b'\x1b[2J<script>alert(1)</script>' * 4096)
