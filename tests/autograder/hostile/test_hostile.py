"""Every hostile submission ends in a valid result, gets nothing for it, and leaves nothing behind.

In mode `full`; in mode `container`, in a default Docker container (see in_docker.sh) or a simulated
one; and what is harmless so also without isolation. One grader grades one submission after the
other, so that whatever harms it shows; after each it grades an honest one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from autograder import uids
from autograder.confine import namespaces
from autograder.paths import REFERENCE, ROOT
from tests.autograder.hostile.attacks import ALL, ATTACKS, BARRIER, NOTHING, WALK, Attack
from tests.autograder.hostile.honest import HONEST

SCHEMA = json.loads((ROOT / "tests" / "autograder" / "gradescope_schema.json").read_text())
CANARY = f"CANARY-{secrets.token_hex(8)}"
MODES = ("full", "container", "none")
USERS = range(20000, 30000)
LONGEST = 75.0  # seconds: two deadlines of ten, two worlds that must be ended, a busy machine

MOST_MEMORY = 3 << 29  # bytes of the grader's own; an honest grading takes 0.3 GiB
BY_NIGHT = [pytest.mark.slow, pytest.mark.nightly]
pytestmark = pytest.mark.root


class Grader:
    """A process that grades, in one mode."""

    def __init__(self, mode: str, directory: Path) -> None:
        self.mode, self.directory = mode, directory
        self.private = directory / "private"
        self.private.mkdir(mode=0o700)
        (self.private / "note").write_text(CANARY)
        planted = {"AUTOGRADER_PRIVATE": str(self.private), "OF_THE_GRADERS": CANARY}
        kept = ("PATH", "HOME", "DOCKER_HOST")
        self._process = subprocess.Popen(
            [
                *(in_container(directory.parent, planted) if mode == "container" else []),
                *(sys.executable, "-m", "tests.autograder.hostile.grader"),
            ],
            cwd=ROOT,
            env={name: os.environ[name] for name in kept if name in os.environ} | planted,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def grade(self, path: Path, out: Path, check: str) -> Graded:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"path": str(path), "out": str(out), "mode": self.mode, "only": check}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the grader has died"
        return Graded(json.loads(answer), out, check)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def in_container(submissions: Path, planted: dict[str, str]) -> list[str]:
    """What a command in a default container begins with; the variable HOSTILE_IMAGE names one."""
    image = os.environ.get("HOSTILE_IMAGE")
    if image is None:
        return [sys.executable, "-m", "tests.autograder.hostile.container"]
    mounts = (submissions, ROOT, Path(sys.base_prefix))
    return [
        *("docker", "run", "--interactive", "--rm", "--network=none", f"--workdir={ROOT}"),
        *(f"--volume={path}:{path}" for path in mounts),
        *(f"--env={name}={value}" for name, value in planted.items()),
        image,
    ]


class Graded:
    """What one grading left."""

    def __init__(self, answer: dict[str, Any], out: Path, check: str) -> None:
        self.code, self.seconds = answer["code"], answer["seconds"]
        self.most_memory = answer["most_memory"]
        results = (out / "results.json").read_text()
        self.results = json.loads(results)
        jsonschema.validate(self.results, SCHEMA)
        self.record = json.loads((out / "grade.json").read_text())
        (self.row,) = [row for row in self.record["checks"] if row["id"] == check]
        self.for_students = results + (out / "report.html").read_text() + answer["shown"]
        self.for_staff = "".join(path.read_text() for path in out.iterdir())

    @property
    def earned(self) -> float:
        return float(self.row["score"]["value"])

    @property
    def full_marks(self) -> bool:
        return bool(self.row["outcome"] == "passed" and self.earned == self.row["points"]["value"])


@pytest.fixture(scope="module")
def graders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Grader]]:
    """One grader for each mode, started when it is first asked for."""
    started: dict[str, Grader] = {}

    class Started(dict[str, Grader]):
        def __missing__(self, mode: str) -> Grader:
            started[mode] = self[mode] = Grader(mode, tmp_path_factory.mktemp(mode))
            return self[mode]

    yield Started()
    for grader in started.values():
        grader.close()


def told(graded: Graded) -> str:
    return "\n".join(str(graded.row[name]) for name in ("outcome", "message", "staff", "log"))


def modes_of(attack: Attack) -> tuple[str, ...]:
    return MODES if attack.none else MODES[:2]


def cases(attacks: list[Attack]) -> list[Any]:
    """The quick ones in mode full are run with every commit, all of them by night."""
    return [
        pytest.param(
            attack,
            mode,
            id=f"{attack.name}-{mode}",
            marks=[] if attack.quick and mode == "full" else BY_NIGHT,
        )
        for attack in attacks
        for mode in modes_of(attack)
    ]


@pytest.mark.parametrize(("attack", "mode"), cases(ATTACKS))
def test_an_attack_gains_nothing_and_harms_nothing(
    attack: Attack, mode: str, graders: dict[str, Grader], tmp_path: Path
) -> None:
    if mode == "container" and any(ROOT.is_relative_to(path) for path in namespaces.public()):
        pytest.skip("the repository lies in a public folder: no result is official there")
    grader = graders[mode]
    path = attack.write(tmp_path / "work", grader.private, CANARY)
    graded = grader.grade(path, tmp_path / "out", attack.check)
    assert graded.code in (0, 2)
    assert graded.seconds < LONGEST
    assert graded.most_memory < MOST_MEMORY
    assert graded.row["outcome"] not in ("grader fault", "not run")
    if attack.earns == NOTHING:
        assert graded.earned == 0
    elif attack.earns == ALL:
        assert graded.full_marks, told(graded)
    if attack.says:
        assert any(words in graded.row["message"] for words in attack.says), graded.row["message"]
    for text in (graded.for_students, graded.for_staff):
        assert "BREACH" not in text
        assert CANARY not in text
        assert "\x1b" not in text
    assert "<script>alert" not in (tmp_path / "out" / "report.html").read_text()
    assert graded.record["official"] is False  # since only one check was asked for
    assert_nothing_is_left()
    honest = grader.grade(REFERENCE, tmp_path / "honest", BARRIER)
    assert honest.full_marks, told(honest)


@pytest.mark.parametrize(("honest", "mode"), cases(HONEST))
def test_honest_work_gets_full_marks_however_unusual(
    honest: Attack, mode: str, graders: dict[str, Grader], tmp_path: Path
) -> None:
    grader = graders[mode]
    path = honest.write(tmp_path / "work", grader.private, CANARY)
    graded = grader.grade(path, tmp_path / "out", honest.check)
    assert graded.full_marks, told(graded)
    assert_nothing_is_left()


@pytest.mark.slow
@pytest.mark.nightly
def test_the_spy_would_find_the_canary_where_nothing_confines_it(
    graders: dict[str, Grader], tmp_path: Path
) -> None:
    grader = graders["none"]
    path = Attack("spies", WALK).write(tmp_path / "work", grader.private, CANARY)
    graded = grader.grade(path, tmp_path / "out", BARRIER)
    assert "BREACH" in graded.for_students
    assert CANARY in graded.for_students


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
    assert len(ATTACKS) >= 25
    assert len(HONEST) >= 6
    assert len({attack.name for attack in [*ATTACKS, *HONEST]}) == len(ATTACKS) + len(HONEST)
