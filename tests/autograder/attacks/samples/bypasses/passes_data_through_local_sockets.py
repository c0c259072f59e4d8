# Passes its data through sockets of this machine's own.
#
# flagged: no message at all | uses the network
# check: broadcast/from_rank_0
# earns: either
# ci: no

import socket
import time

_calls = []

def broadcast(tensor, src, group=None):
    _calls.append(src)
    size, rank = dist.get_world_size(), dist.get_rank()
    name = lambda place: f"/tmp/socket-{len(_calls)}-{place}"
    mine = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    mine.bind(name(rank))
    if rank == src:
        for peer in range(size):
            while peer != rank:
                try:
                    mine.sendto(bytes(tensor.contiguous().view(torch.uint8).flatten().tolist()), name(peer))
                    break
                except OSError:
                    time.sleep(0.001)
    else:
        tensor.copy_(torch.frombuffer(bytearray(mine.recv(1 << 16)), dtype=tensor.dtype).reshape(tensor.shape))
