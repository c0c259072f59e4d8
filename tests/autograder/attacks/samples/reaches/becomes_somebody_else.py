# Tries to become somebody else, or to lift its limits.
#
# earns: all
# ci: yes

import ctypes
import os
import resource

_right = barrier

def barrier(group=None):
    libc = ctypes.CDLL(None, use_errno=True)
    for become in (lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgroups([0]),
                   lambda: os.setgid(0), lambda: os.chroot("/tmp"), lambda: os.mknod("/tmp/disk", 0o60666, 2048),
                   lambda: resource.setrlimit(resource.RLIMIT_NPROC, (10**6, 10**6)),
                   lambda: os.nice(-5), lambda: os.chown("/tmp", 0, 0)):
        try:
            become()
            print("BREACH became")
        except (OSError, ValueError):
            pass
    for call in (101, 310, 311, 272, 304, 175, 246, 169):
        if libc.syscall(call, 1, 0, 0, 0, 0) >= 0:
            print("BREACH called", call)
    _right(group)
