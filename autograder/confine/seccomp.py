"""The system-call filter: what no rank needs once its process groups exist.

No network beyond the connections that are there, no other program, no hand on another process, no
new namespace. A refused call fails with "Operation not permitted", which a student sees as any
other exception. The filter is a list of what is refused, since torch itself needs most of the rest,
and stands on the user drop: it is no boundary by itself.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Sequence

from . import kernel

NAME = "system-call filter"

# Numbers on x86-64 and on 64-bit Arm; None: it has no such call.
REFUSED: dict[str, tuple[int, int | None]] = {
    # other programs
    "execve": (59, 221),
    "execveat": (322, 281),
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "kcmp": (312, 272),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    # the network: a connection can be reconnected elsewhere
    "connect": (42, 203),
    # what other filters do not see, or what holds memory that no limit counts
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    # namespaces and mounts
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    # the kernel's less travelled doors
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "open_by_handle_at": (304, 265),
    "personality": (135, 92),
    "syslog": (103, 116),
}
_SOCKET, _CLONE, _CLONE3 = (41, 198), (56, 220), (435, 435)
_KILL, _TGKILL, _PRLIMIT = (62, 129), (234, 131), (302, 261)
_SENDTO, _SENDMSG, _SENDMMSG = (44, 206), (46, 211), (307, 269)
_SECCOMP = (317, 277)

_NEW_NAMESPACES = 0x7E020000  # the CLONE_NEW* flags
_MSG_FASTOPEN = 0x20000000  # sends, and connects first
_TYPE_OF_SOCKET = 0xF
_ARCHITECTURES = (0xC000003E, 0xC00000B7)  # as the kernel's audit names them
_X32 = 0x40000000  # x86-64 numbers from here on are the same calls under another name

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW, _REFUSE, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_SET_MODE_FILTER, _ALL_THREADS = 1, 1

Code = list[tuple[int, int, int, int]]  # operation, jump if true, jump if false, operand


def install(listening: bool = False, connecting: bool = False) -> None:
    """Puts the filter on all threads of the calling process, for good.

    listening: the process may still open TCP sockets to listen at, as a process group that is made
        from now on does.
    connecting: it may do that and connect them, too, as NCCL does when it first sends; then only a
        network namespace, or a container without a network, keeps it from others.

    Raises:
        OSError: the kernel has no such filters, or does not let us.
    """
    load(program(os.getpid(), listening, kernel.is_arm(), connecting))


def load(code: Code) -> None:
    """Puts a filter that begins as `opening` does on all threads; what it lets through, is allowed.

    Raises OSError.
    """
    packed = b"".join(struct.pack("HBBI", *one) for one in [*code, (_RETURN, 0, 0, _ALLOW)])
    instructions = ctypes.create_string_buffer(packed, len(packed))
    header = struct.pack("HxxxxxxQ", len(code) + 1, ctypes.addressof(instructions))
    number = _SECCOMP[kernel.is_arm()]
    arguments = (_SET_MODE_FILTER, _ALL_THREADS, ctypes.create_string_buffer(header, len(header)))
    thread = kernel.system_call("seccomp", number, *arguments)
    if thread:
        raise OSError(errno.ESRCH, f"thread {thread} could not be given the system-call filter")


def probe() -> str:
    """Why this layer does not work here, or "". It changes the process that calls it."""
    try:
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        install()
    except OSError as error:
        return str(error)
    try:
        socket.socket(socket.AF_INET).close()
    except PermissionError:
        return ""
    return "a filter can be installed and refuses nothing"


def program(pid: int, listening: bool, arm: bool, connecting: bool = False) -> Code:
    """The filter for the process `pid`, as classic BPF."""
    code = opening(arm)
    for name, numbers in REFUSED.items():
        if not (connecting and name == "connect"):
            code += refused(numbers[arm])
    code += refused_clones(arm)
    code += _rule(_KILL[arm], _only(0, [pid]))
    code += _rule(_TGKILL[arm], _only(0, [pid]))
    code += _rule(_PRLIMIT[arm], _only(0, [0, pid]))
    sockets = _listening() if listening or connecting else _only(0, [socket.AF_UNIX])
    code += _rule(_SOCKET[arm], sockets)
    for send, flags in ((_SENDTO, 3), (_SENDMSG, 2), (_SENDMMSG, 3)):
        code += _rule(send[arm], _unless_bits(flags, _MSG_FASTOPEN))
    return code


def opening(arm: bool) -> Code:
    """How every filter begins: system calls of other kinds are refused, the number is loaded."""
    code: Code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[arm]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
    ]
    return code if arm else [*code, (_AT_LEAST, 0, 1, _X32), _refuse(errno.ENOSYS)]


def refused(number: int | None, error: int = errno.EPERM) -> Code:
    """Refuses one system call, if the machine has it."""
    return [] if number is None else [(_EQUAL, 0, 1, number), _refuse(error)]


def refused_clones(arm: bool) -> Code:
    """Refuses new namespaces; C libraries fall back from clone3 to clone, whose flags we see."""
    old = _rule(_CLONE[arm], _unless_bits(0, _NEW_NAMESPACES))
    return [*refused(_CLONE3[arm], errno.ENOSYS), *old]


def _rule(number: int, decides: Code) -> Code:
    """`decides`, which ends in an answer, for that system call alone."""
    return [(_EQUAL, 0, len(decides), number), *decides]


def _only(argument: int, values: Sequence[int]) -> Code:
    """Refuses, unless the argument's lower half is one of `values`."""
    tests = [(_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [_load(argument), *tests, _refuse(), (_RETURN, 0, 0, _ALLOW)]


def _unless_bits(argument: int, mask: int) -> Code:
    """Refuses where the argument has one of the mask's bits."""
    return [_load(argument), (_ANY_BIT, 0, 1, mask), _refuse(), (_RETURN, 0, 0, _ALLOW)]


def _listening() -> Code:
    """Sockets of this machine's own, and TCP (which cannot connect)."""
    return [
        _load(0),
        (_EQUAL, 7, 0, socket.AF_UNIX),
        (_EQUAL, 6, 0, 16),  # AF_NETLINK, over which the C library asks for our addresses
        (_EQUAL, 1, 0, socket.AF_INET),
        (_EQUAL, 0, 3, socket.AF_INET6),
        _load(1),
        (_AND, 0, 0, _TYPE_OF_SOCKET),
        (_EQUAL, 1, 0, socket.SOCK_STREAM),
        _refuse(),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _load(argument: int) -> tuple[int, int, int, int]:
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * argument)  # the lower half: both machines are so ordered


def _refuse(error: int = errno.EPERM) -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, _REFUSE | error)
