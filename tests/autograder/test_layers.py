"""Each layer of confinement: that it works here, and what it refuses inside a real world."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

import autograder.confine.boundary as around_worlds
from autograder.confine import (
    counters,
    kernel,
    landlock,
    limits,
    modes,
    namespaces,
    privacy,
    process,
    seccomp,
    user,
    watchdog,
)
from autograder.confine.attempt import attempt
from autograder.confine.boundary import boundary
from autograder.confine.modes import CannotConfine, Confinement, Isolation, choose
from autograder.paths import ROOT
from multirank import Source, StartError, World, start

pytestmark = pytest.mark.root


def inside(
    body: str,
    mode: Isolation | Confinement = Isolation.AUTO,
    world_size: int = 1,
    listening: bool = False,
) -> Any:
    """What `body` puts into `found`, in rank 0 of a confined world."""
    text = f"def look():\n{textwrap.indent(textwrap.dedent(body), '    ')}\n    return found\n"
    confinement = mode if isinstance(mode, Confinement) else choose(mode)
    with (
        boundary(confinement, world_size, listening) as around,
        World(
            world_size,
            before_ranks=around.before_ranks,
            before_user_code=around.before_user_code,
            import_path=(),
            process_group=not listening,
        ) as world,
    ):
        return world.call(Source(text, "look")).results[0]


def refusals(calls: str, **how: Any) -> dict[str, str]:
    """For each line of `calls`: "done", or the name of the error that it raised."""
    return dict(
        inside(
            f"""
            import errno, os, signal, socket, ctypes, mmap, subprocess
            libc = ctypes.CDLL(None, use_errno=True)
            def call(number, *arguments):
                if libc.syscall(number, *arguments) < 0:
                    raise OSError(ctypes.get_errno(), "refused")
            found = {{}}
            for line in {[line.strip() for line in calls.strip().splitlines()]!r}:
                try:
                    exec(line)
                    found[line] = "done"
                except OSError as error:
                    found[line] = errno.errorcode[error.errno or 0] if error.errno else "OSError"
            """,
            **how,
        )
    )


# --- Whether each works here ----------------------------------------------------------------------


def test_every_layer_has_a_name_and_a_probe() -> None:
    assert set(modes.probed()) == {
        *(user.NAME, limits.NAME, process.NAME, seccomp.NAME, watchdog.NAME),
        *(landlock.NAME, counters.NAME),
        *namespaces.NAMES,
    }
    assert all(isinstance(reason, str) for reason in modes.probed().values())


def test_a_probe_changes_nothing_here_and_tells_of_death_and_errors() -> None:
    for name, probe in modes.LAYERS.items():
        assert attempt(probe) == modes.probed()[name]
    assert os.getuid() == 0
    socket.socket().close()
    assert attempt(lambda: "no") == "no"

    def die() -> str:
        signal.raise_signal(signal.SIGKILL)
        return ""

    assert attempt(die) == "the attempt ended with status 9"
    assert "ZeroDivisionError" in attempt(lambda: str(1 / 0))


def test_auto_takes_the_strongest_mode_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    every = dict.fromkeys(modes.LAYERS, "")
    expected = {
        Isolation.FULL: every,
        Isolation.CONTAINER: every | {"network namespace": "not permitted"},
        Isolation.NONE: every | {"own user": "only root can"},
    }
    for mode, found in expected.items():
        monkeypatch.setattr(os, "getuid", lambda mode=mode: int(mode is Isolation.NONE))
        monkeypatch.setattr(modes, "probed", lambda found=found: found)
        chosen = choose.__wrapped__()
        assert chosen.mode is mode
        assert chosen.layers[0] == "own processes"
        assert ("network namespace" in chosen.layers) == (mode is Isolation.FULL)
        assert (user.NAME in chosen.layers) == (mode is not Isolation.NONE)
        assert (landlock.NAME in chosen.layers) == (mode is not Isolation.NONE)


def test_root_never_runs_a_submission_as_root_without_being_told_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cure = "chmod -R o+rX /somewhere"
    found = dict.fromkeys(modes.LAYERS, "") | {"own user": cure}
    monkeypatch.setattr(modes, "probed", lambda: found)
    with pytest.raises(CannotConfine, match=rf"would run as root \(own user: {re.escape(cure)}\)"):
        choose.__wrapped__()
    assert choose.__wrapped__(Isolation.NONE).mode is Isolation.NONE


def test_a_mode_that_does_not_work_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = dict.fromkeys(modes.LAYERS, "") | {"network namespace": "Operation not permitted"}
    monkeypatch.setattr(modes, "probed", lambda: found)
    with pytest.raises(CannotConfine, match=r"isolation full .* network namespace: Operation not"):
        choose.__wrapped__(Isolation.FULL)
    assert choose.__wrapped__(Isolation.CONTAINER).mode is Isolation.CONTAINER


# --- What a rank really is ------------------------------------------------------------------------

STATUS = """
import os
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines()
              if ":\\t" in line)
threads = [dict(line.split(":\\t", 1) for line in open(f"/proc/self/task/{thread}/status")
                .read().splitlines() if ":\\t" in line) for thread in os.listdir("/proc/self/task")]
found = {
    "users": [int(u) for u in status["Uid"].split()],
    "capabilities": int(status["CapEff"], 16) | int(status["CapPrm"], 16),
    "threads": len(threads),
    "filtered": [t["Seccomp"] for t in threads],
    "no new privileges": [t["NoNewPrivs"] for t in threads],
    "pid": os.getpid(), "parent": os.getppid(),
}
"""


@pytest.mark.parametrize("mode", [Isolation.FULL, Isolation.CONTAINER])
def test_every_thread_of_a_rank_is_confined(mode: Isolation) -> None:
    if modes.why_not(mode):
        pytest.skip(modes.why_not(mode))
    rank = inside(STATUS, mode, world_size=2)
    assert rank["threads"] > 1, "gloo's own threads are there"
    assert set(rank["filtered"]) == {"2"}
    assert set(rank["no new privileges"]) == {"1"}
    assert len(set(rank["users"])) == 1
    assert rank["users"][0] in range(20000, 30000)
    assert rank["capabilities"] == 0
    assert (rank["parent"] == 1) == (mode is Isolation.FULL)


def test_nothing_is_left_in_the_rank_of_what_confines_it() -> None:
    found = inside(
        """
        import sys
        found = [n for n in sys.modules if "confine" in n]
        found += [type(f).__name__ for f in sys.meta_path if "Memory" in type(f).__name__]
        """
    )
    assert found == ["<confine>"]


def test_a_rank_gains_no_rights_shows_its_memory_to_nobody_and_dies_with_its_leader() -> None:
    libc = ctypes.CDLL(None)

    def state() -> str:
        signal_at_death = ctypes.c_int()
        libc.prctl(2, ctypes.byref(signal_at_death))
        return f"{libc.prctl(39, 0, 0, 0, 0)} {libc.prctl(3, 0, 0, 0, 0)} {signal_at_death.value}"

    def before_and_after() -> str:
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        before = state()
        process.harden()
        return f"{before}, then {state()}"

    assert attempt(before_and_after) == "0 1 0, then 1 0 9"


def test_a_rank_holds_no_descriptor_but_its_own() -> None:
    held = inside(
        """
        import os
        found = []
        for descriptor in os.listdir("/proc/self/fd"):
            try:
                found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            except OSError:
                pass
        """,
        world_size=2,
    )
    own = re.compile(
        r"/dev/null|(?:pipe|socket):\[\d+\]|anon_inode:\[eventpoll\]|/proc/self/fd|/proc/\d+/fd"
        r"|/memfd:multirank-(?:trace|stacks|output|input) \(deleted\)"
    )
    others = [path for path in held if not own.fullmatch(path)]
    assert set(others) <= set(user.open_import_path())


# --- The system-call filter -----------------------------------------------------------------------


def test_the_filter_refuses_network_programs_and_other_processes() -> None:
    found = refusals(
        """
        socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        socket.socket(socket.AF_UNIX).connect("/tmp/nowhere")
        subprocess.run(["true"])
        os.execv("/bin/true", ["true"])
        os.kill(os.getppid(), 0)
        os.kill(0, signal.SIGCONT)
        os.kill(-1, signal.SIGCONT)
        os.killpg(os.getpgrp(), signal.SIGCONT)
        os.pidfd_open(os.getpid()); signal.pidfd_send_signal(os.pidfd_open(os.getpid()), 0)
        os.memfd_create("hidden")
        call(101, 16, os.getppid(), 0, 0)
        call(310, os.getpid(), 0, 0, 0, 0, 0)
        call(425, 8, 0)
        call(272, 0x10000000)
        call(56, 0x10000000 | 17, 0, 0, 0, 0)
        call(165, b"none", b"/tmp", b"tmpfs", 0, 0)
        call(321, 0, 0, 0)
        call(323, 0)
        call(298, 0, 0, 0, 0, 0)
        call(250, 0, 0, 0, 0, 0)
        call(29, 0, 4096, 0o666)
        call(302, os.getppid(), 7, 0, 0)
        call(47 + 0x40000000, 0, 0, 0)
        """
    )
    allowed = [line for line, what in found.items() if what not in ("EPERM", "ENOSYS")]
    assert allowed == []


def test_the_filter_lets_through_what_honest_programs_do() -> None:
    found = refusals(
        """
        os.kill(os.getpid(), signal.SIGCONT)
        signal.raise_signal(signal.SIGCONT)
        __import__("threading").Thread(target=len, args=("",)).start()
        os.fork() or os._exit(0); os.wait()
        socket.socketpair()
        __import__("resource").setrlimit(__import__("resource").RLIMIT_NOFILE, (200, 200))
        __import__("asyncio").run(__import__("asyncio").sleep(0))
        __import__("multiprocessing").Lock()
        __import__("tempfile").TemporaryFile().write(b"x")
        """
    )
    assert set(found.values()) == {"done"}


def test_a_program_that_makes_its_own_groups_may_listen_and_not_connect() -> None:
    found = refusals(
        """
        s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
        socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        socket.socket(socket.AF_INET, socket.SOCK_RAW)
        socket.socket().connect(("127.0.0.1", 1))
        socket.socket().sendto(b"x", 0x20000000, ("127.0.0.1", 1))
        """,
        listening=True,
    )
    assert list(found.values()) == ["done", "done", "EPERM", "EPERM", "EPERM", "EPERM"]


def test_the_filter_is_the_same_on_both_machines_but_for_numbers() -> None:
    for listening in (False, True):
        here, there = (seccomp.program(77, listening, arm) for arm in (False, True))
        assert len(here) - len(there) == 2 + 2  # x32's numbers; inotify_init
        for code in (here, there):
            for place, (_, yes, no, _) in enumerate(code):
                assert place + 1 + max(yes, no) <= len(code)
    numbers = [number for number, _ in seccomp.REFUSED.values()]
    assert len(set(numbers)) == len(numbers)


# --- Limits and memory ----------------------------------------------------------------------------


def test_limits_hold() -> None:
    found = inside(
        """
        import resource, os, mmap
        r = resource
        found = {name: r.getrlimit(getattr(r, name)) for name in
                 ("RLIMIT_CORE", "RLIMIT_NPROC", "RLIMIT_NOFILE", "RLIMIT_FSIZE", "RLIMIT_AS")}
        try:
            with open(os.environ["TMPDIR"] + "/large", "wb") as file:
                for _ in range(200):
                    file.write(b"x" * (1 << 20))
            found["file"] = "written"
        except OSError as error:
            found["file"] = error.errno
        try:
            mmap.mmap(-1, 64 << 30)
            found["memory"] = "mapped"
        except OSError as error:
            found["memory"] = error.errno
        """
    )
    assert found["file"] == errno.EFBIG
    assert found["memory"] == errno.ENOMEM
    assert found["RLIMIT_CORE"] == [0, 0]
    assert found["RLIMIT_NPROC"] == [limits.TASKS + limits.TASKS_PER_RANK] * 2
    assert found["RLIMIT_NOFILE"] == [limits.DESCRIPTORS] * 2
    soft, hard = found["RLIMIT_AS"]
    assert limits.ADDRESS_SPACE < soft == hard < limits.ADDRESS_SPACE + (16 << 30)


def test_a_world_that_takes_too_much_memory_is_ended_and_told_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watchdog, "MOST", 300 << 20)
    monkeypatch.setattr(watchdog, "SHARED", 0)
    text = "import time\ndef take():\n    held = b'x' * (400 << 20)\n    time.sleep(30)\n"
    started = time.monotonic()
    with (
        boundary(choose(), 1, False) as around,
        World(
            1, before_ranks=around.before_ranks, before_user_code=around.before_user_code
        ) as world,
    ):
        run = world.call(Source(text, "take"), check=False)
        assert around.complaint == (
            "your program was ended: its ranks used more than 0.3 GiB of memory together"
        )
    assert not run.ok
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("most", ["MOST_DISK", "MOST_FILES"])
def test_a_world_that_writes_too_many_files_is_ended_and_told_why(
    most: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, most, 100)
    text = """
def write():
    import os, time
    for folder in ("/tmp", os.environ["TMPDIR"]):
        os.makedirs(f"{folder}/of-{os.getuid()}/deep")
        for number in range(60):
            with open(f"{folder}/of-{os.getuid()}/deep/{number}", "w") as file:
                file.write("x")
    time.sleep(30)
"""
    with (
        boundary(choose(Isolation.CONTAINER), 1, False) as around,
        World(
            1, before_ranks=around.before_ranks, before_user_code=around.before_user_code
        ) as world,
    ):
        started = time.monotonic()
        assert not world.call(Source(text, "write"), check=False).ok
        assert time.monotonic() - started < 10
        assert around.complaint.startswith("your program was ended: its ranks wrote more than")


# --- Namespaces -----------------------------------------------------------------------------------

needs_namespaces = pytest.mark.skipif(
    os.getuid() != 0 or bool(modes.why_not(Isolation.FULL)), reason="namespaces cannot be had"
)


@needs_namespaces
def test_a_world_has_its_own_network_processes_and_public_folders() -> None:
    marker = Path(tempfile.mkdtemp(prefix="autograder-test-"))
    marker.chmod(0o755)
    kept = [Path(path).parts[2] for path in sys.path if path.startswith("/tmp/")]
    try:
        found = inside(
            f"""
            import os, socket
            found = {{
                "devices": [name for _, name in socket.if_nameindex()],
                "processes": sorted(int(p) for p in os.listdir("/proc") if p.isdigit()),
                "marker": os.path.exists({str(marker)!r}),
                "tmp": sorted(
                    n.rpartition("-")[0] for n in os.listdir("/tmp") if n not in {kept!r}
                ),
                "shm": os.listdir("/dev/shm"),
                "me": os.getpid(),
            }}
            """,
            Isolation.FULL,
            world_size=2,
            listening=True,
        )
    finally:
        marker.rmdir()
    assert found["devices"] == ["lo"]
    assert found["processes"] == [found["me"]], "not even its sibling and its leader"
    assert found["marker"] is False
    assert found["tmp"] == ["autograder-home", "autograder-home", "multirank-world"]
    assert found["shm"] == []


@needs_namespaces
def test_the_graders_rooms_are_covered_and_what_is_installed_is_not() -> None:
    rooms = privacy.rooms()
    assert {str(ROOT / "reference"), str(ROOT / "autograder"), str(ROOT / "tests")} <= {*rooms}
    found = inside(
        f"""
        import os, importlib
        def entries(path):
            try:
                return len(os.listdir(path))
            except OSError:
                return 0
        importlib.import_module("torch.onnx")
        importlib.import_module("xml.dom.minidom")
        found = [path for path in {rooms!r} if entries(path)]
        """,
        Confinement(Isolation.FULL, ()),  # without Landlock, which would refuse them too
    )
    assert found == []


@needs_namespaces
def test_a_private_folder_keeps_what_python_imports_from_below_it(tmp_path: Path) -> None:
    """Where the virtual environment lies under /tmp, say."""
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "kept_module.py").write_text("HERE = True\n")
    (tmp_path / "beside.py").write_text("")
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path(tempfile.gettempdir()) and str(folder).startswith(tempfile.gettempdir()):
            folder.chmod(0o755)
    program = f"""
import os, sys
sys.path.append({str(packages)!r})
from autograder.confine import namespaces
namespaces.enter([])
import kept_module
assert not os.path.exists({str(tmp_path / "beside.py")!r})
print(kept_module.HERE, os.getpid())
sys.stdout.flush()
os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["True", "1"], done.stderr


@needs_namespaces
def test_what_remains_outside_ends_with_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MULTIRANK_ZYGOTE", raising=False)  # one of this process's own
    start()
    before = descendants()
    with (
        boundary(choose(Isolation.FULL), 1, False) as around,
        World(1, before_ranks=around.before_ranks, before_user_code=around.before_user_code),
    ):
        started = descendants() - before
        assert len(started) == 3, "what remains outside, the leader, the rank"
        idle = [pid for pid in started if not list(Path(f"/proc/{pid}/fd").iterdir())]
        assert len(idle) == 1, "what remains outside holds nothing open"
    deadline = time.monotonic() + 5
    while descendants() - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert descendants() - before == set()


def descendants() -> set[int]:
    """The processes that this one has started, and those that they have."""
    parents = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = file.read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                parents[int(file.parent.name)] = int(fields[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


# --- Landlock -------------------------------------------------------------------------------------

needs_landlock = pytest.mark.skipif(
    os.getuid() != 0 or "not implemented" in modes.probed()[landlock.NAME],
    reason="there is no Landlock",
)


@needs_landlock
def test_landlock_opens_what_libraries_need_and_no_more() -> None:
    own = [str(ROOT), str(ROOT / "README.md")]
    if any(ROOT.is_relative_to(path) for path in namespaces.public()):
        own = []  # where everybody may write, everybody may read
    found = inside(
        f"""
        import os
        def what(path):
            try:
                os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1)
                return "read"
            except OSError as error:
                return type(error).__name__
        found = {{path: what(path) for path in
                 ("/", "/usr/lib", "/etc/hostname", "/dev/null", "/dev/urandom", "/proc/cpuinfo",
                  "/root", *{own!r})}}
        """,
        Isolation.CONTAINER,
    )
    read = {path for path, what in found.items() if what == "read"}
    assert read == {"/usr/lib", "/etc/hostname", "/dev/null", "/dev/urandom", "/proc/cpuinfo"}


# --- The grader's own -----------------------------------------------------------------------------


def test_the_reason_why_a_result_does_not_count_names_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for room in ("reference", "autograder"):
        (tmp_path / room).mkdir(mode=0o755)
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith(tempfile.gettempdir() + "/"):
            folder.chmod(0o755)
    monkeypatch.setattr(privacy, "ROOT", tmp_path)
    confined = Confinement(Isolation.CONTAINER, (user.NAME,))
    (reason,) = privacy.why_not_official(confined)
    assert f"chmod o= {tmp_path}/autograder {tmp_path}/reference" in reason
    for room in ("reference", "autograder"):
        (tmp_path / room).chmod(0o750)
    assert privacy.why_not_official(confined) == []
    assert privacy.why_not_official(Confinement(Isolation.FULL, ())) == []
    assert "runs as root" in privacy.why_not_official(Confinement(Isolation.NONE, ()))[0]


def test_a_folder_that_can_be_reached_from_below_is_not_private(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Python's own folders stay open to ranks, and from there a way leads up and down again."""
    home = tmp_path / "grader"
    (home / "reference").mkdir(parents=True)
    packages = home / "venv" / "site-packages"
    packages.mkdir(parents=True)
    home.chmod(0o755)
    tmp_path.chmod(0o700)
    assert privacy.readable([str(home / "reference")]) == []
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    assert privacy.readable([str(home / "reference")]) == [str(home / "reference")]
    (home / "reference").chmod(0o700)
    assert privacy.readable([str(home / "reference")]) == []


def test_an_interpreter_that_can_be_read_in_no_way_is_refused_with_the_cure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir(mode=0o700)
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    said = attempt(user.probe)
    assert f"cannot read {packages}, from which Python imports" in said
    assert f"chmod -R o+rX {packages}" in said


def test_a_boundary_that_cannot_be_drawn_starts_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail closed: a rank whose filter is refused never sees a submission."""
    broken = dict(around_worlds._files())
    broken["seccomp.py"] += b"\ndef install(*_): raise OSError('no filter here')\n"
    monkeypatch.setattr(around_worlds, "_files", lambda: broken)
    with pytest.raises(StartError, match="no filter here"):
        inside("found = 1")


def test_a_grader_hides_from_its_own_user() -> None:
    def owners() -> str:
        os.setresuid(65000, 65000, 65000)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # as it is for whoever has changed no user
        before = os.stat("/proc/self/environ").st_uid
        process.hide()
        return f"{before}, then {os.stat('/proc/self/environ').st_uid}"

    assert attempt(owners) == "65000, then 0"
