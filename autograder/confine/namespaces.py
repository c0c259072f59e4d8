"""Namespaces: a world with a network, processes, files and IPC objects of its own.

Its network holds the loopback device alone. Its /proc shows nobody else's processes. What everybody
may write to, such as /tmp, is a small file system in memory that ends with the world, and rooms of
the grader's are covered.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from . import kernel

_NEW = {
    "network namespace": 0x40000000,
    "process namespace": 0x20000000,
    "mount namespace": 0x00020000,
    "IPC namespace": 0x08000000,
}
NAMES = tuple(_NEW)
PUBLIC = ("/tmp", "/var/tmp", "/dev/shm", "/run/lock")  # where everybody may write

_NOSUID, _NODEV, _NOEXEC, _READ_ONLY, _BIND, _RECURSIVE, _PRIVATE = 2, 4, 8, 1, 4096, 16384, 1 << 18
_SIZE = "size=128m,nr_inodes=16k,mode=1777"
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1  # of a network device


def enter(hidden: Sequence[str]) -> None:
    """Moves the calling process into new namespaces; it returns in a child, which is their first.

    hidden: directories that are empty from now on.

    Raises:
        OSError: the kernel refuses; only root may, and in a container usually nobody.
    """
    kernel.unshare(sum(_NEW.values()))
    if child := os.fork():
        _stand_by(child)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    _start_loopback()
    kernel.mount("none", "/", "", _RECURSIVE | _PRIVATE)
    _mount_proc()
    for directory in hidden:
        if Path(directory).is_dir():
            options = _NOSUID | _NODEV | _NOEXEC | _READ_ONLY
            kernel.mount("hidden", directory, "tmpfs", options, "size=4k,mode=0")
    for directory in public():
        _make_private(directory)


def public() -> list[str]:
    """The directories in which everybody may write, each once."""
    found = {os.path.realpath(path) for path in (*PUBLIC, tempfile.gettempdir())}
    return sorted(path for path in found if Path(path).is_dir())


def probe(name: str) -> str:
    """Why a namespace of that name cannot be had, or "". It changes the process that calls it.

    For the mounts it goes all the way: where a container covers parts of /proc, say, the kernel
    gives the namespaces, but no new /proc in them.
    """
    try:
        if name == "mount namespace":
            enter([])
        else:
            kernel.unshare(_NEW[name])
        if name == "network namespace":
            _start_loopback()
    except OSError as error:
        return str(error)
    return ""


def _stand_by(child: int) -> NoReturn:
    """What remains outside: it holds nothing open, and ends when the first process inside does."""
    os.closerange(0, 1 << 16)
    _, status = os.waitpid(child, 0)
    os._exit(status != 0)


def _start_loopback() -> None:
    with socket.socket() as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16xH", fcntl.ioctl(any_socket, _GET_FLAGS, request)[:18])[0]
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))


def _mount_proc() -> None:
    """The new namespace's own; users see their own processes in it."""
    kernel.mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC, "hidepid=2")


def _make_private(directory: str) -> None:
    """Puts an empty file system there; what Python imports from below it stays in its place."""
    kept = [
        (path, os.open(path, os.O_PATH | os.O_DIRECTORY))
        for path in sys.path
        if path.startswith(directory + os.sep) and Path(path).is_dir()
    ]
    kernel.mount("private", directory, "tmpfs", _NOSUID | _NODEV | _NOEXEC, _SIZE)
    for path, descriptor in kept:
        Path(path).mkdir(parents=True, exist_ok=True)
        kernel.mount(f"/proc/self/fd/{descriptor}", path, "", _BIND | _RECURSIVE)
        os.close(descriptor)
