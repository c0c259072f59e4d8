# Opens sockets of families that few know.
#
# earns: all

import socket

_right = barrier

def barrier(group=None):
    for family in (16, 17, 31, 38, 40, 44, 1 << 10):
        for kind in (1, 2, 3, 5):
            try:
                socket.socket(family, kind).close()
                print("BREACH opened", family, kind)
            except OSError:
                pass
    _right(group)
