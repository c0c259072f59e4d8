"""One unprivileged user for each world, leased under a lock: graders side by side differ.

When a lease ends, nothing of the user's is left: no process, and no file where everybody may write.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import secrets
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from autograder.confine import namespaces

# Nobody's: above what distributions give to people and services, below systemd's dynamic users.
# A lease begins to look anywhere among them, so that containers, which see neither each other's
# locks nor each other's processes, rarely meet.
_FIRST, _COUNT = 20000, 10000
_LOCKS = Path("/run/autograder-users")  # the same for all graders, whatever their TMPDIR
_PATIENCE = 10.0  # seconds until every process of a user has ended
_DEPTH = 2  # of public directories within public directories
_MOST_FILES = 50_000  # that are counted; nobody needs so many
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NoUserLeft(RuntimeError):
    """All users of the range are leased: too many worlds at once on this machine."""


class SomethingLeft(RuntimeError):
    """A process of a submission's could not be ended."""


@contextlib.contextmanager
def lease() -> Iterator[int]:
    """A user id that no other world on this machine has, for the duration of the block.

    Raises:
        NoUserLeft: there is none.
        SomethingLeft: at the end, a process of the user's could not be ended.
    """
    _LOCKS.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _LOCKS.lstat().st_uid != os.getuid():
        raise NoUserLeft(f"{_LOCKS} belongs to another user; remove it, then grade again")
    start = secrets.randbelow(_COUNT)
    for place in range(_COUNT):
        uid = _FIRST + (start + place) % _COUNT
        if _is_somebody(uid):
            continue
        descriptor = os.open(_LOCKS / str(uid), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            if memory_held(uid):
                continue  # of a grader in some container
            try:
                yield uid
            finally:
                clear(uid)
            return
        finally:
            os.close(descriptor)
    raise NoUserLeft(f"all {_COUNT} users from {_FIRST} on are in use; grade fewer at once")


def _is_somebody(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def clear(uid: int) -> None:
    """Ends every process of the user and removes its files from public directories.

    Raises:
        SomethingLeft: a process does not end.
    """
    end_processes(uid)
    remove_files(uid)


# --- Processes ------------------------------------------------------------------------------------


def memory_held(uid: int) -> dict[int, int]:
    """The user's processes that have not ended, by pid, with the bytes of memory that each holds.

    What is read from files, such as libraries, is not counted. A process counts as the user's when
    any of its user ids is.
    """
    held = {}
    wanted = str(uid).encode()
    with os.scandir("/proc") as entries:
        pids = [entry.name for entry in entries if entry.name.isdecimal()]
    for pid in pids:
        try:
            with open(f"/proc/{pid}/status", "rb") as file:
                status = file.read()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if wanted in _field(status, b"\nUid:") and b"Z" not in _field(status, b"\nState:"):
            kilobytes = [_field(status, name) for name in (b"\nRssAnon:", b"\nRssShmem:")]
            held[int(pid)] = sum(int(found[0]) * 1024 for found in kilobytes if found)
    return held


def _field(status: bytes, name: bytes) -> list[bytes]:
    return status.partition(name)[2].partition(b"\n")[0].split()


def end_processes(uid: int) -> None:
    """Kills every process of the user, and returns when none is left.

    Raises:
        SomethingLeft: one does not end.
    """
    deadline = time.monotonic() + _PATIENCE
    while left := memory_held(uid):
        if time.monotonic() > deadline:
            raise SomethingLeft(f"processes {sorted(left)} of user {uid} cannot be ended")
        _kill_all_at_once(uid)
        time.sleep(0.002)


def _kill_all_at_once(uid: int) -> None:
    """As the user itself, which reaches all its processes in one call: none can fork meanwhile."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


# --- Files ----------------------------------------------------------------------------------------
# A user may have made trees deeper than any stack and longer than any path, so nothing recurses.


def files_held(uid: int) -> tuple[int, int]:
    """How many files the user has in public directories, and their bytes on disk."""
    count, size = 0, 0
    for found in _owned(uid):
        count, size = count + 1, size + found.st_blocks * 512
        if count == _MOST_FILES:
            break
    return count, size


def _owned(uid: int) -> Iterator[os.stat_result]:
    """For counting alone: what lies there may be swapped for links meanwhile."""
    waiting = [(path, _DEPTH) for path in namespaces.public()]
    while waiting:
        path, depth = waiting.pop()
        for entry in _entries(path):
            with contextlib.suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                mine = found.st_uid == uid
                if stat.S_ISDIR(found.st_mode) and (mine or (depth and _is_public(found))):
                    waiting.append((entry.path, depth if mine else depth - 1))
                if mine:
                    yield found


def _entries(directory: str | int) -> list[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        return list(entries)
    return []


def _is_public(directory: os.stat_result) -> bool:
    return bool(directory.st_mode & stat.S_IWOTH)


def remove_files(uid: int) -> None:
    """Removes what the user owns in the directories in which everybody may write."""
    for path in namespaces.public():
        with contextlib.suppress(OSError):  # it has gone by itself
            _remove_below(os.open(path, _DIRECTORY), uid, _DEPTH)


def _remove_below(directory: int, uid: int, depth: int) -> None:
    """Takes over the descriptor. No link is followed."""
    try:
        for entry in _entries(directory):
            with contextlib.suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                is_directory = stat.S_ISDIR(found.st_mode)
                if found.st_uid == uid and is_directory:
                    _remove_tree(directory, entry.name)
                elif found.st_uid == uid:
                    os.unlink(entry.name, dir_fd=directory)
                elif is_directory and depth and _is_public(found):
                    inner = os.open(entry.name, _DIRECTORY, dir_fd=directory)
                    _remove_below(inner, uid, depth - 1)
    finally:
        os.close(directory)


def _remove_tree(parent: int, name: str) -> None:
    """Removes a directory; those in it are moved beside it first, and then removed in turn."""
    waiting = [name]
    while waiting:
        name = waiting.pop()
        directory = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            for entry in _entries(directory):
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f".removed-{secrets.token_hex(8)}")
                    os.rename(entry.name, waiting[-1], src_dir_fd=directory, dst_dir_fd=parent)
                else:
                    os.unlink(entry.name, dir_fd=directory)
        finally:
            os.close(directory)
        os.rmdir(name, dir_fd=parent)
