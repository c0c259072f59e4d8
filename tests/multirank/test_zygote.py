"""The process that all ranks are forked from: one, clean, and gone in the end."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest
import torch

import multirank
from multirank import StartError, World
from multirank.processes import connect
from tests.multirank.processes import is_running, still_running, wait_until

ROOT = Path(__file__).resolve().parents[2]
SECRET = "a-secret-that-no-rank-may-see"
UP = """
def up():
    leader = os.getppid()
    return int(open(f"/proc/{leader}/stat").read().rpartition(")")[2].split()[1])
"""


def program(
    text: str, directory: Path, *, own_zygote: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program that uses multirank; with a zygote of its own, or with this process's."""
    file = directory / "program.py"
    file.write_text("import os, sys, time\nimport multirank\n\n" + textwrap.dedent(text))
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not (own_zygote and name == "MULTIRANK_ZYGOTE")
    }
    return subprocess.run(
        [sys.executable, str(file)],
        env=inherited | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def the_zygote() -> int:
    with World(1, process_group=False) as world:
        return parent_of(world.call(os.getppid).results[0])


def open_files(pid: int) -> list[str]:
    """The kinds of what a process has open: "socket", "pipe", or a path."""
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(str(entry.readlink()).partition(":")[0])
    return links


# ---------------------------------------------------------------- one


def test_one_zygote_serves_all_worlds() -> None:
    assert the_zygote() == the_zygote()


def test_one_zygote_serves_a_process_and_its_children(tmp_path: Path) -> None:
    child = program(
        UP + "print(multirank.run(up, 1, process_group=False).results[0])",
        tmp_path,
        own_zygote=False,
    )
    assert child.stderr == ""
    assert int(child.stdout) == the_zygote()
    assert is_running(the_zygote())  # it does not end with the child


def test_a_forked_child_of_the_caller_may_run_ranks_too() -> None:
    zygote = the_zygote()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if the_zygote() == zygote else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert is_running(zygote)


def test_starting_twice_starts_one() -> None:
    before = os.environ["MULTIRANK_ZYGOTE"]
    multirank.start()
    assert os.environ["MULTIRANK_ZYGOTE"] == before


@pytest.mark.slow
def test_one_zygote_serves_all_workers_of_xdist(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import multirank\ndef pytest_configure(config):\n    multirank.start()\n"
    )
    (tmp_path / "test_it.py").write_text(
        "import os, pytest, multirank\n"
        "@pytest.mark.parametrize('n', range(8))\n"
        "def test_it(n):\n"
        "    with open('zygotes', 'a') as out: print(os.environ['MULTIRANK_ZYGOTE'], file=out)\n"
        "    with open('workers', 'a') as out: print(os.getpid(), file=out)\n"
        "    assert multirank.run(lambda: n, 2).results == [n, n]\n"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MULTIRANK", "PYTEST"))}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "8 passed" in run.stdout, run.stdout + run.stderr
    (socket,) = set((tmp_path / "zygotes").read_text().split())
    assert len(set((tmp_path / "workers").read_text().split())) == 2
    assert not Path(socket).exists()


@pytest.mark.slow
def test_a_zygote_that_has_died_is_replaced(tmp_path: Path) -> None:
    run = program(
        UP
        + """
import signal
first = multirank.run(up, 1, process_group=False).results[0]
os.kill(first, signal.SIGKILL)
second = multirank.run(up, 1, process_group=False).results[0]
print(first != second)
""",
        tmp_path,
    )
    assert (run.stdout, run.stderr) == ("True\n", "")


@pytest.mark.slow
def test_a_world_that_is_alive_outlives_its_zygote(tmp_path: Path) -> None:
    run = program(
        UP
        + """
import signal
with multirank.World(2) as world:
    os.kill(world.call(up).results[0], signal.SIGKILL)
    time.sleep(0.1)
    print(len(world.call(os.getpid).results))
""",
        tmp_path,
    )
    assert (run.stdout, run.stderr) == ("2\n", "")


# ---------------------------------------------------------------- clean


def test_a_zygote_knows_no_secret_of_its_caller_and_ends_with_it(tmp_path: Path) -> None:
    run = program(
        UP
        + """
import json
from pathlib import Path
def look():
    pids = (os.getpid(), os.getppid(), up())
    return {
        "zygote": pids[-1],
        "seen": [Path(f"/proc/{pid}/{name}").read_bytes().decode()
                 for pid in pids for name in ("environ", "cmdline")],
        "environment": dict(os.environ),
    }
found = multirank.run(look, 1).results[0]
print(json.dumps(found | {"socket": os.environ["MULTIRANK_ZYGOTE"]}))
""",
        tmp_path,
        GRADER_TOKEN=SECRET,
        PYTHONSTARTUP=SECRET,
        MULTIRANK_ZYGOTE="/not/there",  # a stale variable harms nothing
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert "OMP_NUM_THREADS" in run.stdout
    assert SECRET not in run.stdout
    assert "GRADER_TOKEN" not in run.stdout
    found = json.loads(run.stdout)
    assert still_running([found["zygote"]]) == []
    assert not Path(found["socket"]).parent.exists()


def test_the_environment_of_a_rank_is_small() -> None:
    names = set(multirank.run(lambda: dict(os.environ), 1).results[0])
    allowed = {
        *("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH"),
        *("OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME"),
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        "TORCHINDUCTOR_CACHE_DIR",  # which torch itself sets when it is imported
    }
    prefixes = ("LC_", "OPENBLAS_", "MKL_", "CUDA_", "NCCL_")
    assert {name for name in names if not name.startswith(prefixes)} <= allowed


def test_ranks_cannot_import_the_grader_or_the_reference() -> None:
    def attempt() -> list[str]:
        import importlib

        found = []
        for name in ("autograder", "reference", "tests", "conftest"):
            try:
                importlib.import_module(name)
                found.append(name)
            except ImportError:
                pass
        return found + [path for path in sys.path if not path.startswith(sys.base_prefix)]

    with World(1, import_path=(), process_group=False) as world:
        (found,) = world.call(attempt).results
    assert all(Path(path).name in ("site-packages", "dist-packages") for path in found)


def test_the_zygote_has_one_thread_and_nothing_open_but_its_own() -> None:
    pid = the_zygote()
    status = Path(f"/proc/{pid}/status").read_text()
    assert int(status.partition("Threads:")[2].split()[0]) == 1
    deadline = time.monotonic() + 10
    while (links := open_files(pid)).count("socket") > 1 and time.monotonic() < deadline:
        time.sleep(0.01)  # it may be handing another world's connection to its leader just now
    assert links.count("socket") == 1
    assert links.count("pipe") == 1
    assert len(links) == 5, links  # and /dev/null, its errors, its selector


def test_everything_that_ranks_need_is_imported_already() -> None:
    def missing() -> list[str]:
        from multirank.processes.zygote import PRELOADED

        return [name for name in PRELOADED if name not in sys.modules]

    assert multirank.run(missing, 1, process_group=False).results == [[]]


def test_a_first_optimizer_step_is_quick() -> None:
    def step() -> float:
        import torch

        started = time.monotonic()
        weight = torch.nn.Parameter(torch.ones(2))
        weight.sum().backward()  # type: ignore[no-untyped-call]
        torch.optim.AdamW([weight]).step()
        return time.monotonic() - started

    assert multirank.run(step, 1, process_group=False).results[0] < 0.5


# ---------------------------------------------------------------- gone in the end


@pytest.mark.slow
def test_a_zygote_ends_with_a_program_that_is_killed(tmp_path: Path) -> None:
    text = """
print(multirank.run(up, 1, process_group=False).results[0], os.environ["MULTIRANK_ZYGOTE"])
sys.stdout.flush()
os.kill(os.getpid(), 9)
"""
    run = program(UP + text, tmp_path)
    assert run.returncode == -signal.SIGKILL
    pid, socket = run.stdout.split()
    assert still_running([int(pid)], within=2.0) == []
    assert wait_until(lambda: not Path(socket).parent.exists(), within=2.0)


def test_a_program_that_needs_no_ranks_after_all_ends_at_once(tmp_path: Path) -> None:
    run = program(
        """
        import atexit
        atexit.register(lambda: print(time.monotonic()))  # after multirank has tidied up
        multirank.start()
        print(os.environ["MULTIRANK_ZYGOTE"], time.monotonic())
        """,
        tmp_path,
    )
    socket, started, ended = run.stdout.split()
    assert float(ended) - float(started) < 1.0  # well before the zygote's imports are done
    assert not Path(socket).parent.exists()


def test_a_program_without_a_main_guard_is_told(tmp_path: Path) -> None:
    (tmp_path / "unguarded.py").write_text(
        "import multirank\ndef f():\n    return 1\nmultirank.run(f, 1)\n"
    )

    def load(path: str) -> None:
        sys.path.insert(0, path)
        importlib.import_module("unguarded")

    run = multirank.run(load, 1, str(tmp_path), check=False, process_group=False)
    assert '__name__ == "__main__"' in run.story


# ---------------------------------------------------------------- when it cannot be started


@pytest.mark.parametrize(
    ("sabotage", "reason"),
    [
        ("raise ImportError('no torch on this machine')", "no torch on this machine"),
        ("import os; os._exit(3)", "the process that starts ranks has died"),
    ],
)
def test_a_zygote_that_cannot_start_says_why(
    monkeypatch: pytest.MonkeyPatch, sabotage: str, reason: str
) -> None:
    monkeypatch.delenv("MULTIRANK_ZYGOTE")
    monkeypatch.setattr(connect, "_PROGRAM", sabotage)
    with pytest.raises(StartError, match=reason):
        World(2)


def test_a_temporary_directory_with_a_long_name_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.delenv("MULTIRANK_ZYGOTE")
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(StartError, match=r"no socket can be made in .* set TMPDIR to a short path"):
        multirank.start()
    assert list(deep.iterdir()) == []


def _torch_in_threads_at_once(*, of_a_child: bool) -> int:
    """Sixteen threads whose first act is torch's, also in a child; how the child ended."""
    child = os.fork() if of_a_child else 0
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    library = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"))
    first = ctypes.cast(library["_ZN2at15get_num_threadsEv"], ctypes.c_void_p)
    threads = (ctypes.c_ulong * 16)()
    for thread in range(16):
        started = ctypes.byref(threads, thread * ctypes.sizeof(ctypes.c_ulong))
        ctypes.CDLL(None).pthread_create(started, None, first, None)
    for thread in threads:
        ctypes.CDLL(None).pthread_join(ctypes.c_ulong(thread), None)
    if of_a_child:
        os._exit(0)
    return 0


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")
@pytest.mark.parametrize("of_a_child", [False, True])
def test_threads_of_a_rank_may_begin_to_use_torch_at_once(of_a_child: bool) -> None:
    # A fork leaves torch's pool of threads to be made anew by whoever asks first, and two who ask
    # at the same time may find none: "Invalid thread pool!", in about every third of these ranks.
    for _ in range(2):
        with World(8) as world:
            run = world.call(_torch_in_threads_at_once, of_a_child=of_a_child)
        assert run.results == [0] * 8, str(run)


def test_a_child_does_not_run_what_a_program_put_in_the_place_of_torchs_functions() -> None:
    def program() -> None:
        torch.set_num_threads = torch.get_num_threads = None  # type: ignore[assignment]
        if os.fork() == 0:
            os._exit(0)
        os.wait()

    with World(1) as world:
        run = world.call(program)
    assert run.ranks[0].log == ""
