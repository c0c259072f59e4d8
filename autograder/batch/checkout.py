"""When the last commit of a git checkout was made.

The checkout is a stranger's: a git that runs there would obey its configuration, which can name
programs. So git is given the objects alone, in a repository of ours.
"""

from __future__ import annotations

import atexit
import functools
import re
import shutil
import subprocess
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path

_SECONDS = 10.0
_HASH = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


def committed_at(path: Path) -> datetime | None:
    """When HEAD was committed, by the clock of whoever did; None where that cannot be told."""
    objects = path / ".git" / "objects"
    if not objects.is_dir():
        return None
    commit = _head(path / ".git")
    text = _commit(commit, objects) if commit else ""
    found = re.search(r"^committer .*> (\d{1,12}) ([+-])(\d\d)(\d\d)$", text, re.MULTILINE)
    if found is None:
        return None
    offset = timedelta(hours=int(found[3]), minutes=int(found[4]))
    try:
        zone = timezone(offset if found[2] == "+" else -offset)
        return datetime.fromtimestamp(int(found[1]), zone)
    except (ValueError, OverflowError, OSError):
        return None


def _head(git: Path) -> str:
    """The commit that HEAD names; "" where it names none."""
    head = _read(git / "HEAD").strip()
    if not head.startswith("ref: "):
        return head if _HASH.fullmatch(head) else ""
    ref = head.removeprefix("ref: ").strip()
    if not re.fullmatch(r"refs/[\w./+@-]+", ref) or ".." in ref:
        return ""
    loose = _read(git / ref).strip()
    if _HASH.fullmatch(loose):
        return loose
    packed = re.search(rf"^(\w+) {re.escape(ref)}$", _read(git / "packed-refs"), re.MULTILINE)
    return packed[1] if packed and _HASH.fullmatch(packed[1]) else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace") if path.is_file() else ""
    except OSError:
        return ""


def _commit(commit: str, objects: Path) -> str:
    try:
        where = _empty_repository(64 if len(commit) == 64 else 40)
        return _git(["--git-dir", where, "cat-file", "commit", commit], objects)
    except (OSError, subprocess.SubprocessError):
        return ""


@functools.cache
def _empty_repository(digits: int) -> str:
    ours = tempfile.mkdtemp(prefix="autograder-git-")
    atexit.register(shutil.rmtree, ours, ignore_errors=True)
    kind = "sha256" if digits == 64 else "sha1"
    _git(["init", "--quiet", "--bare", f"--object-format={kind}", ours])
    return ours


def _git(arguments: list[str], objects: Path | None = None) -> str:
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
    }
    if objects is not None:
        environment["GIT_OBJECT_DIRECTORY"] = str(objects.absolute())
    done = subprocess.run(
        ["git", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_SECONDS,
        check=True,
    )
    return done.stdout.decode(errors="replace")
