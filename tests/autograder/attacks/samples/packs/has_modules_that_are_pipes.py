# Has a pipe in the place of a module.
#
# unconfined: yes

import os

def make(at, files):
    for name, content in files.items():
        (at / name).write_bytes(content)
    (at / "collectives.py").unlink()
    os.mkfifo(at / "collectives.py")
    return at
