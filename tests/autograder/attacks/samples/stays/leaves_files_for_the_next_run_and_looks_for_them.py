# Leaves files for the next run, and looks for them.
#
# earns: all

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    import glob
    own = os.environ.get("TMPDIR", "/tmp")
    for folder in ("/tmp", "/var/tmp", "/dev/shm", "/run/lock", own):
        mine = f"{folder}/hostile-message-{os.getpid()}"
        old = [n for n in glob.glob(f"{folder}/hostile-message-*")
               if time.time() - os.stat(n).st_mtime > 5]
        if old:
            print("BREACH found old", old)
        try:
            with open(mine, "w") as file:
                file.write("values")
            os.makedirs(f"{folder}/hostile-message-folder-{os.getpid()}/a/b", exist_ok=True)
        except OSError:
            pass
    _right(group)
