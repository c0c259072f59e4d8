# Opens connections.
#
# earns: all

import socket, urllib.request
_right_barrier = barrier

def barrier(group=None):
    for family, kind in ((2, 1), (2, 2), (10, 1), (10, 2), (2, 3), (17, 3)):
        try:
            made = socket.socket(family, kind)
            made.settimeout(0.2)
            made.connect(("127.0.0.1", 9))
            print("BREACH opened", family, kind)
        except OSError:
            pass
    try:
        urllib.request.urlopen("http://127.0.0.1:9/", timeout=0.2)
    except OSError:
        pass
    _right_barrier(group)
