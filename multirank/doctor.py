"""What works on this machine, in words: `python -m multirank.doctor`.

Each line is something that ranks need: it is tried, not guessed. Where something does not work, it
says what to do. The exit code is 1 where something that is needed does not work.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata

import torch
import torch.distributed as dist

from .processes import connect
from .processes.memory import shared_file
from .result import RanksFailed
from .world import run

TESTED_TORCH = "2.13"
_LOOPBACK = "127.0.0.1"
_SLOW = 1.0  # seconds that a run of two ranks takes once warm, at most
_ROOM = 1 << 30  # bytes of shared memory or of disk


@dataclass(frozen=True)
class Finding:
    """One line. good: True, False, or None where it is only worth knowing."""

    name: str
    good: bool | None
    told: str


def findings() -> Iterator[Finding]:
    """Everything, as soon as it is known."""
    for look in (python, torch_version, cores, memory, loopback, own_name, ranks, gpus):
        try:
            yield look()
        except Exception as error:  # of a machine unlike any that we know
            name = look.__name__.replace("_", " ")
            told = f"cannot be found out ({type(error).__name__}: {error})"
            if look in (cores, own_name, gpus):
                yield Finding(name, None, told)
            else:  # ranks need it
                yield Finding(name, False, f"{told}; show this line to the course's staff")


def python() -> Finding:
    """Python and the system."""
    good = sys.version_info >= (3, 11)
    system = f"{platform.system()} on {platform.machine()}"
    told = f"{platform.python_version()}, {system}"
    if platform.system() == "Windows":
        return Finding("Python", False, f"{told}; use WSL2, in which this is Linux")
    return Finding("Python", good, told if good else f"{told}; 3.11 or newer is needed")


def torch_version() -> Finding:
    """torch, with the backend that ranks on CPU use."""
    version = str(torch.__version__)
    if not dist.is_available() or not dist.is_gloo_available():
        return Finding("torch", False, f"{version}, built without gloo; install it with pip")
    if not version.startswith(f"{TESTED_TORCH}."):
        told = f"{version}; tested with {TESTED_TORCH}: pip install -c constraints.txt torch"
        return Finding("torch", False, told)
    numpy = metadata.version("numpy")
    return Finding("torch", True, f"{version} with gloo, numpy {numpy}")


def cores() -> Finding:
    """How many ranks can compute at once."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    busy = os.getloadavg()[0]
    told = f"{count}, of which {busy:.1f} are busy"
    if (count or 1) < 2:
        told += "; ranks take turns, and measured times mean little"
    return Finding("cores", None if (count or 1) < 2 else True, told)


def memory() -> Finding:
    """Memory that ranks and their parent share, and the place for their files."""
    file = shared_file(1 << 20, "multirank-doctor")
    try:
        os.pwrite(file, b"x", (1 << 20) - 1)
    finally:
        os.close(file)
    place = tempfile.gettempdir()
    if (free := shutil.disk_usage(place).free) < _ROOM:
        told = f"only {free >> 20} MiB are free in {place}; make room, or set TMPDIR"
        return Finding("shared memory", False, told)
    kind = "memfd" if hasattr(os, "memfd_create") else f"files in {place}"
    return Finding("shared memory", True, kind)


def loopback() -> Finding:
    """Whether processes of this machine can connect with one another."""
    try:
        with socket.create_server((_LOOPBACK, 0)) as server:
            server.settimeout(3)
            with socket.create_connection(server.getsockname(), timeout=3) as one:
                other, _ = server.accept()
                with other:
                    one.sendall(b"x")
                    other.settimeout(3)
                    other.recv(1)
    except OSError as error:
        told = (
            f"{error}; a firewall stands between this machine's own processes: let {_LOOPBACK} be"
        )
        return Finding("loopback", False, told)
    return Finding("loopback", True, f"connections to {_LOOPBACK} work; no firewall is in the way")


def own_name() -> Finding:
    """Whether the machine finds itself by its own name, which torchrun and gloo may ask for."""
    name = socket.gethostname()
    started = time.monotonic()
    try:
        socket.getaddrinfo("localhost", None)
    except OSError as error:
        told = (
            f"localhost is not found ({error}); /etc/hosts should have a line `127.0.0.1 localhost`"
        )
        return Finding("names", False, told)
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        told = (
            f"localhost is found, this machine's own name {name} is not. multirank needs neither; "
            f"for torchrun, add `127.0.0.1 {name}` to /etc/hosts"
        )
        return Finding("names", None, told)
    if (seconds := time.monotonic() - started) > 1:
        told = (
            f"the name {name} is found, after {seconds:.0f} s; a line in /etc/hosts makes it quick"
        )
        return Finding("names", None, told)
    return Finding("names", True, f"localhost and {name} are found")


def ranks() -> Finding:
    """Whether ranks run: two, that add something up."""
    how = {connect.Method.FORK: "forked", connect.Method.SPAWN: "spawned, and kept warm"}
    try:
        run(_add, 2, timeout=60)
        started = time.monotonic()
        run(_add, 2, timeout=60)
        seconds = time.monotonic() - started
    except (connect.StartError, RanksFailed) as error:
        return Finding("ranks", False, f"two ranks that add something up do not work: {error}")
    told = f"two ranks run in {seconds:.2f} s ({how[connect.method()]})"
    if seconds > _SLOW:
        return Finding("ranks", None, f"{told}; that is slow: is something else running?")
    return Finding("ranks", True, told)


def _add() -> None:
    total = torch.ones(1)
    dist.all_reduce(total)
    if total.item() != dist.get_world_size():
        raise RuntimeError(f"the sum of {dist.get_world_size()} ones is {total.item()}")


def gpus() -> Finding:
    """GPUs, none of which is needed."""
    count = torch.cuda.device_count()
    if not count:
        return Finding("GPUs", None, "none that NCCL can use, and none is needed")
    names = [torch.cuda.get_device_name(place) for place in range(count)]
    nccl = "" if dist.is_nccl_available() else "; but this torch was built without NCCL"
    return Finding("GPUs", not nccl, f"{count}: {', '.join(dict.fromkeys(names))}{nccl}")


_SIGNS = {True: "ok", False: "NO", None: "--"}


def main(tell: Callable[[str], None] = print) -> int:
    """Tells line by line; the exit code."""
    good = True
    for one in findings():
        tell(f"{_SIGNS[one.good]:<3} {one.name:<14} {one.told}")
        good = good and one.good is not False
    tell("")
    tell("Everything that is needed works here." if good else "Mend what says NO, and try again.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
