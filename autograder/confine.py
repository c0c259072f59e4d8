"""What a rank gives up before it sees anything of a submission's: its user.

This file is sent to ranks as source (`multirank.World(before_user_code=...)`) and runs there, so
it needs nothing but the standard library and multirank's `RankContext`.
"""

from __future__ import annotations

import ctypes
import os
import sys
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
    if not all(os.access(path, os.R_OK | os.X_OK) for path in descriptors):
        _import_through(descriptors)


def _open_import_path() -> dict[str, int]:
    return {
        path: os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        for path in sys.path
        if path and Path(path).is_dir()
    }


def _import_through(descriptors: dict[str, int]) -> None:
    """Rewrites the import path, and every package's, to the open directories."""
    through = {path: f"/proc/self/fd/{number}" for path, number in descriptors.items()}
    longest_first = sorted(through, key=len, reverse=True)

    def rewrite(path: str) -> str:
        for known in longest_first:
            if path == known or path.startswith(known + os.sep):
                return through[known] + path[len(known) :]
        return path

    sys.path[:] = [rewrite(path) for path in sys.path]
    sys.path_importer_cache.clear()
    for module in list(sys.modules.values()):
        if isinstance(paths := getattr(module, "__path__", None), list):
            module.__path__ = [rewrite(path) for path in paths]
