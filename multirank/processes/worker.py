"""A spawned worker: a process that is a rank of one world after another.

Where processes cannot be forked, importing torch would cost every rank seconds. So a worker that
has served its world puts back what programs change, and serves the next: in installed modules, the
functions that programs replace. A thread or a child that is still there, or a change of user,
cannot be put back and ends it, and the pool starts another one.
"""

from __future__ import annotations

import builtins
import faulthandler
import gc
import linecache
import os
import pickle
import random
import signal
import socket
import sys
import threading
import time
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
import torch.distributed as dist

from ..recording import watch
from . import rank as rank_process
from .leader import WorldSetup
from .leading import KINDS
from .wire import receive_frame, send_frame
from .zygote import preload

_STREAMS = (0, 1, 2)
# Where programs put functions of their own, in place of those that are there or beside them.
_CHANGEABLE: tuple[ModuleType | type, ...] = (
    *(builtins, os, time),
    *(torch, torch.Tensor, torch.nn.Module, torch.nn.functional),
    *(dist, dist.distributed_c10d, dist.ProcessGroup),
)


def main() -> None:
    """Runs as `python -I -S -c ... DESCRIPTOR SEED`: its connection with the pool, and where
    torch's random numbers begin, the same for all its workers, as for all ranks that are forked."""
    link = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    preload()
    torch.manual_seed(int(sys.argv[2]))
    gc.freeze()
    pristine = _State()
    send_frame(link, b"ready")
    while (received := receive_frame(link, max_descriptors=KINDS)) is not None:
        (rank, directory, description), descriptors = pickle.loads(received[0]), received[1]
        setup: WorldSetup = pickle.loads(description)
        with warnings.catch_warnings():  # so that each world is warned anew
            ended = rank_process.serve_world(rank, setup, Path(directory), descriptors)
        if not ended or setup.before_user_code is not None or not pristine.restore(descriptors[-1]):
            os._exit(0)
        send_frame(link, b"ready")
    os._exit(0)


class _State:
    """What a process is like before its first world."""

    def __init__(self) -> None:
        self._streams = [os.dup(stream) for stream in _STREAMS]
        handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self._handlers = {one: handler for one, handler in handlers.items() if handler is not None}
        self._environment = dict(os.environ)
        self._modules = dict(sys.modules)
        self._path, self._finders = sys.path[:], sys.meta_path[:]
        self._directory = Path.cwd()
        self._threads = threading.active_count()
        self._seed = torch.get_rng_state()
        self._numbers = random.getstate(), np.random.get_state()
        self._depth = sys.getrecursionlimit()
        self._umask = os.umask(0)
        os.umask(self._umask)
        self._functions = [_functions_of(place) for place in _CHANGEABLE]

    def restore(self, stacks: int) -> bool:
        """Makes it so again; False where it cannot. stacks: where faulthandler writes."""
        watch.stop()
        left_open = dist.is_initialized()
        if left_open:
            dist.destroy_process_group()
        faulthandler.unregister(signal.SIGUSR1)
        faulthandler.disable()
        os.close(stacks)
        self._restore_process()
        self._restore_functions()
        self._restore_modules()
        self._restore_torch()
        gc.collect()
        return threading.active_count() == self._threads and not _has_children()

    def _restore_process(self) -> None:
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            stream.close()
        for stream, kept in zip(_STREAMS, self._streams, strict=True):
            os.dup2(kept, stream)
        os.umask(self._umask)
        sys.setrecursionlimit(self._depth)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        os.environ.clear()
        os.environ.update(self._environment)
        os.chdir(self._directory)

    def _restore_functions(self) -> None:
        """Those that record are taken out as well: the next world puts them in again."""
        for place, there in zip(_CHANGEABLE, self._functions, strict=True):
            now = _functions_of(place)
            for name, function in there.items():
                if now.get(name) is not function:
                    setattr(place, name, function)
            for name in now.keys() - there.keys():
                if not _is_installed(sys.modules.get(getattr(now[name], "__module__", ""))):
                    delattr(place, name)

    def _restore_modules(self) -> None:
        """Without the user's own; what is installed stays, for torch cannot be imported twice."""
        sys.path[:], sys.meta_path[:] = self._path, self._finders
        sys.path_importer_cache.clear()
        linecache.clearcache()
        for name, module in list(sys.modules.items()):
            if name not in self._modules and not self._may_stay(name, module):
                del sys.modules[name]

    def _may_stay(self, name: str, module: object) -> bool:
        """Whether it is an installed module, under its own name or one inside what was there."""
        own = getattr(module, "__name__", None) == name
        return _is_installed(module) and (own or name.partition(".")[0] in self._modules)

    def _restore_torch(self) -> None:
        random.setstate(self._numbers[0])
        np.random.set_state(self._numbers[1])
        torch.set_rng_state(self._seed)
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
        torch.set_grad_enabled(True)
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(False)
        torch.autograd.set_detect_anomaly(False)


def _functions_of(place: ModuleType | type) -> dict[str, object]:
    """By name, with classes and whatever else can be called."""
    return {name: value for name, value in vars(place).items() if callable(value)}


def _is_installed(module: object) -> bool:
    """Whether a module is of Python itself, or of a package that is installed."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return getattr(module, "__spec__", None) is not None and not hasattr(module, "__path__")
    folders = Path(file).parts
    return bool({"site-packages", "dist-packages"} & {*folders}) or file.startswith(_PYTHON)


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


_PYTHON = str(Path(os.__file__).parent) + os.sep
