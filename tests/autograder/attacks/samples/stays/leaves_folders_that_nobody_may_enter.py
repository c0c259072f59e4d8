# Leaves folders that nobody may enter.
#
# earns: all

import os

_right = barrier

def barrier(group=None):
    for folder in ("/tmp", "/dev/shm", os.environ["TMPDIR"]):
        path = f"{folder}/closed-{os.getpid()}"
        try:
            os.makedirs(f"{path}/inner", exist_ok=True)
            open(f"{path}/inner/file", "w").close()
            os.chmod(f"{path}/inner", 0)
            os.chmod(path, 0)
        except OSError:
            pass
    _right(group)
