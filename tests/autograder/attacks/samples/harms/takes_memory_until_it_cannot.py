# Takes memory until it cannot.
#
# says: memory | had not finished

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    held = []
    for _ in range(256):
        held.append(b"x" * (64 << 20))
    print("TOOK", len(held) * 64, "MiB")
    time.sleep(30)
