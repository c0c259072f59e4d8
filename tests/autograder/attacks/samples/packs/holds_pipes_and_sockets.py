# Holds a pipe, a socket and a device's twin among its modules.
#
# unconfined: yes
# earns: all
# ci: yes

import os
import socket

def make(at, files):
    for name, content in files.items():
        (at / name).write_bytes(content)
    os.mkfifo(at / "pipe.py")
    os.link(at / "ddp.py", at / "twin.py")
    os.unlink(at / "twin.py")
    here = os.getcwd()
    os.chdir(at)
    socket.socket(socket.AF_UNIX).bind("socket.py")
    os.chdir(here)
    (at / "loop").symlink_to(".")
    return at
