"""The zygote: a process that has imported everything ranks need, and forks a leader per world.

It is exec'd once, isolated, with a clean environment and nothing secret in it. Whoever wants a
world connects to its socket; the zygote forks a leader that owns the connection, so what is sent
over it never passes through the zygote's memory. It makes no CUDA call, runs no backward and no
parallel operation, and so can be forked safely. It ends when the process that started it does.
"""

from __future__ import annotations

import gc
import importlib
import os
import selectors
import shutil
import signal
import socket
import struct
import sys
import warnings
from pathlib import Path

# With torch alone, the first optimizer step would cost every rank 1.2 s, and after a drop of
# privileges a late import can fail.
PRELOADED = (
    "torch",
    "torch.distributed",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.distributed.tensor.parallel",
    "torch.distributed.pipelining",
    "torch.distributed.device_mesh",
    "torch.distributed.nn.functional",
    "torch.distributed._functional_collectives",
    "torch.distributed.checkpoint",
    "torch.utils.checkpoint",
    "torch.testing",
    "numpy",
    "numpy.random",
    "numpy.linalg",
    "cloudpickle",
    "cProfile",
    "concurrent.futures",
    "dataclasses",
    "faulthandler",
    "fractions",
    "importlib.util",
    "inspect",
    "json",
    "linecache",
    "queue",
    "random",
    "statistics",
    "timeit",
    "traceback",
    "typing",
    "unittest",
)


def serve(listener: socket.socket) -> None:
    """Forks a leader for every connection until standard input is closed."""
    from . import leader

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    waiting = selectors.DefaultSelector()
    waiting.register(listener, selectors.EVENT_READ)
    waiting.register(0, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fd == 0:
                shutil.rmtree(Path(listener.getsockname()).parent, ignore_errors=True)
                os._exit(0)
            connection, _ = listener.accept()
            if _peer_uid(connection) == os.getuid() and _fork() == 0:
                waiting.close()
                listener.close()
                leader.main(connection)
            connection.close()


def _fork() -> int:
    try:
        return os.fork()
    except OSError as error:  # no process or memory left: this world fails, the next may not
        print(f"no leader could be forked: {error}", file=sys.stderr, flush=True)
        return -1


def _peer_uid(connection: socket.socket) -> int:
    if not hasattr(socket, "SO_PEERCRED"):
        return os.getuid()  # the socket lies in a directory that only our user may enter
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("3i", credentials)[1])


def main() -> None:
    """Runs as `python -I -S -c ... DESCRIPTOR`, the listening socket being that descriptor."""
    preload()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))


def preload() -> None:
    """Imports what ranks need."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in PRELOADED:
            importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    _renew_pools_of_threads()
    gc.collect()


def _renew_pools_of_threads() -> None:
    """From now on in every child, while it has a single thread.

    Torch leaves that to whoever asks first for the number of threads, and of two who ask at the
    same time, say a backward and an all-reduce behind it, one may find no pool.
    """
    from torch import get_num_threads, set_num_threads  # a program may put others in their place

    os.register_at_fork(after_in_child=lambda: set_num_threads(get_num_threads()))
