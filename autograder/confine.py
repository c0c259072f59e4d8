"""What a rank gives up before it sees anything of a submission's: its user.

This file is sent to ranks as source (`multirank.World(before_user_code=...)`) and runs there, so
it needs nothing but the standard library and multirank's `RankContext`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PR_SET_NO_NEW_PRIVS = 38


def drop_user(context: Any, uid: int) -> None:
    """Becomes the unprivileged user `uid`, in a group of the same number.

    Modules that are not imported yet stay importable, even where the new user may not enter the
    interpreter's directories: those are opened first and found through their descriptors.
    """
    os.chown(context.rendezvous, uid, uid)  # so that new process groups can still be made
    descriptors = _open_import_path()
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    os.umask(0o077)
    os.chdir("/")
    os.environ["HOME"] = "/nonexistent"
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if all(os.access(path, os.R_OK | os.X_OK) for path in descriptors):
        for descriptor in descriptors.values():
            os.close(descriptor)
    else:
        _import_through(descriptors)


def _open_import_path() -> dict[str, int]:
    return {
        path: os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        for path in sys.path
        if path and Path(path).is_dir()
    }


def _import_through(descriptors: dict[str, int]) -> None:
    """From now on a module below one of the open directories is looked for through its descriptor.

    `sys.path` and the packages stay as they are: to rewrite them would touch every module, and so
    copy most of the memory that a rank shares with the process it was forked from.
    """
    hooks: list[Callable[[str], Any]] = list(sys.path_hooks)
    finders = sys.path_importer_cache
    longest_first = sorted(descriptors, key=len, reverse=True)

    def through(path: str) -> Any:
        for known in longest_first:
            if path == known or path.startswith(known + os.sep):
                opened = f"/proc/self/fd/{descriptors[known]}{path[len(known) :]}"
                return _first_finder(hooks, opened)
        raise ImportError

    through.unused = finders  # type: ignore[attr-defined]  # kept: to free them costs time
    sys.path_hooks.insert(0, through)
    sys.path_importer_cache = {}


def _first_finder(hooks: list[Callable[[str], Any]], path: str) -> Any:
    for hook in hooks:
        try:
            return hook(path)
        except ImportError:
            continue
    raise ImportError
