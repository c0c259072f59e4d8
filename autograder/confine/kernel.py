"""System calls that Python does not offer, through ctypes; an error is an OSError that names it.

What confines a world runs in its leader and its ranks, to which this package is sent as source. So
this file and those that use it there need nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import os
import platform

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38

Argument = int | ctypes.Array[ctypes.c_char] | None

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def prctl(option: int, value: int) -> None:
    """`prctl(option, value)`. Raises OSError."""
    _checked(_libc.prctl(option, value, 0, 0, 0), f"prctl({option}, {value})")


def system_call(name: str, number: int, *arguments: Argument) -> int:
    """The system call of that number, which is called `name` in errors. Raises OSError."""
    converted = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *converted), name)


def unshare(flags: int) -> None:
    """Leaves the namespaces that `flags` names for new ones. Raises OSError."""
    _checked(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """`mount`. Raises OSError."""
    given = (source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags))
    _checked(_libc.mount(*given, options.encode() or None), f"mount {target}")


def is_arm() -> bool:
    """Whether system calls are numbered as on 64-bit Arm, and not as on x86-64.

    Raises OSError on any other machine.
    """
    machine = platform.machine()
    if machine not in ("x86_64", "aarch64"):
        raise OSError(f"system calls of {machine} are not known here")
    return machine == "aarch64"


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
