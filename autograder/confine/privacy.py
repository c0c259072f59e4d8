"""Whether the grader's own folders are private: no submission may read the reference.

In mode `full` they are covered, and Landlock covers them too. In a container without Landlock their
permissions alone protect them, and not those of a folder above: what Python imports may be open to
ranks through descriptors, from which a way leads to its neighbours.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from autograder.confine import user
from autograder.confine.attempt import attempt
from autograder.confine.modes import Confinement, Isolation
from autograder.paths import ROOT

NAME = "private folders"
_SECRET = (".git", "autograder", "reference", "tests")
_SOMEBODY = 65_000


def why_not_official(confinement: Confinement, connecting: bool = False) -> list[str]:
    """Why a result from behind this boundary does not count; empty when it does.

    connecting: what runs behind it may open connections, as on GPUs.
    """
    if confinement.mode is Isolation.NONE:
        who = "root" if os.getuid() == 0 else "your own user"
        return [f"without {'isolation' if who == 'root' else 'root'}, the submission runs as {who}"]
    if confinement.mode is Isolation.FULL:
        return []
    if connecting and (networks := _networks()):
        return [
            f"NCCL must be let connect, and this container has a network ({', '.join(networks)}): "
            "start it without one, or where the namespaces of mode full work"
        ]
    if confinement.landlock:
        return []
    secret = [str(ROOT / name) for name in _SECRET if (ROOT / name).is_dir()]
    if open_to_all := readable(secret):
        return [
            "a submission can read the grader's own folders here (to cure it: chmod o= "
            f"{' '.join(open_to_all)})"
        ]
    return []


def _networks() -> list[str]:
    """Network devices besides the loopback."""
    return sorted({path.name for path in Path("/sys/class/net").glob("*")} - {"lo"})


def rooms() -> list[str]:
    """This repository's folders, but for what a rank imports from."""
    kept = [ROOT / "multirank", *map(Path, sys.path), Path(sys.prefix)]
    return [
        str(room)
        for room in sorted(ROOT.iterdir())
        if room.is_dir() and not any(path.is_relative_to(room) for path in kept)
    ]


def readable(folders: Sequence[str]) -> list[str]:
    """Those of the folders that the user of a rank could get into."""
    found = attempt(lambda: "\n".join(_entered(folders)))
    return found.splitlines()


def _entered(folders: Sequence[str]) -> list[str]:
    imported = user.open_import_path()
    home = tempfile.mkdtemp(prefix="autograder-probe-")
    try:
        user.drop(_SOMEBODY, home)
        return [folder for folder in folders if any(map(_lets_in, _ways(folder, imported)))]
    finally:
        Path(home).rmdir()


def _ways(folder: str, imported: dict[str, int]) -> list[str]:
    through = [
        f"/proc/self/fd/{descriptor}/{os.path.relpath(folder, path)}"
        for path, descriptor in imported.items()
    ]
    return [folder, *through]


def _lets_in(path: str) -> bool:
    return os.access(path, os.X_OK)
