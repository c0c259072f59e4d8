"""Notices that a buffer is changed while an operation still uses it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

_SAMPLE = 16  # elements


class Buffer:
    """A tensor that must stay as it is until an operation is complete.

    torch counts the changes of a storage. Of a tensor that is only a part of one, a few elements
    are compared instead, for the other parts may well change.

    Args:
        tensor: as it is before the operation begins.
        writes: how often the operation itself changes it, as torch counts.

    Raises:
        RuntimeError: it is of a kind that has no memory of its own, or not in one piece.
    """

    __slots__ = ("_sample", "_tensor", "_version")

    def __init__(self, tensor: torch.Tensor, writes: int) -> None:
        self._tensor = tensor
        self._version = tensor._version + writes  # and no later one
        self._sample = None if is_whole(tensor) else _sample(tensor)

    def changed(self) -> bool:
        """Whether it has been changed since."""
        if self._tensor._version <= self._version:
            return False
        if self._sample is None:
            return True
        now = _sample(self._tensor)
        return not torch.equal(now.view(torch.uint8), self._sample.view(torch.uint8))


def buffer_of(name: str, tensors: Sequence[torch.Tensor], writes: int) -> Buffer | None:
    """What to watch of an operation that is to begin on these tensors: what it sends, if that can
    be told cheaply. writes: as `Buffer` takes it."""
    if name not in ("send", "all_reduce", "broadcast", "reduce") or len(tensors) != 1:
        return None
    (tensor,) = tensors
    try:
        if tensor.is_inference() or not (name == "send" or is_whole(tensor)):
            return None  # whose changes are not counted, or are not this part's alone
        return Buffer(tensor, writes)
    except RuntimeError:  # if it may not be sent, torch says so
        return None


def is_whole(tensor: torch.Tensor) -> bool:
    """Whether nothing else lies in its storage."""
    return tensor.untyped_storage().nbytes() == tensor.nbytes


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a few of its elements, from the first to the last."""
    flat = tensor.detach().view(-1)
    return flat[:: max(1, flat.numel() // _SAMPLE)].clone()
