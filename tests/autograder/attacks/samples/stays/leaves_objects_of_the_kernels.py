# Leaves queues, semaphores and segments that outlive processes.
#
# earns: all
# ci: yes

import ctypes

_right = barrier

def barrier(group=None):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.shmget(0, 4096, 0o1666) >= 0 or libc.msgget(0, 0o1666) >= 0 or libc.semget(0, 1, 0o1666) >= 0:
        print("BREACH made an object")
    if libc.mq_open(b"/left", 0o102, 0o666, None) >= 0:
        print("BREACH made a queue")
    _right(group)
