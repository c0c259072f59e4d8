"""The user: a rank becomes an unprivileged one of its world's own, before it sees a submission.

Modules that are not imported yet stay importable even where the new user may not enter the
interpreter's directories: those are opened first, and found through their descriptors.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAME = "own user"
_SOMEBODY = 65_000  # who owns nothing, for the probe


class UnreadableInterpreter(RuntimeError):
    """What Python imports cannot be read by the unprivileged user, in no way."""


def drop(uid: int, home: str) -> None:
    """Becomes the user `uid`, in a group of the same number and in no other.

    home: an existing directory, which becomes the user's own and holds its temporary files.

    Raises:
        UnreadableInterpreter: what has not been imported yet never could be.
        OSError: we are not root.
    """
    os.chown(home, uid, uid)
    descriptors = open_import_path()
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    os.umask(0o077)
    os.chdir("/")
    os.environ.update(HOME="/nonexistent", TMPDIR=home)
    tempfile.tempdir = home
    if all(_is_readable(path) for path in descriptors):
        for descriptor in descriptors.values():
            os.close(descriptor)
    else:
        _import_through(descriptors)


def probe() -> str:
    """Why this layer does not work here, or "". It changes the process that calls it."""
    if os.getuid() != 0:
        return "only root can run submissions as another user"
    home = tempfile.mkdtemp(prefix="autograder-probe-")
    try:
        drop(_SOMEBODY, home)
    except (OSError, UnreadableInterpreter) as error:
        return str(error)
    finally:
        Path(home).rmdir()
    return ""


def open_import_path() -> dict[str, int]:
    """Descriptors of the directories from which ranks import, by path."""
    return {
        path: os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        for path in sys.path
        if _is_pythons(path) and Path(path).is_dir()
    }


def _is_pythons(path: str) -> bool:
    """Whether it belongs to Python or to what is installed; in ranks, everything does."""
    installed = Path(path).name in ("site-packages", "dist-packages")
    return bool(path) and (
        installed or any(Path(path).is_relative_to(one) for one in (sys.prefix, sys.base_prefix))
    )


def _is_readable(path: str) -> bool:
    return os.access(path, os.R_OK | os.X_OK)


def _import_through(descriptors: dict[str, int]) -> None:
    """From now on a module below one of the open directories is looked for through its descriptor.

    `sys.path` and the packages stay as they are: to rewrite them would touch every module, and so
    copy most of the memory that a rank shares with the process it was forked from.
    """
    for path, descriptor in descriptors.items():
        if not _is_readable(f"/proc/self/fd/{descriptor}"):
            raise UnreadableInterpreter(
                f"the unprivileged user that a submission runs as cannot read {path}, from which "
                f"Python imports; to cure it: chmod -R o+rX {path}"
            )
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
