# Opens descriptors until it cannot.

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    held = []
    try:
        for _ in range(20_000):
            held.append(os.pipe())
    except OSError as error:
        print("HELD", len(held), error)
    raise MemoryError("descriptors")
