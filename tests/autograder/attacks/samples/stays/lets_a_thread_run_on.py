# Lets a thread run on.
#
# earns: either
# unconfined: yes

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    import threading
    def run():
        while True:
            sum(range(1000))
    threading.Thread(target=run, daemon=True).start()
    _right(group)
