"""A batch: whatever happens to it, everybody is graded, once, and nobody gets an unearned zero."""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autograder.batch.scoring import Standing
from autograder.batch.store import Place, Status
from autograder.paths import ROOT

from .batches import Batch, names


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    (tmp_path / "class").mkdir()
    return Batch(tmp_path / "class", tmp_path / "out")


def test_everybody_is_graded_and_nobody_twice(batch: Batch) -> None:
    for number, name in enumerate(names(5)):
        batch.submit(name, score=f"{number}/4")
    result = batch.run()
    assert result.code == 0
    assert batch.finals() == dict(zip(names(5), ["0.0", "1.0", "2.0", "3.0", "4.0"], strict=True))
    assert batch.run().code == 0
    assert [batch.attempts(name) for name in names(5)] == [[1]] * 5


def test_one_who_hands_in_again_is_graded_again_and_the_others_not(batch: Batch) -> None:
    batch.submit("anna", score=0)
    batch.submit("bert", score=1)
    batch.run()
    batch.submit("anna", score=1)
    batch.run()
    assert batch.finals() == {"anna": "4.0", "bert": "4.0"}
    assert batch.attempts("anna") == [1, 1]
    assert batch.attempts("bert") == [1]


def test_a_fault_is_tried_twice_more(batch: Batch) -> None:
    batch.submit("anna", faults=2)
    batch.submit("bert", dies=2)
    assert batch.run().code == 0
    assert batch.finals() == {"anna": "4.0", "bert": "4.0"}
    assert batch.attempts("anna") == batch.attempts("bert") == [3]


def test_a_fault_that_stays_is_listed_and_is_no_zero(batch: Batch) -> None:
    batch.submit("anna", faults=3)
    batch.submit("bert", dies=3)
    batch.submit("carl")
    result = batch.run()
    assert result.code == 3
    assert batch.finals() == {"anna": "", "bert": "", "carl": "4.0"}
    assert [row["standing"] for row in batch.rows().values()] == [
        *("grader fault", "grader fault", "graded")
    ]
    assert "anna: the grader failed: RuntimeError: the fake grader was asked to fail" in batch.shown
    assert "bert: the grader failed: the worker has died (exit code 9)" in batch.shown
    assert not (batch.out / "students" / "anna").exists()
    batch.run()
    assert batch.attempts("anna") == [3], "given up is given up, until somebody asks"
    assert batch.run(failed=True).code == 0
    assert batch.finals() == {"anna": "4.0", "bert": "4.0", "carl": "4.0"}


def test_only_what_could_not_be_judged_is_open_and_has_no_final(batch: Batch) -> None:
    batch.submit("anna", open={"broadcast/first": 9})
    batch.submit("bert", open={"broadcast/first": 1})
    result = batch.run()
    assert result.code == 3
    row = batch.rows()["anna"]
    assert (row["final"], row["standing"], row["points"]) == ("", "not all judged", "3.0")
    assert batch.rows()["bert"]["final"] == "4.0"
    assert batch.attempts("anna") == [3]


def test_what_could_not_be_judged_is_tried_again_when_somebody_asks(batch: Batch) -> None:
    batch.submit("anna", open={"broadcast/first": 3})
    batch.submit("bert")
    assert batch.run().code == 3
    assert batch.run(failed=True).code == 0
    assert batch.finals() == {"anna": "4.0", "bert": "4.0"}
    assert (batch.attempts("anna"), batch.attempts("bert")) == ([4], [1])


def test_a_worker_that_hangs_is_replaced(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    batch.submit("anna", seconds=60)
    batch.submit("bert")
    make = batch.executor

    def impatient(*given: object) -> object:
        executor = make(batch.store)
        executor._stalled = 2.0  # type: ignore[attr-defined]
        return executor

    monkeypatch.setattr(batch, "executor", impatient)
    batch.run()
    assert batch.rows()["anna"]["standing"] == "grader fault"
    assert batch.rows()["bert"]["final"] == "4.0"
    assert "no check has ended for" in batch.shown


# --- Interrupted, at any moment -------------------------------------------------------------------

_COMMAND = """
import sys
from pathlib import Path
from tests.autograder.batch.batches import Batch
from autograder.batch.conduct import Asked
Batch(Path(sys.argv[1]), Path(sys.argv[2])).run()
"""


def started(batch: Batch, *within: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*within, sys.executable, "-c", _COMMAND, str(batch.path), str(batch.out)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


@pytest.mark.slow  # 8 s, since it starts many processes
def test_killed_at_random_moments_it_goes_on_and_grades_everybody_once(batch: Batch) -> None:
    rng = random.Random(1)
    for number, name in enumerate(names(12)):
        batch.submit(name, score=f"{number % 5}/4", seconds=0.02)
    kills = 4
    for kill in range(1, kills + 1):
        process = started(batch)
        wait_until(functools.partial(are_done, batch, 2 * kill))
        time.sleep(rng.uniform(0, 0.08))
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = {name for name in names(12) if is_done(batch, name)}
    batch.run()
    assert batch.finals() == {name: f"{number % 5:.1f}" for number, name in enumerate(names(12))}
    assert 8 <= len(before) < 12
    attempts = {name: sum(batch.attempts(name)) for name in names(12)}
    assert sum(attempts.values()) <= 12 + batch.workers * kills, "more was lost than what ran"
    for name in names(12):
        (place,) = batch.store.of(name)
        assert place.state().faults == (), "being killed is nobody's fault"


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def is_done(batch: Batch, name: str) -> bool:
    return any(place.state().status is Status.DONE for place in batch.store.of(name))


def are_done(batch: Batch, count: int) -> bool:
    return sum(is_done(batch, name) for name in names(12)) >= count


@pytest.mark.slow  # 5 s
def test_two_batches_at_once_share_the_work(batch: Batch) -> None:
    for name in names(8):
        batch.submit(name, seconds=0.1)
    both = [started(batch), started(batch)]
    for process in both:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()
    assert batch.finals() == dict.fromkeys(names(8), "4.0")
    assert [batch.attempts(name) for name in names(8)] == [[1]] * 8


@pytest.mark.root
def test_it_may_be_the_first_process_of_a_container(batch: Batch) -> None:
    first = ("unshare", "--pid", "--fork", "--mount-proc")
    if subprocess.run([*first, "true"], capture_output=True).returncode:
        pytest.skip("there can be no namespace of processes here")
    batch.submit("anna")
    process = started(batch, *first)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors.decode()
    assert batch.finals() == {"anna": "4.0"}


def test_ctrl_c_leaves_what_is_finished_and_lets_the_rest_wait(batch: Batch) -> None:
    batch.submit("a-quick-one")
    batch.submit("b-slow-one", seconds=30)
    process = started(batch)
    place = wait_for_the_slow_one(batch)
    process.send_signal(signal.SIGINT)
    process.wait(20)
    assert place.state().status is Status.WAITING
    assert not place.is_locked()
    assert batch.store.of("a-quick-one")[0].state().status is Status.DONE


def wait_for_the_slow_one(batch: Batch) -> Place:
    wanted = {"a-quick-one": Status.DONE, "b-slow-one": Status.RUNNING}
    wait_until(lambda: {one.name: one.state().status for one in all_places(batch)} == wanted)
    return batch.store.of("b-slow-one")[0]


def all_places(batch: Batch) -> list[Place]:
    names = ("a-quick-one", "b-slow-one")
    return [place for name in names for place in batch.store.of(name)]


@pytest.mark.parametrize("damage", [b"", b"{", b'{"status": 7}', b"\xff\x00", b"null"])
def test_a_damaged_state_is_as_good_as_none(batch: Batch, damage: bytes) -> None:
    batch.submit("anna")
    batch.run()
    (place,) = batch.store.of("anna")
    (place.path / "state.json").write_bytes(damage)
    assert batch.run().code == 0
    assert batch.finals() == {"anna": "4.0"}


@pytest.mark.parametrize("file", ["task.json", "grade.json"])
def test_a_damaged_task_or_record_is_graded_again(batch: Batch, file: str) -> None:
    batch.submit("anna", score="1/2")
    batch.run()
    (place,) = batch.store.of("anna")
    (place.path / file).write_bytes(b"{")
    assert batch.run().code == 0
    assert batch.finals() == {"anna": "2.0"}


def test_only_grades_those_who_are_named(batch: Batch) -> None:
    for name in ("anna", "bert"):
        batch.submit(name)
    result = batch.run(only=("bert",))
    assert batch.finals() == {"anna": "", "bert": "4.0"}
    assert [one.standing for one in result.grades.scored] == [Standing.WAITING, Standing.FINAL]


def test_every_line_of_json_is_a_student(batch: Batch) -> None:
    batch.submit("anna", score="1/2")
    batch.run()
    (line,) = (batch.out / "grades.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert told["student"] == "anna"
    assert told["final"] == told["raw"] == 2.0
    assert told["problems"] == {"broadcast": 1.0, "scatter_gather": 1.0}
    assert os.stat(batch.out).st_mode & 0o077 == 0, "what students handed in is nobody else's"
