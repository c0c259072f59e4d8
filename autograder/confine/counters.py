"""The kernel's own count of what each rank sends and receives over TCP.

What a rank records of its communication can be falsified by whoever runs in it; what the kernel
counts cannot. While a rank is still trusted, it marks the sockets of its process groups with a
number of its own (the user id that the kernel keeps for a socket, which means nothing else to
them), and later the grader asks the kernel about sockets with that mark.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import kernel

NAME = "TCP counters"

_FIRST_MARK, _OF_A_RANK = 1_000_000, 100_000  # marks lie above every user's id
_NEW_NETWORK = 0x40000000
_SETNS = (308, 268)

_SOCK_DIAG = 4  # of netlink
_BY_FAMILY, _DUMP, _ERROR, _DONE = 20, 0x301, 2, 3
_HEADER, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
_REQUEST = struct.Struct("=BBBxI48x")  # family, protocol, wanted attributes, states, any socket
_MARK_AT, _ATTRIBUTES_AT = 64, 72  # in the description of one socket
_INFO = 2  # the attribute that holds the counts
_COUNTS = struct.Struct("=128xQ64xQQ")  # received; sent, and of that, sent once more
_EVERY_STATE = 0xFFFFFFFF


@dataclass(frozen=True)
class Count:
    """Bytes that one rank has sent, and that it has received."""

    sent: int = 0
    received: int = 0

    def __sub__(self, earlier: Count) -> Count:
        return Count(self.sent - earlier.sent, self.received - earlier.received)


def mark(uid: int, rank: int) -> None:
    """Marks the TCP sockets of the calling process, which is still root."""
    for path in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):  # the listing's own, or marks are not allowed here
            descriptor = int(path.name)
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode) and _is_tcp(descriptor):
                os.fchown(descriptor, _mark(uid, rank), -1)


def probe() -> str:
    """Why this layer does not work here, or ""."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as marked:
            os.fchown(marked.fileno(), _mark(0, 0), -1)
            with contextlib.closing(Counters(0, None)) as counters:
                told = {number for number, _ in counters._sockets(socket.AF_INET)}
    except OSError as error:
        return str(error)
    return "" if _mark(0, 0) in told else "the kernel does not tell what sockets have moved"


def _is_tcp(descriptor: int) -> bool:
    with socket.socket(fileno=os.dup(descriptor)) as one:
        return one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM


def _mark(uid: int, rank: int) -> int:
    return _FIRST_MARK + rank * _OF_A_RANK + uid


class Counters:
    """What the ranks of one world have moved so far.

    Args:
        uid: the world's user.
        pid: a process of the world's, in whose network namespace to ask; None: in ours.

    Raises:
        OSError: the kernel cannot be asked.
    """

    def __init__(self, uid: int, pid: int | None) -> None:
        self._uid = uid
        self._kernel = _connect(pid)

    def read(self, world_size: int) -> list[Count] | None:
        """By rank; None where the kernel does not tell, or no socket has a mark."""
        counts: defaultdict[int, Count] = defaultdict(Count)
        marks = {_mark(self._uid, rank): rank for rank in range(world_size)}
        try:
            for family in (socket.AF_INET, socket.AF_INET6):
                for number, count in self._sockets(family):
                    if number in marks:
                        total = counts[marks[number]]
                        counts[marks[number]] = Count(
                            total.sent + count.sent, total.received + count.received
                        )
        except (OSError, struct.error):
            return None
        return [counts[rank] for rank in range(world_size)] if counts else None

    def close(self) -> None:
        self._kernel.close()

    def _sockets(self, family: int) -> Iterator[tuple[int, Count]]:
        """The mark of every TCP socket, and what it has moved."""
        wanted = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _EVERY_STATE)
        size = _HEADER.size + len(wanted)
        self._kernel.send(_HEADER.pack(size, _BY_FAMILY, _DUMP, 1, 0) + wanted)
        while True:
            answer = self._kernel.recv(1 << 18)
            while answer:
                length, kind, *_ = _HEADER.unpack_from(answer)
                if kind in (_DONE, _ERROR):
                    return
                yield from _counted(answer[_HEADER.size : length])
                answer = answer[_aligned(length) :]


def _counted(described: bytes) -> Iterator[tuple[int, Count]]:
    """The one socket that is described, if its counts are among it."""
    (number,) = struct.unpack_from("=I", described, _MARK_AT)
    attributes = described[_ATTRIBUTES_AT:]
    while len(attributes) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(attributes)
        if length < _ATTRIBUTE.size:
            return
        if kind == _INFO and length >= _ATTRIBUTE.size + _COUNTS.size:
            received, sent, again = _COUNTS.unpack_from(attributes, _ATTRIBUTE.size)
            yield number, Count(sent - again, received)
        attributes = attributes[_aligned(length) :]


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _connect(pid: int | None) -> socket.socket:
    """A socket to ask the kernel through, which stays in the network that it was made in."""
    made: list[socket.socket | OSError] = []

    def make() -> None:
        try:
            if pid is not None:
                with Path(f"/proc/{pid}/ns/net").open("rb") as network:
                    number = _SETNS[kernel.is_arm()]
                    kernel.system_call("setns", number, network.fileno(), _NEW_NETWORK)
            made.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG))
        except OSError as error:
            made.append(error)

    maker = threading.Thread(target=make)  # to move into a network is a thread's own affair
    maker.start()
    maker.join()
    (result,) = made
    if isinstance(result, OSError):
        raise result
    result.settimeout(2.0)
    return result
