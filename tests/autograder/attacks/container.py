"""A default container, simulated: `python -m tests.autograder.attacks.container COMMAND...`.

The command runs as root with the capabilities that a default Docker container has, behind a filter
of system calls like Docker's: no namespaces, no mounts, none of the calls that Docker refuses. With
`--without-landlock` first, it also has no Landlock, as in older engines.
"""

from __future__ import annotations

import errno
import os
import sys

from autograder.confine import kernel, seccomp

PR_CAPBSET_DROP = 24
# By number: chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service,
# net_raw, sys_chroot, mknod, audit_write, setfcap. Together 0xa80425fb.
KEPT = {0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31}
REFUSED = (
    *("unshare", "setns", "mount", "umount2", "pivot_root", "open_tree", "move_mount", "fsopen"),
    *("fsconfig", "fsmount", "fspick", "mount_setattr", "bpf", "perf_event_open", "userfaultfd"),
    *("keyctl", "add_key", "request_key", "open_by_handle_at", "syslog", "io_uring_setup"),
    *("move_pages", "kcmp", "process_vm_readv", "process_vm_writev"),
)
LANDLOCK = (444, 445, 446)


def confine(landlock: bool) -> None:
    """Makes of the calling process, and all that it starts, one in a default container."""
    for capability in range(64):
        if capability not in KEPT:
            try:
                kernel.prctl(PR_CAPBSET_DROP, capability)
            except OSError:
                break  # the kernel knows no more
    arm = kernel.is_arm()
    code = seccomp.opening(arm)
    for name in REFUSED:
        code += seccomp.refused(seccomp.REFUSED[name][arm])
    for number in () if landlock else LANDLOCK:
        code += seccomp.refused(number, errno.ENOSYS)
    code += seccomp.refused_clones(arm)
    seccomp.load(code)


def main() -> None:
    arguments = sys.argv[1:]
    landlock = arguments[0] != "--without-landlock"
    confine(landlock)
    command = arguments if landlock else arguments[1:]
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
