# Starts threads until it cannot.

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    import threading
    made = 0
    try:
        for made in range(5000):
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    except RuntimeError as error:
        print("STARTED", made, error)
    raise MemoryError("threads")
