"""What a course decides after grading counts at once, without running anything again."""

from __future__ import annotations

import io
import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from autograder import merge
from autograder.batch import commands
from autograder.batch.adjustments import BadAdjustments
from autograder.batch.conduct import UnknownName
from autograder.batch.store import Task
from autograder.manifest import Override, Problem
from autograder.policy import Counts, Lateness, Policy, RateLimit
from autograder.record import read

from .batches import TWO, Batch, with_course

FULL = Override("broadcast/first", "full", "It was too strict.", "A. Person")
DROP = Override("broadcast/first", "drop", "It was wrong.", "A. Person")
DUE = datetime(2026, 3, 1, 23, tzinfo=UTC)
LATE = with_course(due=DUE, policy=Policy(Lateness(Fraction(10))))


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    (tmp_path / "class").mkdir()
    return Batch(tmp_path / "class", tmp_path / "out")


def student(batch: Batch, name: str) -> dict[str, object]:
    """A student's results.json."""
    return dict(json.loads((batch.out / "students" / name / "results.json").read_text()))


def roster(batch: Batch, *lines: str) -> None:
    text = "\n".join(["submission,student,submitted_at", *lines])
    (batch.path / "submissions.csv").write_text(text + "\n")


# --- Overrides ------------------------------------------------------------------------------------


def test_a_check_counts_in_full_or_is_dropped_and_nothing_runs_again(batch: Batch) -> None:
    batch.submit("anna", score=0)
    batch.submit("bert", score=1)
    batch.run()
    assert batch.finals() == {"anna": "0.0", "bert": "4.0"}
    batch.run(with_course(overrides=(FULL,)))
    assert batch.finals() == {"anna": "1.0", "bert": "4.0"}
    assert batch.rows()["anna"]["raw"] == "0.0"
    assert batch.rows()["anna"]["overrides"] == "broadcast/first"
    batch.run(with_course(overrides=(DROP,)))
    assert batch.finals() == {"anna": "0.0", "bert": "3.0"}
    assert {row["out_of"] for row in batch.rows().values()} == {"3.0"}
    batch.run()
    assert batch.finals() == {"anna": "0.0", "bert": "4.0"}
    assert batch.attempts("anna") == batch.attempts("bert") == [1]


def test_an_override_is_logged_and_shown_to_staff_and_students(batch: Batch) -> None:
    batch.submit("anna", score=0)
    batch.run()
    batch.run(with_course(overrides=(FULL,)))
    assert "broadcast/first counts in full: It was too strict. (A. Person)" in batch.shown
    assert "It was too strict." in (batch.out / "class.html").read_text()
    assert "It was too strict." in str(student(batch, "anna")["output"])
    assert "It was too strict." in (batch.out / "students" / "anna" / "report.html").read_text()
    assert student(batch, "anna")["score"] == 1.0
    (line,) = [line for line in batch.log() if line["what"] == "overrides"]
    assert "broadcast/first" in line["applied"][0]
    batch.run(with_course(overrides=(FULL,)))
    assert len([line for line in batch.log() if line["what"] == "overrides"]) == 1


def test_an_override_settles_what_could_not_be_judged(batch: Batch) -> None:
    batch.submit("anna", open={"broadcast/first": 9})
    assert batch.run().code == 3
    assert batch.run(with_course(overrides=(FULL,))).code == 0
    assert batch.finals() == {"anna": "4.0"}


def test_nothing_counts_in_full_where_there_was_nothing_to_grade(batch: Batch) -> None:
    batch.submit("bert")
    (batch.path / "anna.zip").write_bytes(b"no archive")
    batch.run(with_course(overrides=(FULL,)))
    assert batch.rows()["anna"]["standing"] == "unusable"
    assert batch.finals() == {"anna": "0.0", "bert": "4.0"}
    assert "not a zip" in str(student(batch, "anna")["output"])


def test_an_override_that_meets_nothing_is_said(batch: Batch) -> None:
    batch.submit("anna")
    batch.run(with_course(overrides=(Override("broadcast/thrid", "full", "?", "A"),)))
    assert "There is no check broadcast/thrid to override." in batch.shown


def test_other_weights_count_without_running_anything(batch: Batch) -> None:
    batch.submit("anna", score={"broadcast/first": 0})
    batch.run()
    batch.run(replace(TWO, problems=tuple(weighing(2))))
    assert batch.finals() == {"anna": "6.0"}
    assert batch.attempts("anna") == [1]


def test_what_was_worth_nothing_when_it_was_graded_can_be_given_points(batch: Batch) -> None:
    batch.submit("anna", score={"broadcast/first": "1/2"})
    nothing = replace(TWO, problems=tuple(weighing(0)))
    assert batch.run(nothing).code == 0
    assert batch.finals() == {"anna": "0.0"}
    assert batch.rows()["anna"]["out_of"] == "0.0"
    batch.run()
    assert batch.finals() == {"anna": "3.5"}
    batch.run(nothing)
    assert batch.finals() == {"anna": "0.0"}
    assert batch.attempts("anna") == [1]


def test_a_record_of_no_points_is_as_good_as_none_once_there_are_points(batch: Batch) -> None:
    batch.submit("anna")
    batch.run()
    (place,) = batch.store.of("anna")
    text = re.sub(r'"exact": "[^"]*"', '"exact": "0"', place.record.read_text())
    place.record.write_text(text)
    batch.run()
    assert (batch.rows()["anna"]["standing"], batch.finals()["anna"]) == ("not graded yet", "")
    batch.run(grader=NEW)
    assert batch.finals() == {"anna": "4.0"}


def weighing(factor: int) -> list[Problem]:
    return [msgspec.structs.replace(one, points=factor * one.points) for one in TWO.problems]


# --- Lateness, and which submission counts --------------------------------------------------------


def test_late_work_loses_its_part_and_an_extension_gives_it_back(batch: Batch) -> None:
    batch.submit("anna")
    roster(batch, "anna,s1,2026-03-02T22:00:00+00:00")
    batch.run(LATE)
    row = batch.rows()["s1"]
    assert (row["raw"], row["final"], row["late_factor"]) == ("4.0", "3.6", "0.9")
    assert "So 3.6 points count." in str(student(batch, "s1")["output"])
    (batch.out / "adjustments.csv").write_text(
        "student,extension_days,points,author,reason\ns1,2,,A. Person,was ill\n"
    )
    batch.run(LATE)
    assert batch.finals() == {"s1": "4.0"}


def test_the_last_or_the_best_submission_counts(batch: Batch) -> None:
    batch.submit("one", score=1)
    batch.submit("two", score="1/2")
    roster(batch, "one,s1,2026-03-01T10:00:00+00:00", "two,s1,2026-03-01T11:00:00+00:00")
    batch.run()
    assert batch.rows()["s1"]["submission"] == "two"
    best = with_course(policy=Policy(counts=Counts.BEST))
    batch.run(best)
    assert (batch.rows()["s1"]["submission"], batch.finals()["s1"]) == ("one", "4.0")


def test_the_best_is_the_best_after_what_lateness_takes(batch: Batch) -> None:
    batch.submit("one", score="3/4")
    batch.submit("two", score=1)
    roster(batch, "one,s1,2026-03-01T10:00:00+00:00", "two,s1,2026-03-05T11:00:00+00:00")
    rules = Policy(Lateness(Fraction(10)), counts=Counts.BEST)
    batch.run(with_course(due=DUE, policy=rules))
    assert batch.finals() == {"s1": "3.0"}


def test_what_is_over_the_rate_limit_does_not_count(batch: Batch) -> None:
    batch.submit("one", score="1/2")
    batch.submit("two", score=1)
    roster(batch, "one,s1,2026-03-01T10:00:00+00:00", "two,s1,2026-03-01T11:00:00+00:00")
    batch.run(with_course(policy=Policy(rate_limit=RateLimit(1))))
    assert (batch.rows()["s1"]["submission"], batch.finals()["s1"]) == ("one", "2.0")


def test_a_groups_submission_counts_for_each_of_them(batch: Batch) -> None:
    batch.submit("one", score="1/2")
    roster(batch, "one,s1,", "one,s2,")
    batch.run()
    assert batch.finals() == {"s1": "2.0", "s2": "2.0"}


# --- Adjustments ----------------------------------------------------------------------------------


def test_points_of_people_survive_every_regrade_and_are_told(batch: Batch) -> None:
    batch.submit("anna", score="1/2")
    batch.run()
    file = batch.out / "adjustments.csv"
    assert file.read_text() == "student,extension_days,points,author,reason\n"
    text = file.read_text() + 'anna,,1.5,A. Person,"regrade request, granted"\nzoe,1,,A,why\n'
    file.write_text(text)
    batch.run()
    assert batch.finals() == {"anna": "3.5"}
    assert "zoe has handed in nothing" in batch.shown
    batch.run(grader="2" * 16)
    assert batch.finals() == {"anna": "3.5"}
    assert file.read_text() == text
    told = str(student(batch, "anna")["output"])
    assert "1.5 points added: regrade request, granted." in told
    assert "What counts: 3.5 of 4 points." in told
    assert student(batch, "anna")["score"] == 3.5


def test_what_people_added_is_merged_with_what_gpus_found(batch: Batch, tmp_path: Path) -> None:
    """The loop of image/README.md: a batch on CPUs, one on GPUs, and both merged."""
    on_gpus = Batch(batch.path, tmp_path / "gpu", backend="nccl")
    batch.submit("anna", score="1/2")
    batch.submit("bert")
    roster(batch, "anna,s1,2026-03-02T22:00:00+00:00", "bert,s2,2026-03-01T22:00:00+00:00")
    batch.run(LATE)
    on_gpus.run(LATE)
    with (batch.out / "adjustments.csv").open("a") as file:
        file.write("s1,,1.5,A. Person,regrade request\n")
    batch.run(LATE)
    assert batch.finals() == {"s1": "3.3", "s2": "4.0"}
    one, two = merge.merge([batch.out / "staff", on_gpus.out / "staff"])
    assert (one.name, one.total, one.note) == ("s1", Fraction(9, 10) * 4 + Fraction(3, 2), "")
    assert (two.name, two.total, two.note) == ("s2", Fraction(8), "")
    record = read(batch.out / "staff" / "s1" / "grade.json")
    assert record.final.of == Fraction(33, 10), "other platforms are told the same"


# --- The files of each student --------------------------------------------------------------------


def test_files_of_nobody_are_taken_away(batch: Batch) -> None:
    batch.submit("anna")
    batch.submit("bert")
    batch.run()
    shutil.rmtree(batch.path / "anna")
    (batch.out / "staff" / "notes.txt").touch()
    batch.run()
    for room in ("students", "staff"):
        assert [one.name for one in (batch.out / room).iterdir() if one.is_dir()] == ["bert"]
    assert (batch.out / "staff" / "notes.txt").exists()


def test_files_that_are_gone_are_made_again(batch: Batch) -> None:
    batch.submit("anna")
    batch.run()
    shutil.rmtree(batch.out / "students")
    batch.run()
    assert student(batch, "anna")["score"] == 4.0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("anna,,,A,why", "line 2: neither extension_days nor points"),
        ("anna,,1,,why", "line 2: author is missing"),
        ("anna,,1,A,", "line 2: reason is missing"),
        ("anna,,one,A,why", "line 2: points is 'one'"),
        ("anna,-1,,A,why", "line 2: extension_days must be"),
        ("anna,,1,A,why,not", "line 2: too many commas"),
    ],
)
def test_a_mistake_in_adjustments_is_named(batch: Batch, line: str, said: str) -> None:
    batch.submit("anna")
    batch.run()
    (batch.out / "adjustments.csv").write_text(
        f"student,extension_days,points,author,reason\n{line}\n"
    )
    with pytest.raises(BadAdjustments, match=said):
        batch.run()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("anna,,1,Zoë,why\n".encode("cp1252"), "adjustments.csv is not UTF-8 .* CSV UTF-8"),
        (b'anna,,1,A,"' + b"why" * 50_000, "line 2: field larger than field limit"),
    ],
    ids=["another encoding", "a quote that does not end"],
)
def test_adjustments_that_cannot_be_read_are_a_sentence(
    batch: Batch, content: bytes, said: str
) -> None:
    batch.submit("anna")
    batch.out.mkdir()
    head = b"student,extension_days,points,author,reason\n"
    (batch.out / "adjustments.csv").write_bytes(head + content)
    with pytest.raises(BadAdjustments, match=said):
        batch.run()


# --- Regrades -------------------------------------------------------------------------------------

OLD, NEW = "1" * 16, "2" * 16


def last_task(batch: Batch) -> Task:
    """What the last grading of anna's was to do."""
    task = batch.store.of("anna")[-1].task()
    assert task is not None
    return task


def test_a_newer_grader_raises_grades_and_lowers_none_unless_told(batch: Batch) -> None:
    batch.submit("anna", **{"with": {OLD: "1/2", NEW: 1}})
    batch.submit("bert", **{"with": {OLD: 1, NEW: "1/2"}})
    batch.run(grader=OLD)
    result = batch.run(grader=NEW)
    assert batch.finals() == {"anna": "4.0", "bert": "4.0"}
    moves = [(one.name, float(one.before), float(one.after), one.kept) for one in result.moves]
    assert moves == [("anna", 2.0, 4.0, ""), ("bert", 4.0, 2.0, "lower")]
    assert "broadcast/first partial -> passed (+0.5)" in result.moves[0].why
    assert "not taken" in batch.shown
    assert batch.run(grader=NEW).moves == result.moves[1:]
    logged = [(one["submission"], one["taken"]) for one in batch.log()]
    assert logged == [("anna", True), ("bert", False)], "once, however often it is told"
    lowered = batch.run(grader=NEW, lower=True)
    assert batch.finals() == {"anna": "4.0", "bert": "2.0"}
    assert [(move.name, move.kept) for move in lowered.moves] == [("bert", "")]
    batch.run(grader=NEW)
    assert batch.finals() == {"anna": "4.0", "bert": "2.0"}, "once told, it stays told"
    assert batch.attempts("bert") == [1, 1]


def test_a_problem_is_graded_again_and_the_others_stay(batch: Batch) -> None:
    batch.submit("anna", **{"with": {OLD: "1/2", NEW: 1}})
    batch.run(grader=OLD)
    batch.run(grader=NEW, regrade=("broadcast",))
    row = batch.rows()["anna"]
    assert (row["broadcast"], row["scatter_gather"]) == ("2.0", "1.0")
    batch.run(grader=NEW, regrade=("1.2",))
    assert batch.attempts("anna") == [1, 1, 1], "asked again, it is done again"


def test_a_regrade_that_the_grader_fails_on_is_listed_and_the_grade_stays(batch: Batch) -> None:
    batch.submit("anna", score="1/2", faults_with=[NEW])
    batch.run(grader=OLD)
    result = batch.run(grader=NEW)
    assert result.code == 3
    assert batch.finals() == {"anna": "2.0"}
    assert "anna: grading it again failed: RuntimeError: the fake grader was asked" in batch.shown
    page = (batch.out / "class.html").read_text()
    assert "The grader failed when it graded these again" in page
    assert "the fake grader was asked to fail" in page
    (line,) = (batch.out / "grades.jsonl").read_text().splitlines()
    assert json.loads(line)["regrade_failed"] == batch.store.of("anna")[-1].key
    assert batch.run(grader=OLD).code == 0, "the version that is asked for has graded it"
    batch.submit("anna", score="1/2")
    assert batch.run(grader=NEW).code == 0


@pytest.mark.parametrize("how", [{"backend": "nccl"}, {"seed": 2}])
def test_gradings_of_another_kind_do_not_compete(batch: Batch, how: dict[str, object]) -> None:
    batch.submit("anna", **{"with": {OLD: "1/2", NEW: 1}})
    batch.run(grader=OLD)
    assert batch.run(grader=NEW, how=how).moves == ()
    assert batch.finals() == {"anna": "4.0"}
    batch.run(grader=OLD)
    assert batch.finals() == {"anna": "2.0"}
    batch.run(grader="3" * 16, regrade=("broadcast",))
    assert last_task(batch).base == batch.store.of("anna")[0].key


def test_an_official_grade_stands_against_a_higher_one_that_is_not(batch: Batch) -> None:
    batch.submit("anna", unofficial=[NEW], **{"with": {OLD: "1/2", NEW: 1}})
    batch.submit("bert", unofficial=[OLD], **{"with": {OLD: 1, NEW: "1/2"}})
    batch.run(grader=OLD)
    moves = batch.run(grader=NEW).moves
    assert batch.finals() == {"anna": "2.0", "bert": "2.0"}
    assert [(move.name, move.kept) for move in moves] == [("anna", "not official"), ("bert", "")]
    assert "not taken: not official" in batch.shown
    assert "anna: not official" in (batch.out / "class.html").read_text()
    batch.run(grader=NEW, lower=True)
    assert batch.finals() == {"anna": "4.0", "bert": "2.0"}


def test_a_regrade_keeps_the_results_of_the_grade_that_counts(batch: Batch) -> None:
    batch.submit("anna", **{"with": {OLD: 1, NEW: "1/2"}})
    batch.run(grader=OLD)
    batch.run(grader=NEW)
    batch.run(grader="3" * 16, regrade=("broadcast",))
    assert batch.finals() == {"anna": "4.0"}
    assert last_task(batch).base == batch.store.of("anna")[0].key


def test_a_regrade_takes_no_final_grade_away(batch: Batch) -> None:
    batch.submit("anna", score=1, open_with={NEW: ["broadcast/first"]})
    batch.submit("bert", score={"broadcast/first": 0}, open_with={NEW: ["broadcast/first"]})
    batch.run(grader=OLD)
    result = batch.run(grader=NEW)
    assert batch.finals() == {"anna": "4.0", "bert": "3.0"}
    assert result.code == 3, "what was asked for could not be judged"
    assert "anna: not all judged" in (batch.out / "class.html").read_text()
    assert "bert: grading it again failed: the fake grader cannot tell" in batch.shown
    assert "not taken: not all judged" in batch.shown
    assert batch.run(grader=OLD).code == 0


def test_a_lower_grade_is_for_the_staff_where_the_higher_one_is_not_all_judged(
    batch: Batch,
) -> None:
    batch.submit("anna", open_with={OLD: ["broadcast/first"]}, **{"with": {OLD: 1, NEW: "1/2"}})
    batch.run(grader=OLD)
    (move,) = batch.run(grader=NEW).moves
    assert (float(move.before), float(move.after), move.kept) == (3.0, 2.0, "lower")
    assert batch.rows()["anna"]["standing"] == "not all judged"


def test_what_is_not_official_is_graded_again_where_that_is_asked_for(batch: Batch) -> None:
    batch.submit("anna", unofficial=[OLD], **{"with": {OLD: 1, NEW: "1/2"}})
    batch.submit("bert", score="1/2")
    assert batch.run(grader=OLD).code == 0
    official = {"official": True}
    result = batch.run(grader=OLD, how=official, only=("bert",))
    assert result.code == 3
    assert "anna: not official: the fake grader was asked for that" in batch.shown
    assert batch.run(grader=OLD, how=official, regrade=("broadcast",)).code == 0
    assert {row["official"] for row in batch.rows().values()} == {"True"}
    assert last_task(batch).only == (), "what is kept would not be official"
    assert batch.run(grader=OLD, how=official).code == 0
    assert sum(batch.attempts("anna")) == 2


def test_a_regrade_of_what_is_no_problem_is_refused(batch: Batch) -> None:
    batch.submit("anna")
    with pytest.raises(UnknownName, match="did you mean broadcast"):
        batch.run(regrade=("brodcast",))


def test_diff_names_whose_grade_moves_and_why(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    old, new = (Batch(tmp_path / "class", tmp_path / name) for name in ("old", "new"))
    old.submit("anna", **{"with": {OLD: "1/2", NEW: 1}})
    old.submit("bert")
    old.run(grader=OLD)
    new.run(grader=NEW)
    text = io.StringIO()
    assert commands.diff(Console(file=text, width=200), old.out, new.out) == 0
    assert "1 of 2 grades move; 0 of them down." in text.getvalue()
    (line,) = [line for line in text.getvalue().splitlines() if "anna" in line]
    assert "broadcast/first partial -> passed (+0.5)" in line
    assert commands.diff(Console(file=text), old.out, tmp_path / "nothing") == 2
