"""Stacks as the person who wrote the function wants to see them: without our frames and torch's."""

from __future__ import annotations

import os
import re
from pathlib import Path

STACK_BYTES = 1 << 16
_OWN = str(Path(__file__).resolve().parent.parent) + os.sep
_GALLERY = _OWN + "gallery.py"  # its functions stand for a user's
_PLUMBING = (_OWN, "<string>", "<frozen")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')


def is_plumbing(filename: str) -> bool:
    """Whether a frame of this file belongs to what runs the user's function, not to the user."""
    if filename.startswith(_PLUMBING):
        return filename != _GALLERY
    return filename.endswith(("torch/distributed/c10d_logger.py", "torch/utils/_contextlib.py"))


def user_stack(dump: str) -> str:
    """What `faulthandler` wrote, innermost frame first, less the plumbing."""
    threads = re.split(r"^(?:Current thread|Thread) .*$", dump, flags=re.MULTILINE)[1:]
    told = ["\n".join(_user_frames(thread)) for thread in threads]
    return "\n\n".join(frames for frames in told if frames)


def _user_frames(thread: str) -> list[str]:
    return [
        f"{match['file']}:{match['line']} in {match['function']}"
        for match in _FRAME.finditer(thread)
        if not is_plumbing(match["file"])
    ]
