"""One check of a graded submission again: the same inputs, and words that a student may read."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from autograder import circumstances, report, turns
from autograder.backend import GLOO
from autograder.batch.outcome import GRADING
from autograder.batch.replay import CannotReplay, Replayed, explanation, replay
from autograder.batch.store import SUBMISSION
from autograder.confine.modes import choose
from autograder.grade import Outcome, Row
from autograder.grading import Grading
from autograder.inputs import known_secret
from autograder.intake import take
from tests.autograder.submissions import SMALL, Files, patched, reference_files

CHECK = "broadcast/from_rank_0"
WRONG = patched({"broadcast": "    return  # ``` nothing is sent\n"})


def graded(files: Files, at: Path) -> Path:
    """A folder as a batch leaves it: the record and, beside it, what was handed in."""
    (at / SUBMISSION).mkdir(parents=True)
    for name, content in files.items():
        (at / SUBMISSION / name).write_bytes(content)
    secret, confinement = known_secret(1), choose()
    about = circumstances.about(SMALL, secret, [CHECK], confinement, GLOO)
    about.digest = take(at / SUBMISSION, known=SMALL.modules).digest
    grade = Grading(SMALL, files, reference_files(), secret, about, only=[CHECK]).run()
    report.write_all(grade, at)
    return at


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return graded(WRONG, tmp_path_factory.mktemp("graded") / "wrong")


def test_a_check_comes_out_the_same_and_is_explained(wrong: Path) -> None:
    replayed = replay(wrong, CHECK, SMALL, seed=1)
    assert not replayed.changed
    assert replayed.same_grader
    told = explanation(replayed)
    assert told.startswith("# Check 1.2.1: From rank 0")
    assert "It came out the same: failed, 0 of 0.4 points." in told
    assert replayed.now.message in told
    assert "pytest tests/assignment/test_collectives.py -k broadcast" in told


def test_it_takes_turns_with_whatever_is_graded_here(
    wrong: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_folder", lambda: tmp_path / "turns")
    replay(wrong, CHECK, SMALL, seed=1)
    assert (tmp_path / "turns" / "lock").exists()


def test_another_outcome_is_said_with_the_one_before(wrong: Path, tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    shutil.copytree(wrong, mended)
    for name, content in reference_files().items():
        (mended / SUBMISSION / name).write_bytes(content)
    replayed = replay(mended / "grade.json", "1.2.1", SMALL, seed=1)
    assert replayed.changed
    told = explanation(replayed)
    assert "It came out otherwise: passed, 0.4 of 0.4 points. When it was graded: failed" in told
    assert replayed.before.message in told


def test_the_staffs_folder_of_a_batch_is_replayed_as_it_was_graded(
    wrong: Path, tmp_path: Path
) -> None:
    counted = json.loads((wrong / "grade.json").read_text())
    for check in counted["checks"]:
        check["outcome"], check["score"] = "passed", check["points"]
    (tmp_path / "grade.json").write_text(json.dumps(counted))
    (tmp_path / GRADING).symlink_to(wrong)
    replayed = replay(tmp_path, CHECK, SMALL, seed=1)
    assert not replayed.changed
    assert replayed.before.outcome is Outcome.FAILED


def test_other_points_are_no_other_result() -> None:
    before = Row("a/b", "a", "1.1", "1.1.1", "B", "values", Fraction(2), score=Fraction(1))
    heavier = replace(before, points=Fraction(4), score=Fraction(2))
    assert not Replayed(before, heavier, same_grader=True).changed
    worse = Replayed(before, replace(before, points=Fraction(4)), same_grader=True)
    assert "1 of 4 points. When it was graded: not run, 1 of 2 points." in explanation(worse)


def test_what_cannot_be_repeated_is_refused_with_advice(wrong: Path, tmp_path: Path) -> None:
    with pytest.raises(CannotReplay, match="did you mean broadcast/from_rank_0"):
        replay(wrong, "broadcast/from_rank_1", SMALL, seed=1)
    with pytest.raises(CannotReplay, match="another secret"):
        replay(wrong, CHECK, SMALL, seed=2)
    with pytest.raises(CannotReplay, match="cannot be read"):
        replay(tmp_path, CHECK, SMALL, seed=1)
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(wrong / "grade.json", alone)
    with pytest.raises(CannotReplay, match="Name it with --submission"):
        replay(alone, CHECK, SMALL, seed=1)
    other = tmp_path / "other"
    other.mkdir()
    (other / "collectives.py").write_text("")
    with pytest.raises(CannotReplay, match="not the submission that was graded"):
        replay(alone, CHECK, SMALL, seed=1, submission=other)
    replayed = replay(alone, CHECK, SMALL, seed=1, submission=wrong / SUBMISSION)
    assert not replayed.changed
