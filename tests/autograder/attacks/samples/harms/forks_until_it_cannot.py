# Forks until it cannot.
#
# ci: yes

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    made = 0
    try:
        for made in range(2000):
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
    except OSError as error:
        print("FORKED", made, error)
    raise MemoryError("forked")
