# Nests folders deeper than any stack and longer than any path.
#
# earns: either

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    for folder in (os.environ.get("TMPDIR", "/tmp"), "/dev/shm"):
        try:
            os.chdir(folder)
            for _ in range(3000):
                os.mkdir("a-folder-in-a-folder")
                os.chdir("a-folder-in-a-folder")
        except OSError as error:
            print("NESTED", error)
    os.chdir("/")
    _right(group)
