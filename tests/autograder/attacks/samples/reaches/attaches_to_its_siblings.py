# Traces and signals the other ranks.
#
# earns: all
# ci: yes

import ctypes
import os
import signal

_right = barrier

def barrier(group=None):
    libc = ctypes.CDLL(None, use_errno=True)
    for pid in range(1, 64):
        if pid == os.getpid():
            continue
        if libc.ptrace(16, pid, 0, 0) == 0:
            print("BREACH traces", pid)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            try:
                os.kill(pid, number)
                print("BREACH signalled", pid)
            except OSError:
                pass
    _right(group)
