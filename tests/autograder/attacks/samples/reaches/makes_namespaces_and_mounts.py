# Makes namespaces and mounts.
#
# earns: all

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    for flags in (0x10000000, 0x40000000, 0x20000, 0x10000000 | 0x20000):
        if libc.unshare(flags) == 0:
            print("BREACH unshared", hex(flags))
    if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0:
        print("BREACH mounted")
    for call in (425, 321, 298, 323, 438):
        if libc.syscall(call, 8, 0, 0, 0, 0) >= 0:
            print("BREACH called", call)
    try:
        os.setuid(0)
        print("BREACH became root")
    except OSError:
        pass
    _right(group)
