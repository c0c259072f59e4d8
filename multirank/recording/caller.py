"""Whose line it is that communicates: the program's own, below all that torch puts on top of it."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from types import CodeType, FrameType

import torch
import torch.distributed.c10d_logger
import typing_extensions

from .stack import is_plumbing

# What decorates the functions of torch.distributed.
_DECORATORS = (str(torch.distributed.c10d_logger.__file__), str(typing_extensions.__file__))
_TORCH = (str(Path(torch.__file__).parent) + os.sep, str(typing_extensions.__file__))
_PYTHON = str(Path(os.__file__).parent) + os.sep

# How many frames a function of torch's takes, with its decorators. It is looked at often, and
# walking from frame to frame is slow.
_heights: dict[int, tuple[int, CodeType]] = {}


def calling_frame(depth: int) -> FrameType | None:
    """The innermost frame that is neither torch's, Python's nor ours.

    Args:
        depth: how many frames to leave out, with the one that asks.
    """
    first = sys._getframe(depth + 1)
    known = _heights.get(id(first.f_code)) or _measured(first)
    frame: FrameType | None = sys._getframe(depth + 1 + known[0])
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def calling_line() -> tuple[str, int]:
    """File and line of `calling_frame`."""
    frame = calling_frame(1)
    return ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


@functools.cache
def is_library(file: str) -> bool:
    """Whether a file is torch's, Python's, or ours."""
    if file.startswith(_PYTHON) and not file.startswith(_PYTHON + "site-packages"):
        return True
    return file.startswith(_TORCH) or is_plumbing(file)


def _measured(first: FrameType) -> tuple[int, CodeType]:
    height, frame = 0, first
    if is_library(first.f_code.co_filename):
        height = 1
        while (frame.f_back is not None) and frame.f_back.f_code.co_filename in _DECORATORS:
            height, frame = height + 1, frame.f_back
    return _heights.setdefault(id(first.f_code), (height, first.f_code))
