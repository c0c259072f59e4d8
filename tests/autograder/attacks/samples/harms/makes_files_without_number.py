# Makes files without number.

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    for folder in ("/tmp", "/dev/shm", os.environ["TMPDIR"]):
        try:
            for number in range(20_000):
                open(f"{folder}/hostile-{os.getpid()}-{number}", "wb").close()
        except OSError as error:
            print("FULL", folder, number, error)
    raise MemoryError("files")
