"""Frames on a socket: eight bytes of length, then that many bytes; descriptors ride on the length.

Both directions of the library use it. Towards a rank the payload may be a pickle; from a rank it
is JSON only, read through `FrameReader`, which never blocks and never takes more than its limit.
"""

from __future__ import annotations

import array
import socket
import struct
from collections.abc import Iterator, Sequence

_LENGTH = struct.Struct("!Q")


class WireError(RuntimeError):
    """The other side closed the connection in the middle of a frame, or sent an impossible one."""


def send_frame(connection: socket.socket, payload: bytes, descriptors: Sequence[int] = ()) -> None:
    """Sends one frame, with `descriptors` (at most 250) attached. Blocks until all is written."""
    header = _LENGTH.pack(len(payload))
    if descriptors:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        sent = connection.sendmsg([header], rights)
        connection.sendall(header[sent:] + payload)
    else:
        connection.sendall(header + payload)


def receive_frame(
    connection: socket.socket, max_descriptors: int = 0
) -> tuple[bytes, list[int]] | None:
    """Receives one frame from a trusted sender; None when the other side has closed.

    Raises:
        WireError: the connection ended inside a frame.
    """
    descriptors: list[int] = []
    header = b""
    while len(header) < _LENGTH.size:
        part, received, _, _ = socket.recv_fds(
            connection, _LENGTH.size - len(header), max_descriptors, socket.MSG_CMSG_CLOEXEC
        )
        descriptors += received
        if not part:
            if header:
                raise WireError("the connection ended inside a frame")
            return None
        header += part
    (length,) = _LENGTH.unpack(header)
    payload = bytearray(length)
    view = memoryview(payload)
    while view:
        count = connection.recv_into(view)
        if count == 0:
            raise WireError("the connection ended inside a frame")
        view = view[count:]
    return bytes(payload), descriptors


class FrameReader:
    """Collects frames from an untrusted, non-blocking socket.

    Args:
        connection: a socket in non-blocking mode.
        limit: the longest payload accepted, in bytes.
    """

    def __init__(self, connection: socket.socket, limit: int) -> None:
        self.closed = False
        self._connection = connection
        self._limit = limit
        self._buffer = bytearray()

    def frames(self) -> Iterator[bytes]:
        """Yields every complete frame that has arrived; sets `closed` at the end of the stream.

        Raises:
            WireError: a frame longer than the limit was announced.
        """
        self._fill()
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > self._limit:
                raise WireError(f"a frame of {length} bytes was announced; {self._limit} is most")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield payload

    def _fill(self) -> None:
        while not self.closed and len(self._buffer) <= self._limit + _LENGTH.size:
            try:
                part = self._connection.recv(1 << 16)
            except BlockingIOError:
                return
            except ConnectionError:
                part = b""
            if not part:
                self.closed = True
            self._buffer += part
