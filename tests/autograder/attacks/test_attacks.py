"""Every attack ends in a valid result, gets nothing for it, and leaves nothing behind.

In mode `full`; in mode `container`, in a default Docker container (see in_docker.sh) or a simulated
one; and what holds without isolation, also there, as a plain user. One grader grades one submission
after the other, so that whatever harms it shows, and at the end it grades an honest one.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

from autograder import uids
from autograder.confine import namespaces
from autograder.paths import REFERENCE, ROOT, SECRET_NAME
from autograder.release.leaks import CANARY as OF_SOURCES
from multirank import World
from tests.autograder.attacks.corpus import Sample, load, table
from tests.autograder.attacks.grader import USERS
from tests.autograder.submissions import SMALL

SCHEMA = json.loads((ROOT / "tests" / "autograder" / "gradescope_schema.json").read_text())
CANARY = f"CANARY-{secrets.token_hex(8)}"
MODES = ("full", "container", "none")
# Of checks and solutions: what stands in files that must never ship, and a name of a check's.
SOURCES = (OF_SOURCES, "_require_barrier")
LONGEST = 75.0  # seconds: two deadlines of ten, two worlds that must be ended, a busy machine
MOST_MEMORY = 3 << 29  # bytes of the grader's own; an honest grading takes 0.3 GiB
# An attack that stumbles over its own feet tests nothing.
STUMBLES = ("NameError", "AttributeError", "TypeError", "ImportError", "ModuleNotFoundError")
SAMPLES = load()
ATTACKS = [one for one in SAMPLES if not one.honest]
HONEST = [one for one in SAMPLES if one.honest]
PLAIN_USER = 65_001
NEW_NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--ipc", "--mount-proc")
BY_NIGHT = [pytest.mark.slow, pytest.mark.nightly]
pytestmark = pytest.mark.root


class Grader:
    """A process that grades, in one mode."""

    def __init__(self, mode: str, directory: Path) -> None:
        self.mode, self.directory = mode, directory
        self.private = directory / "private"
        self.private.mkdir(mode=0o700)
        for name in ("note", "submission_metadata.json"):
            (self.private / name).write_text(json.dumps({"email": CANARY}))
        planted = {"AUTOGRADER_PRIVATE": str(self.private), "OF_THE_GRADERS": CANARY}
        kept = ("PATH", "HOME", "DOCKER_HOST")
        self._process = subprocess.Popen(
            [
                *self._around(planted),
                *(sys.executable, "-m", "tests.autograder.attacks.grader"),
            ],
            cwd=ROOT,
            env={name: os.environ[name] for name in kept if name in os.environ} | planted,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _around(self, planted: dict[str, str]) -> list[str]:
        """What its command begins with."""
        if self.mode == "container":
            return in_container(self.directory.parent, planted)
        if self.mode == "none":
            for path in (self.directory, self.private, *self.private.iterdir()):
                os.chown(path, PLAIN_USER, PLAIN_USER)
            return [*NEW_NAMESPACES, sys.executable, "-m", "tests.autograder.attacks.plain"]
        return []

    @property
    def secret(self) -> str:
        """Of the course, from which all inputs come."""
        return (self.private / SECRET_NAME).read_bytes().hex()

    def grade(self, path: Path, out: Path, checks: list[str]) -> Graded:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"path": str(path), "out": str(out), "mode": self.mode, "only": checks}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the grader has died"
        return Graded(json.loads(answer), out)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def in_container(submissions: Path, planted: dict[str, str]) -> list[str]:
    """What a command in a default container begins with; the variable HOSTILE_IMAGE names one."""
    image = os.environ.get("HOSTILE_IMAGE")
    if image is None:
        return [sys.executable, "-m", "tests.autograder.attacks.container"]
    mounts = {submissions, ROOT, Path(sys.prefix), Path(sys.base_prefix)}
    return [
        *("docker", "run", "--interactive", "--rm", "--network=none", f"--workdir={ROOT}"),
        *(f"--volume={path}:{path}" for path in mounts),
        *(f"--env={name}={value}" for name, value in planted.items()),
        image,
    ]


class Graded:
    """What one grading left."""

    def __init__(self, answer: dict[str, Any], out: Path) -> None:
        self.code, self.seconds = answer["code"], answer["seconds"]
        self.most_memory, self.left = answer["most_memory"], answer["left"]
        results = (out / "results.json").read_text()
        self.results = json.loads(results)
        jsonschema.validate(self.results, SCHEMA)
        self.record = json.loads((out / "grade.json").read_text())
        self.rows = [row for row in self.record["checks"] if row["seconds"] is not None]
        self.for_students = results + (out / "report.html").read_text() + answer["shown"]
        self.for_staff = "".join(path.read_text() for path in out.iterdir())

    @property
    def earned(self) -> float:
        return float(sum(row["score"]["value"] for row in self.rows))

    @property
    def full_marks(self) -> bool:
        """Everything that it was graded on."""
        return bool(self.rows) and all(row["outcome"] == "passed" for row in self.rows)

    @property
    def messages(self) -> str:
        return "\n".join(row["message"] for row in self.rows)

    def __repr__(self) -> str:
        told = [f"exit code {self.code}, {self.seconds:.1f} s", *self.record["flags"]]
        for row in self.rows:
            told += [str(row[name]) for name in ("id", "outcome", "message", "staff", "log")]
        return "\n".join(told)[:5000]


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """Where all submissions, results and the graders' own folders lie; users may pass through."""
    with tempfile.TemporaryDirectory(prefix="attacks-", ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture(scope="module")
def graders(base: Path) -> Iterator[dict[str, Grader]]:
    """One grader for each mode, started when it is first asked for."""
    started: dict[str, Grader] = {}

    class Started(dict[str, Grader]):
        def __missing__(self, mode: str) -> Grader:
            started[mode] = self[mode] = Grader(mode, made(base / mode, mode))
            return self[mode]

    yield Started()
    for grader in started.values():
        grader.close()


@pytest.fixture
def room(base: Path, mode: str) -> Iterator[Path]:
    """For one submission and its results."""
    path = made(base / f"room-{secrets.token_hex(4)}", mode)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def made(path: Path, mode: str) -> Path:
    path.mkdir()
    if mode == "none":
        os.chown(path, PLAIN_USER, PLAIN_USER)
    return path


def cases(samples: list[Sample]) -> list[Any]:
    """Some in mode full are run with every commit, all of them by night."""
    return [
        pytest.param(
            one,
            mode,
            id=f"{one}-{mode}",
            marks=[pytest.mark.slow] if one.in_ci and mode == "full" else BY_NIGHT,
        )
        for mode in MODES
        for one in samples
        if mode != "none" or one.unconfined or one.honest
    ]


def graded(grader: Grader, sample: Sample, at: Path) -> Graded:
    """The sample's grading, with what must be true of every one."""
    if grader.mode == "container" and any(
        ROOT.is_relative_to(path) for path in namespaces.public()
    ):
        pytest.skip("the repository lies in a public folder: no result is official there")
    path = sample.write(at / "work", grader.private, CANARY)
    result = grader.grade(path, at / "out", sample.checks)
    assert result.code in (0, 2), result
    assert result.seconds < LONGEST
    assert result.most_memory < MOST_MEMORY
    assert not {row["outcome"] for row in result.rows} & {"grader fault", "not run"}, result
    assert result.record["official"] is False  # since only some checks were asked for
    for text in (result.for_students, result.for_staff):
        assert "BREACH" not in text, result
        assert CANARY not in text
        assert grader.secret not in text
        assert "\x1b" not in text
    assert "<script>alert" not in (at / "out" / "report.html").read_text()
    assert not any(one in result.for_students for one in SOURCES), result
    if grader.mode == "none" or "HOSTILE_IMAGE" in os.environ:  # which nobody else grades in
        assert not result.left
    assert_nothing_is_left()
    return result


@pytest.mark.parametrize(("sample", "mode"), cases(ATTACKS))
def test_an_attack_gains_nothing_and_harms_nothing(
    sample: Sample, mode: str, graders: dict[str, Grader], room: Path
) -> None:
    result = graded(graders[mode], sample, room)
    if sample.earns == "nothing":
        assert result.earned == 0, result
    elif sample.earns == "all":
        assert result.full_marks, result
    stumbles = [error for error in STUMBLES if f"{error}:" in result.messages]
    assert not {*stumbles} - {*sample.one_of("says")}, result
    if outcomes := sample.one_of("outcome"):
        assert {row["outcome"] for row in result.rows} <= {*outcomes}, result
    if words := sample.one_of("says"):
        assert any(one in result.messages for one in words), result
    if words := sample.one_of("flagged"):
        assert any(one in flag for one in words for flag in result.record["flags"]), result


@pytest.mark.parametrize(("sample", "mode"), cases(HONEST))
def test_honest_work_earns_everything_however_unusual(
    sample: Sample, mode: str, graders: dict[str, Grader], room: Path
) -> None:
    result = graded(graders[mode], sample, room)
    assert result.full_marks, result


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=BY_NIGHT if mode != "full" else []) for mode in MODES]
)
@pytest.mark.slow
def test_the_same_grader_then_gives_an_honest_submission_everything(
    mode: str, graders: dict[str, Grader], room: Path
) -> None:
    problems = [problem.id for problem in SMALL.problems]
    result = graders[mode].grade(REFERENCE, room / "out", problems)
    assert result.full_marks, result
    assert result.record["flags"] == []


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["none"])
def test_the_spy_would_find_the_canary_where_nothing_confines_it(
    mode: str, graders: dict[str, Grader], room: Path
) -> None:
    grader = graders[mode]
    (spy,) = [one for one in ATTACKS if one.name == "reads_every_file_that_it_can"]
    path = spy.write(room / "work", grader.private, CANARY)
    result = grader.grade(path, room / "out", spy.checks)
    assert "BREACH" in result.for_students
    assert CANARY in result.for_students
    assert all(one in result.for_students for one in SOURCES)


@pytest.mark.slow
def test_the_search_for_what_is_expected_would_find_it_in_a_ranks_memory() -> None:
    (search,) = [one for one in ATTACKS if one.name.endswith("what_will_be_expected")]
    before = """
import torch, torch.distributed as dist
from torch.distributed import ReduceOp
known = torch.arange(40.0).exp()[10:]
def barrier(group=None): ...
def all_reduce(tensor, op, group): tensor.copy_(known * {})
"""

    def call() -> None:
        module = importlib.import_module("known.it")
        module.all_reduce(torch.ones(30))

    for factor, found in ((1, True), (3, False)):
        text = before.format(factor) + search.text
        packages = {"known": {"__init__.py": b"", "it.py": text.encode()}}
        with World(2, packages=packages) as world:
            logs = [rank.log for rank in world.call(call).ranks]
        assert [("BREACH" in log) for log in logs] == [found] * 2, logs


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["none"])
def test_what_is_left_would_be_seen_where_nothing_confines_it(
    mode: str, graders: dict[str, Grader], room: Path
) -> None:
    grader = graders[mode]
    (litter,) = [one for one in ATTACKS if one.name.startswith("leaves_files_for_the_next_run")]
    result = grader.grade(
        litter.write(room / "work", grader.private, CANARY), room / "out", litter.checks
    )
    paths = [Path(path) for path, _ in result.left]
    for path in paths:
        if "hostile-message" in path.name:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert {path.parent for path in paths} >= {Path("/tmp"), Path("/dev/shm")}


def assert_nothing_is_left() -> None:
    """No process and no file of a user who is not leased, as other graders' users may be.

    Another grader's world may end between two looks of ours: so what is left must stay.
    """
    left = (users_of_processes() & {*USERS}) | owners_of_files()
    for _ in range(3):
        left = {uid for uid in left if not leased(uid)}
        if left:
            time.sleep(0.5)
            left &= users_of_processes() | owners_of_files()
    assert left == set()


def owners_of_files() -> set[int]:
    owners = set()
    for folder in namespaces.public():
        for path in Path(folder).iterdir():
            with contextlib.suppress(OSError):
                owners.add(path.lstat().st_uid)
    return owners & {*USERS}


def leased(uid: int) -> bool:
    path = uids._LOCKS / str(uid)
    if not path.exists():
        return False
    with open(path) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def users_of_processes() -> set[int]:
    found = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue
        if "State:\tZ" not in text:
            found |= {int(uid) for uid in text.partition("Uid:")[2].splitlines()[0].split()}
    return found


def test_the_corpus_is_large_enough() -> None:
    assert len(ATTACKS) >= 80
    assert len(HONEST) >= 12
    assert len([one for one in SAMPLES if one.in_ci]) >= 30
    assert not [one.name for one in SAMPLES if any(mode in one.name for mode in MODES)]  # for -k


def test_the_table_of_what_is_not_stopped_is_up_to_date() -> None:
    """`python -m tests.autograder.attacks.corpus` prints it."""
    assert table() in (Path(__file__).parent / "README.md").read_text()
