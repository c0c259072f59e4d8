"""Tensors through shared memory that the parent owns, and the small header that describes them.

Sent down: arguments are pickled, with every plain tensor in them moved to an `Arena`.
Sent up: results are a tree of JSON values whose tensors lie in an arena. The parent checks each
description against the arena's size and copies the bytes out; nothing from a rank is unpickled.

An arena is a memfd that cannot shrink or grow; one that carries inputs cannot be written by the
rank either. (Where the system has no memfd, it is an unlinked temporary file.)
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import io
import marshal
import math
import mmap
import os
import pickle
import tempfile
import threading
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any

import cloudpickle
import numpy as np
import torch

from ..source import PerRank

_ALIGNMENT = 64
_MOST_DIMENSIONS = 64  # what torch itself can work with
RESULT_BYTES = 1 << 30  # sparse: pages that are never written cost nothing
_F_SEAL_FUTURE_WRITE = 0x0010

DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.complex128, torch.complex64),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}


class AnswerError(ValueError):
    """What a rank sent back does not describe a result."""


@functools.cache
def dtype_name(dtype: torch.dtype) -> str:
    """`torch.float32` as "float32"."""
    return str(dtype).removeprefix("torch.")


def shared_file(size: int, name: str) -> int:
    """A new anonymous file of `size` bytes, sealed against a change of size; its descriptor."""
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryFile() as file:
            os.truncate(file.fileno(), size)
            return os.dup(file.fileno())
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return descriptor


def seal_contents(descriptor: int) -> None:
    """From now on only mappings that exist already can write to the file."""
    if hasattr(os, "memfd_create"):
        seals = _F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)


class Arena:
    """A shared file in which tensors lie one behind the other, each at a multiple of 64 bytes."""

    def __init__(self, descriptor: int, *, writable: bool) -> None:
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self._next = 0
        self._taken = 0
        access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self._map = mmap.mmap(descriptor, self.size, mmap.MAP_SHARED, access)

    def put(self, tensor: torch.Tensor) -> int:
        """Copies the tensor's elements in; returns their offset in bytes.

        Raises:
            ValueError: they do not fit.
        """
        offset, count = self._next, tensor.numel() * tensor.element_size()
        if offset + count > self.size:
            raise ValueError(
                f"{count} more bytes do not fit into the {self.size} bytes that a rank may send; "
                "return less, or smaller tensors"
            )
        if count:
            room = torch.frombuffer(
                self._map, dtype=tensor.dtype, count=tensor.numel(), offset=offset
            )
            room.copy_(tensor.detach().reshape(-1))
        self._next = (offset + count + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
        return offset

    def take(self, dtype: torch.dtype, shape: tuple[int, ...], offset: int) -> torch.Tensor:
        """A private copy of the tensor at `offset`.

        Raises:
            AnswerError: it would lie outside the arena, is no tensor, or more is taken out of the
                arena, all in all, than it holds.
        """
        extent = math.prod(max(extent, 1) for extent in shape)
        if len(shape) > _MOST_DIMENSIONS or extent >= 1 << 62:
            raise AnswerError("a tensor of impossible shape")
        count = math.prod(shape)
        nbytes = count * dtype.itemsize
        if offset < 0 or nbytes > self.size - offset:
            raise AnswerError(f"a tensor of {nbytes} bytes at {offset} lies outside its memory")
        self._taken += nbytes
        if self._taken > self.size:
            raise AnswerError("its tensors overlap, and are larger together than their memory")
        if not count:
            return torch.empty(shape, dtype=dtype)
        raw = bytearray(memoryview(self._map)[offset : offset + nbytes])
        if dtype is torch.bool:  # whose bytes must be 0 or 1, or torch's behaviour is undefined
            return (torch.frombuffer(raw, dtype=torch.uint8) != 0).reshape(shape)
        return torch.frombuffer(raw, dtype=dtype).reshape(shape)


# ---------------------------------------------------------------- sent down: arguments

_registering = threading.Lock()  # cloudpickle's registry is the process's, not a thread's


def pack(value: Any, by_value: ModuleType | None = None) -> tuple[bytes, int | None]:
    """Pickles `value` for a rank.

    Args:
        by_value: a module whose functions and classes travel whole instead of being imported.

    Returns:
        the pickle, and the descriptor of the sealed file that holds its tensors (None: it has
        none), which the caller closes once it is sent.

    Raises:
        TypeError: something in it cannot be pickled.
        ValueError: a `per_rank` is part of something else.
    """
    buffer = io.BytesIO()
    pickler = _Packer(buffer)
    try:
        with _registering, _by_value(by_value):
            pickler.dump(value)
    except (TypeError, AttributeError, pickle.PicklingError, RecursionError) as error:
        raise TypeError(
            f"the function, or one of its arguments, cannot be sent to the ranks ({error}). "
            "Give the ranks plain values and tensors, and make everything else inside the function"
        ) from error
    if not pickler.tensors:
        return buffer.getvalue(), None
    size = sum(t.numel() * t.element_size() + _ALIGNMENT for t in pickler.tensors)
    arena = Arena(shared_file(size, "multirank-input"), writable=True)
    for tensor in pickler.tensors:
        arena.put(tensor)
    seal_contents(arena.descriptor)
    return buffer.getvalue(), arena.descriptor


@contextlib.contextmanager
def _by_value(module: ModuleType | None) -> Iterator[None]:
    """Within it cloudpickle sends what the module defines by value."""
    if module is None or module.__name__ in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def unpack(payload: bytes, descriptor: int | None) -> Any:
    """The value that `pack` was given, in the rank; its tensors are private copies."""
    return _Unpacker(io.BytesIO(payload), descriptor).load()


def _travels_in_arena(value: object) -> bool:
    return (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and value.dtype in DTYPES.values()
        and value.is_leaf
    )


class _Packer(cloudpickle.Pickler):  # type: ignore[misc]
    """Leaves tensors out of the pickle; each is named by its place, offset and description."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[torch.Tensor] = []
        self._places: dict[int, tuple[int, int]] = {}
        self._offset = 0

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, CodeType):  # as it is: cloudpickle would drop its file's name
            return marshal.loads, (marshal.dumps(value),)
        if isinstance(value, PerRank):
            raise ValueError(
                "per_rank is an argument by itself, and cannot be part of another one; give each "
                "rank its own list or dict: per_rank([[...], [...]])"
            )
        return super().reducer_override(value)

    def persistent_id(self, value: Any) -> Any:
        if not _travels_in_arena(value):
            return None
        if id(value) not in self._places:
            self._places[id(value)] = (len(self.tensors), self._offset)
            self.tensors.append(value)
            nbytes = value.numel() * value.element_size()
            self._offset += (nbytes + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
        place, offset = self._places[id(value)]
        return (place, dtype_name(value.dtype), tuple(value.shape), offset, value.requires_grad)


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, descriptor: int | None) -> None:
        super().__init__(file)
        self._arena = None if descriptor is None else Arena(descriptor, writable=False)
        self._tensors: dict[int, torch.Tensor] = {}

    def persistent_load(self, identity: Any) -> torch.Tensor:
        place, dtype, shape, offset, requires_grad = identity
        if place not in self._tensors:
            assert self._arena is not None
            tensor = self._arena.take(DTYPES[dtype], shape, offset)
            self._tensors[place] = tensor.requires_grad_(requires_grad)
        return self._tensors[place]


# ---------------------------------------------------------------- sent up: results


def describe(value: Any, arena: Arena) -> Any:
    """Turns a result into a JSON tree, its tensors copied into `arena` (rank side).

    Raises:
        TypeError: it holds something a rank cannot return.
        ValueError: it does not fit.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return ["int", hex(value)]
    if isinstance(value, float):
        return ["float", float(value).hex()]
    if isinstance(value, np.ndarray | np.generic):
        value = torch.from_numpy(np.array(value, order="C"))
    if hasattr(value, "full_tensor"):
        raise TypeError(
            f"a rank cannot return a {type(value).__name__}, which lies on several ranks; return "
            "its full_tensor() or its to_local()"
        )
    if isinstance(value, torch.Tensor):
        plain = value.detach().to("cpu")
        if dtype_name(plain.dtype) not in DTYPES or plain.layout is not torch.strided:
            raise TypeError(f"a rank cannot return a tensor of {plain.dtype}, {plain.layout}")
        return ["tensor", dtype_name(plain.dtype), list(plain.shape), arena.put(plain)]
    if isinstance(value, list | tuple):
        return ["list", *(describe(item, arena) for item in value)]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: describe(item, arena) for key, item in value.items()}
    raise TypeError(
        f"a rank returned a {type(value).__name__}; it may return tensors, numbers, strings, "
        "None, and lists, tuples and dicts (with string keys) of these"
    )


def build(tree: Any, arena: Arena) -> Any:
    """The result that `describe` was given, from untrusted JSON (parent side).

    Raises:
        AnswerError: the tree is not one that `describe` makes, or reaches outside the arena.
        RecursionError: it is too deep.
    """
    match tree:
        case None | bool() | str():
            return tree
        case ["int", str(digits)]:
            return _number(lambda hexadecimal: int(hexadecimal, 16), digits)
        case ["float", str(digits)]:
            return _number(float.fromhex, digits)
        case ["tensor", str(dtype), list(shape), int(offset)] if dtype in DTYPES and all(
            type(extent) is int and extent >= 0 for extent in shape
        ):
            return arena.take(DTYPES[dtype], tuple(shape), offset)
        case ["list", *items]:
            return [build(item, arena) for item in items]
        case dict():
            return {key: build(item, arena) for key, item in tree.items()}
    raise AnswerError("a rank's answer is not a result")


def _number(parse: Any, digits: str) -> Any:
    try:
        return parse(digits)
    except (ValueError, OverflowError) as error:
        raise AnswerError("a rank's answer holds something that is no number") from error
