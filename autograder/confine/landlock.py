"""Landlock, where the kernel has it: files, besides what their owners allow.

A world reads what Python and the system's libraries need and writes where everybody may; it sends
no signal out of itself, even where the user is the same. This is an extra: the user drop does not
need it, and many kernels and containers do not have it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from . import kernel
from .namespaces import public

NAME = "Landlock"

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_READ_FILE, _READ_DIRECTORY, _WRITE_FILE, _TRUNCATE = 1 << 2, 1 << 3, 1 << 1, 1 << 14
_EXECUTE, _CONTROL_DEVICE = 1 << 0, 1 << 15
_READ = _READ_FILE | _READ_DIRECTORY
_TO_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _CONTROL_DEVICE
_ACCESS_BY_VERSION = (0, 13, 14, 15, 15, 16)  # how many kinds of access each knows
_SCOPES = 3  # abstract sockets and signals stay within
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/sys", "/dev", "/run/lock")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")
_GPUS = "nvidia*"  # in /dev


def restrict(readable: Sequence[str], gpus: bool = False) -> None:
    """Restricts the calling process, and all that it starts, for good.

    readable: directories that may be read besides the system's and Python's.
    gpus: their devices may be used.

    Raises:
        OSError: the kernel has no Landlock, or does not let us.
    """
    version = _version()
    kinds = _ACCESS_BY_VERSION[min(version, len(_ACCESS_BY_VERSION) - 1)]
    everything = (1 << kinds) - 1
    attributes = struct.pack("QQQ", everything, 0, _SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    buffer = ctypes.create_string_buffer(attributes, size)
    ruleset = kernel.system_call("landlock_create_ruleset", _CREATE_RULESET, buffer, size, 0)
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    python = [path for path in (*sys.path, sys.prefix, sys.base_prefix, *libraries) if path]
    for path in (*_SYSTEM, *python, *readable):
        _allow(ruleset, path, _READ)
    for path in public():
        _allow(ruleset, path, everything)
    for path in _DEVICES:
        _allow(ruleset, path, (_READ_FILE | _WRITE_FILE | _TRUNCATE) & everything)
    for device in Path("/dev").glob(_GPUS) if gpus else ():
        _allow(ruleset, str(device), everything if device.is_dir() else everything & _TO_FILES)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.system_call("landlock_restrict_self", _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def probe() -> str:
    """Why this layer does not work here, or "". It changes the process that calls it."""
    try:
        restrict([])
    except OSError as error:
        return str(error)
    try:
        os.close(os.open("/", os.O_RDONLY | os.O_DIRECTORY))
    except PermissionError:
        return ""
    return "a restriction can be made and refuses nothing"


def _version() -> int:
    return kernel.system_call("landlock_create_ruleset", _CREATE_RULESET, None, 0, _VERSION)


def _allow(ruleset: int, path: str, access: int) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not os.path.isdir(path):  # noqa: PTH112
                access &= ~_READ_DIRECTORY
            rule = ctypes.create_string_buffer(struct.pack("=Qi", access, beneath), 12)
            kernel.system_call("landlock_add_rule", _ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
        finally:
            os.close(beneath)
