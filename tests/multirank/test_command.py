"""`python -m multirank FILE:FUNCTION`: what it prints, how it ends, and the debugger."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import multirank
from multirank.__main__ import _Lines, main
from tests.multirank.processes import still_running

ROOT = Path(multirank.__file__).parent.parent

PROGRAM = """
import os, sys, time
import torch, torch.distributed as dist
import neighbour

def works():
    print("hello from", dist.get_rank())
    print("to stderr", file=sys.stderr)
    total = torch.ones(2) * neighbour.FACTOR
    dist.all_reduce(total)
    return total.tolist() if dist.get_rank() == 0 else None

def silent():
    pass

def fails():
    print("about to fail")
    if dist.get_rank() == 1:
        raise ValueError("stumbled")
    dist.barrier()

def hangs():
    if dist.get_rank() == 0:
        dist.barrier()

def endless():
    print("pid", os.getpid(), flush=True)
    while True:
        time.sleep(0.1)

def careless():
    dist.all_reduce(torch.ones(1), async_op=True)
    time.sleep(0.1)

def unfinished():
    sys.stdout.write("no newline")

def starts_itself():
    dist.init_process_group("gloo")
    print("rank", dist.get_rank(), "of", dist.get_world_size())
    dist.destroy_process_group()

def debugged():
    x = torch.full((2,), 40 + dist.get_rank())
    if dist.get_rank() == 1:
        breakpoint()
    dist.all_reduce(x)
    print("sum", x.tolist())

def debugged_too_far():
    if dist.get_rank() == 1:
        breakpoint()
        dist.recv(torch.ones(1), 0)

def debugged_while_others_fail():
    if dist.get_rank() == 1:
        breakpoint()
        print("still here")
    else:
        raise ValueError("elsewhere")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "neighbour.py").write_text("FACTOR = 3\n")
    (folder / "other").mkdir()
    (folder / "other" / "json.py").write_text("def f():\n    print('ours')\n")
    package = folder / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "sibling.py").write_text("WORD = 'relative'\n")
    (package / "inner.py").write_text(
        "from .sibling import WORD\n\ndef main():\n    print(WORD, __name__)\n"
    )
    return folder


@dataclass
class Done:
    """What came of a command."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """Runs the command in this process, which has torch already."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)

    def run(*arguments: str) -> Done:
        status = main(list(arguments))
        captured = capsys.readouterr()
        return Done(status, captured.out, captured.err)

    return run


def started(folder: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """The command as people type it."""
    return subprocess.Popen(
        [sys.executable, "-m", "multirank", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb"},
        text=True,
        **options,
    )


def test_every_line_is_shown_with_its_rank_and_results_come_last(run: Callable[..., Done]) -> None:
    done = run("program.py:works", "-n", "3")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    said = [f"[rank {r}] {text}" for r in range(3) for text in (f"hello from {r}", "to stderr")]
    assert sorted(lines[:-1]) == sorted(said)
    assert lines[-1] == "rank 0 returned [9.0, 9.0]"
    assert done.stderr == ""


def test_a_program_that_says_nothing_prints_nothing(run: Callable[..., Done]) -> None:
    done = run("program.py:silent", "-n", "2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_line_without_an_end_is_shown(run: Callable[..., Done]) -> None:
    assert "[rank 1] no newline\n" in run("program.py:unfinished", "-n", "2").stdout


def test_a_failure_is_explained_on_standard_error(run: Callable[..., Done], folder: Path) -> None:
    done = run("program.py:fails", "-n", "2")
    assert done.returncode == 1
    assert "rank 1 of 2 raised:" in done.stderr
    assert 'File "' + str(folder / "program.py") in done.stderr
    assert "ValueError: stumbled" in done.stderr
    assert done.stdout.count("about to fail") == 2
    assert "about to fail" not in done.stderr


def test_a_hang_is_explained_and_ends_at_once(run: Callable[..., Done]) -> None:
    begun = time.monotonic()
    done = run("program.py:hangs", "-n", "2")
    assert done.returncode == 1
    assert done.stderr.startswith("Deadlock: rank 0 can never go on.")
    assert "program.py:" in done.stderr
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("suffix", [".html", ".svg", ".json"])
def test_a_run_is_drawn(run: Callable[..., Done], tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"run{suffix}"
    done = run("program.py:works", "-n", "3", "--timeline", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    assert "program.py:" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("function", "told"), [("hangs", "blocked for ever"), ("fails", ">ValueError<")]
)
def test_a_run_that_fails_is_drawn_too(
    run: Callable[..., Done], tmp_path: Path, function: str, told: str
) -> None:
    file = tmp_path / "run.html"
    done = run(f"program.py:{function}", "-n", "2", "--timeline", str(file))
    assert done.returncode == 1
    assert told in file.read_text(encoding="utf-8")


def test_a_picture_that_cannot_be_written_is_told(run: Callable[..., Done], tmp_path: Path) -> None:
    (tmp_path / "run.html").mkdir()
    done = run("program.py:silent", "-n", "1", "--timeline", str(tmp_path / "run.html"))
    assert done.returncode == 1
    assert "the timeline cannot be written" in done.stderr


def test_a_deadline_can_be_set(run: Callable[..., Done]) -> None:
    done = run("program.py:endless", "-n", "2", "--timeout", "0.5")
    assert done.returncode == 1
    assert "had not finished after 0.5 s" in done.stderr


def test_warnings_are_told_and_are_no_failure(run: Callable[..., Done]) -> None:
    done = run("program.py:careless", "-n", "2")
    assert done.returncode == 0
    assert "Warning: ranks 0 and 1: the handle of all_reduce" in done.stderr


def test_a_function_may_start_its_process_group_itself(run: Callable[..., Done]) -> None:
    done = run("program.py:starts_itself", "-n", "2", "--bare")
    assert done.returncode == 0, done.stderr
    assert "[rank 1] rank 1 of 2\n" in done.stdout


def test_the_lectures_first_program_runs() -> None:
    process = started(
        ROOT, *("reference/launch.py:main", "-n", "4", "--bare"), stdout=subprocess.PIPE
    )
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "[rank 3] rank 3 after all_reduce:  [6.0, 10.0, 14.0, 18.0]" in output


def test_a_file_of_a_package_may_import_its_neighbours(run: Callable[..., Done]) -> None:
    done = run("package/inner.py:main", "-n", "1")
    assert done.stdout == "[rank 0] relative package.inner\n", done.stderr


def test_a_module_can_be_named(run: Callable[..., Done]) -> None:
    done = run("package.inner:main", "-n", "1")
    assert done.stdout == "[rank 0] relative package.inner\n", done.stderr


def test_a_file_may_be_called_as_a_module_of_python_is(run: Callable[..., Done]) -> None:
    assert run("other/json.py:f", "-n", "1").stdout == "[rank 0] ours\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["program.py", "-n", "2"], "'program.py' must be FILE:FUNCTION, such as train.py:main"),
        (["missing.py:main", "-n", "2"], "there is no file missing.py"),
        (["program.py:silent"], "required: -n"),
        (["program.py:silent", "-n", "0"], "-n is 0; it must be from 1 to"),
        (["program.py:silent", "-n", "2", "--debug", "2"], "the ranks are 0 to 1"),
        (["program.py:silent", "-n", "2", "--timeout", "0"], "must be positive"),
        (["program.py:silent", "-n", "2", "--timeline", "a.png"], "ends in .html, .svg, or .json"),
        (["program.py:silent", "-n", "2", "--timeline", "x/a.svg"], "there is no folder x"),
    ],
)
def test_wrong_usage_is_told_and_exits_with_2(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert told in capsys.readouterr().err


def test_a_function_that_does_not_exist_is_told(run: Callable[..., Done]) -> None:
    done = run("program.py:nothing", "-n", "2")
    assert done.returncode == 1
    assert "program.py defines no function 'nothing'" in done.stderr


def test_control_c_ends_all_ranks(folder: Path) -> None:
    process = started(
        folder,
        *("program.py:endless", "-n", "2"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    pids = [int(process.stdout.readline().split()[-1]) for _ in range(2)]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert errors == "interrupted\n"
    assert still_running(pids, within=5) == []


def test_lines_of_several_ranks_do_not_mix(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _Lines()
    lines.take(0, b"one li")
    lines.take(1, b"other\nand")
    lines.take(0, b"ne\n\xff\n")
    lines.end()
    assert capsys.readouterr().out == (
        "[rank 1] other\n[rank 0] one line\n[rank 0] \ufffd\n[rank 1] and\n"
    )


# ---------------------------------------------------------------- the debugger


class Terminal:
    """A command that runs in a terminal of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._master, slave = os.openpty()
        self.seen = ""
        self._process = started(
            folder,
            *arguments,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.modes = termios.tcgetattr(self._master)
        os.close(slave)

    def wait_for(self, text: str, within: float = 30.0) -> None:
        """Reads until the text appears (again)."""
        deadline = time.monotonic() + within
        start = len(self.seen)
        while text not in self.seen[start:]:
            readable, _, _ = select.select([self._master], [], [], deadline - time.monotonic())
            assert readable, f"no {text!r} in {self.seen!r}"
            try:
                self.seen += os.read(self._master, 4096).decode()
            except OSError as error:  # the other side is closed
                raise AssertionError(f"no {text!r} in {self.seen!r}") from error

    def type(self, line: str) -> None:
        os.write(self._master, f"{line}\n".encode())

    def end(self) -> int:
        """The exit status, once everything is read."""
        try:
            while part := os.read(self._master, 4096):
                self.seen += part.decode()
        except OSError:
            pass
        return self._process.wait(20)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)


@pytest.fixture
def debug(folder: Path) -> Iterator[Callable[..., Terminal]]:
    """Starts a command in a terminal."""
    opened: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        opened.append(Terminal(folder, *arguments))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def test_breakpoint_works_in_the_rank_that_has_the_terminal(debug: Callable[..., Terminal]) -> None:
    terminal = debug("program.py:debugged", "-n", "3", "--debug", "1")
    terminal.wait_for("(Pdb)")
    assert "-> dist.all_reduce(x)" in terminal.seen
    time.sleep(1)  # the others wait, and nobody calls that a hang
    terminal.type("p x")
    terminal.wait_for("tensor([41, 41])")
    terminal.type("c")
    assert terminal.end() == 0
    assert "\nsum [123, 123]" in terminal.seen  # its own print, as it is
    assert "[rank 0] sum [123, 123]" in terminal.seen
    assert "[rank 2] sum [123, 123]" in terminal.seen


def test_who_steps_into_a_hang_is_told(debug: Callable[..., Terminal]) -> None:
    terminal = debug("program.py:debugged_too_far", "-n", "2", "--debug", "1")
    terminal.wait_for("(Pdb)")
    time.sleep(0.5)
    terminal.type("c")
    assert terminal.end() == 1
    assert "Deadlock: rank 1 can never go on." in terminal.seen


def test_a_failure_elsewhere_does_not_end_the_debugger(
    debug: Callable[..., Terminal],
) -> None:
    terminal = debug("program.py:debugged_while_others_fail", "-n", "2", "--debug", "1")
    terminal.wait_for("(Pdb)")
    time.sleep(1)
    terminal.type("c")
    assert terminal.end() == 1
    assert "still here" in terminal.seen
    assert re.search(r"rank 0 of 2 raised:.*ValueError: elsewhere", terminal.seen, re.DOTALL)


def test_the_terminal_is_given_back_as_it_was(debug: Callable[..., Terminal]) -> None:
    terminal = debug("program.py:debugged", "-n", "2", "--debug", "1")
    terminal.wait_for("(Pdb)")
    os.write(terminal._master, b"\x03")  # Control-C, to the command in the foreground
    assert terminal.end() == 130
    assert termios.tcgetattr(terminal._master) == terminal.modes
