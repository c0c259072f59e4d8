"""One grading in a batch, for real: its version, what is run again, whose turn it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from autograder import report
from autograder.batch import conduct, records
from autograder.batch.grader import WrongGrader, grade
from autograder.batch.people import Entry, Student
from autograder.batch.store import TIMELINES, TIMES, Place, Status, Store
from autograder.batch.worker import work
from autograder.digest import grader_digest
from autograder.grade import Grade, Outcome
from autograder.manifest import Manifest
from autograder.record import read as read_record
from tests.autograder.submissions import reference_files, small_manifest

from .batches import settings


def begun(tmp_path: Path, grader: str = "", problems: Sequence[str] = ("shard_batch",)) -> Place:
    """A grading of the reference that is ready for a worker."""
    path = tmp_path / "reference"
    path.mkdir()
    for name, content in reference_files().items():
        (path / name).write_bytes(content)
    store = Store(tmp_path / "out")
    store.make()
    how = settings(small_manifest(*problems), grader or grader_digest())
    entry = Entry("reference", path, (Student("reference"),))
    return conduct.plan(store, how, [entry], conduct.Asked())["reference"]


def record_of(place: Place) -> Grade:
    return records.grade_of(read_record(place.record))


def test_a_grading_leaves_its_results_and_its_state(tmp_path: Path) -> None:
    place = begun(tmp_path)
    assert work(place, grade) == Status.DONE
    assert record_of(place).earned == record_of(place).points == 1
    names = {report.RESULTS, report.RECORD, report.PAGE, report.STAFF_PAGE, TIMELINES, TIMES}
    assert names <= {path.name for path in place.path.iterdir()}


def test_another_version_of_the_grader_grades_nothing(tmp_path: Path) -> None:
    place = begun(tmp_path, grader="0" * 16)
    task = place.task()
    assert task is not None
    with pytest.raises(WrongGrader, match="another version"):
        grade(task, place)
    assert work(place, grade) == Status.FAULT
    assert not place.record.exists()


def test_after_a_fault_only_what_could_not_be_judged_is_run_again(tmp_path: Path) -> None:
    place = begun(tmp_path)
    work(place, grade)
    first = record_of(place)
    broken, *kept = [row.check_id for row in first.rows]
    first.record(broken, Outcome.GRADER_FAULT, staff="it broke")
    for id in kept:
        first.record(id, Outcome.PASSED, seconds=1234.0)
    report.write_all(first, place.path)
    place.update(status=Status.WAITING)
    assert work(place, grade) == Status.DONE
    again = {row.check_id: row for row in record_of(place).rows}
    assert again[broken].outcome is Outcome.PASSED
    assert {again[id].seconds for id in kept} == {1234.0}


def regraded(place: Place, course: Manifest, what: str) -> Grade:
    """The grade after this part of it was graded again, under a course that may be another."""
    store, path = Store(place.path.parents[2]), place.path.parents[3] / "reference"
    entry = Entry("reference", path, (Student("reference"),))
    asked = conduct.Asked(regrade=(what,))
    again = conduct.plan(store, settings(course, grader_digest()), [entry], asked)["reference"]
    assert work(again, grade) == Status.DONE, again.state().faults
    return record_of(again)


def test_a_regrade_under_other_weights_keeps_the_other_problems_results(
    tmp_path: Path,
) -> None:
    place = begun(tmp_path, problems=("shard_batch", "partition_layers"))
    work(place, grade)
    first = record_of(place)
    kept = first.rows_of("partition_layers")[0]
    first.record(kept.check_id, Outcome.PARTIAL, score=kept.points / 4)
    report.write_all(first, place.path)
    course = small_manifest("shard_batch", "partition_layers")
    heavier = [msgspec.structs.replace(one, points=3 * one.points) for one in course.problems]
    again = regraded(place, replace(course, problems=tuple(heavier)), "shard_batch")
    assert again.points == 3 * first.points
    rows = {row.check_id: row for row in again.rows}
    assert rows[kept.check_id].score == 3 * kept.points / 4
    assert {row.outcome for row in rows.values() if row.check_id != kept.check_id} == {
        Outcome.PASSED
    }


def test_a_check_that_was_not_there_before_is_run_with_what_is_graded_again(
    tmp_path: Path,
) -> None:
    place = begun(tmp_path, problems=("shard_batch", "partition_layers"))
    work(place, grade)
    new = record_of(place).rows_of("partition_layers")[0].check_id
    before = place.record.read_text()
    place.record.write_text(before.replace(f'"{new}"', '"partition_layers/by_another_name"'))
    course = small_manifest("shard_batch", "partition_layers")
    again = {row.check_id: row for row in regraded(place, course, "shard_batch").rows}
    assert again[new].outcome is Outcome.PASSED
    assert "partition_layers/by_another_name" not in again


@pytest.mark.slow  # 10 s
def test_what_is_measured_takes_its_turn(tmp_path: Path) -> None:
    place = begun(tmp_path, problems=("measure",))
    work(place, grade)
    times = json.loads((place.path / TIMES).read_bytes())
    assert 0 < times["measured"] < times["seconds"]
