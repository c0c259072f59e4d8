# Opens a store of its own to pass data.
#
# check: broadcast/from_rank_0

from datetime import timedelta

def broadcast(tensor, src, group=None):
    dist.TCPStore("127.0.0.1", 23456, None, dist.get_rank() == 0, timeout=timedelta(seconds=2))
    print("BREACH opened a store")
