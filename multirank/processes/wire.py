"""Frames on a socket: eight bytes of length, then that many bytes; descriptors ride on the length.

Both directions of the library use it. Towards a rank the payload may be a pickle, sent by
`FrameWriter` as fast as the rank takes it; from a rank it is JSON only, read through
`FrameReader`. Neither of the two ever blocks, and the reader never takes more than its limit.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections.abc import Iterator, Sequence

# The longest frame that a rank may send. Parsed, hostile JSON takes a hundred times as much.
ANSWER_BYTES = 1 << 22
_LENGTH = struct.Struct("!Q")
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # macOS has none


class WireError(RuntimeError):
    """The other side closed the connection in the middle of a frame, or sent an impossible one."""


def send_frame(connection: socket.socket, payload: bytes, descriptors: Sequence[int] = ()) -> None:
    """Sends one frame, with `descriptors` (at most 250) attached. Blocks until all is written."""
    header = _LENGTH.pack(len(payload))
    sent = connection.sendmsg([header], _rights(descriptors))
    connection.sendall(header[sent:] + payload)


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
            connection, _LENGTH.size - len(header), max_descriptors, _CLOSE_ON_EXEC
        )
        for descriptor in () if _CLOSE_ON_EXEC else received:
            os.set_inheritable(descriptor, False)
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


class FrameWriter:
    """Sends frames over a non-blocking socket, as fast as the other side takes them."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._unsent = memoryview(b"")
        self._descriptors: list[int] = []

    def put(self, payload: bytes, descriptors: Sequence[int]) -> None:
        """Takes a frame for `flush` to send; its descriptors are closed here once they are sent."""
        self._unsent = memoryview(_LENGTH.pack(len(payload)) + payload)
        self._descriptors = list(descriptors)

    def flush(self) -> bool:
        """Sends what can be sent now; whether nothing is left to send."""
        try:
            while self._unsent:
                sent = self._connection.sendmsg([self._unsent], _rights(self._descriptors))
                self._unsent = self._unsent[sent:]
                self._close_descriptors()
        except BlockingIOError:
            return False
        except OSError:  # the other side is gone, and what it was to be told with it
            self.discard()
        return True

    def discard(self) -> None:
        """Forgets what has not been sent."""
        self._unsent = memoryview(b"")
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


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


def _rights(descriptors: Sequence[int]) -> list[tuple[int, int, array.array[int]]]:
    if not descriptors:
        return []
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
