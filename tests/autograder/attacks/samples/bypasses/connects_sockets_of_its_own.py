# Connects sockets of its own to send its data.
#
# check: broadcast/from_rank_0
# says: Operation not permitted

import socket

def broadcast(tensor, src, group=None):
    listener = socket.create_server(("127.0.0.1", 23456 + dist.get_rank()))
    listener.close()
    raise AssertionError("BREACH listened")
