"""A grading: every row is accounted for, and nothing a submission does moves the denominator."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from autograder import collective, grading, judge
from autograder.failure import CheckFailed
from autograder.grade import Grade, Kind, Outcome, Row
from autograder.grading import (
    FAIR_SHARES,
    MIN_VALUES,
    UnfairChecks,
    UnknownCheck,
    _wanted,
)
from autograder.inputs import Secret, known_secret
from autograder.judge import Judge
from autograder.manifest import load
from autograder.paths import REFERENCE
from autograder.problem import Share
from autograder.report import write_all
from autograder.selfcheck.trial import planned_rows

from .submissions import (
    MANIFEST,
    graded,
    patched,
    reference_files,
    rows_of,
    small_manifest,
    stub_files,
)

SMALL = small_manifest("launch", "broadcast", "barrier")
SMALLEST = small_manifest("launch", "barrier")
UNUSABLE = "Nothing in it can be graded."


@pytest.fixture(scope="module")
def planned() -> Grade:
    """All rows, without anything having run."""
    return graded({}, unusable=UNUSABLE)


# --- What is planned ------------------------------------------------------------------------------


def test_the_checks_of_every_problem_add_up_to_its_points(planned: Grade) -> None:
    assert planned.points == MANIFEST.total_points
    for problem in MANIFEST.problems:
        assert sum(row.points for row in planned.rows_of(problem.id)) == problem.points


def test_every_problem_weighs_its_kinds_of_checks_fairly(planned: Grade) -> None:
    for problem in MANIFEST.problems:
        rows = planned.rows_of(problem.id)
        part = {
            kind: sum(row.points for row in rows if row.kind == kind) / problem.points
            for kind in ("values", "cost", "order", "edges")
        }
        assert part["values"] >= MIN_VALUES
        assert all(part[kind] <= most for kind, most in FAIR_SHARES.items())


def test_rows_are_numbered_in_the_order_of_the_problems(planned: Grade) -> None:
    numbers = [tuple(int(part) for part in row.number.split(".")) for row in planned.rows]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == len(numbers)


def test_every_row_names_the_public_tests_of_its_own_function_alone(planned: Grade) -> None:
    rerun = {row.check_id: row.rerun for row in planned.rows}
    assert rerun["broadcast/sub_group"] == (
        "pytest tests/assignment/test_collectives.py -k broadcast"
    )
    assert rerun["reduce/average"] == (
        "pytest tests/assignment/test_collectives.py -k "
        "'reduce and not reduce_scatter and not all_reduce'"
    )
    assert str(rerun["scatter_gather/gather"]).endswith("-k 'gather and not all_gather'")
    assert str(rerun["launch/cleanup"]).endswith("test_launch.py -k cleanup")


def share(fraction: str, kind: Kind) -> Share:
    return Share("broadcast", Fraction(fraction), kind, "broadcast", "A check")


@pytest.mark.parametrize(
    ("shares", "complaint"),
    [
        ([("3/4", "values"), ("1/5", "cost")], "sum to 19/20, not to 1"),
        ([("7/10", "values"), ("3/10", "cost")], "cost checks of broadcast have 3/10 of it"),
        ([("7/10", "values"), ("3/10", "order")], "order checks of broadcast have 3/10 of it"),
        ([("4/5", "values"), ("1/5", "edges")], "edges checks of broadcast have 1/5 of it"),
        (
            [("1/2", "values"), ("1/4", "cost"), ("1/4", "order")],
            "value checks of broadcast have 1/2 of it",
        ),
    ],
)
def test_unfair_shares_are_refused(shares: list[tuple[str, Kind]], complaint: str) -> None:
    with pytest.raises(UnfairChecks, match=complaint):
        grading._require_fair(MANIFEST.problem("broadcast"), [share(*one) for one in shares])


def test_an_unusable_submission_gets_zero_and_the_reason_in_every_row(planned: Grade) -> None:
    assert planned.earned == 0
    assert {(row.outcome, row.message) for row in planned.rows} == {(Outcome.BLOCKED, UNUSABLE)}


def test_variables_of_pytest_do_not_change_the_plan(
    planned: Grade, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-x -k broadcast --no-such-option")
    monkeypatch.setenv("PYTEST_PLUGINS", "no_such_plugin")
    again = graded({}, unusable=UNUSABLE)
    assert [row.check_id for row in again.rows] == [row.check_id for row in planned.rows]
    assert os.environ["PYTEST_PLUGINS"] == "no_such_plugin"


# --- The reference and the stubs ------------------------------------------------------------------


def assert_full_marks(grade: Grade) -> None:
    assert {row.check_id: row.message for row in grade.rows if row.message} == {}
    assert {row.outcome for row in grade.rows} == {Outcome.PASSED}
    assert grade.earned == grade.points


def assert_zero(grade: Grade) -> None:
    assert grade.earned == 0
    assert {row.outcome for row in grade.rows} == {Outcome.FAILED}
    assert all("not written yet" in row.message for row in grade.rows)


def test_the_reference_gets_full_marks() -> None:
    assert_full_marks(graded(reference_files(), manifest=SMALLEST))


def test_the_stubs_get_zero_and_are_told_what_to_write() -> None:
    assert_zero(graded(stub_files(), manifest=SMALLEST))


@pytest.mark.slow
@pytest.mark.nightly  # CI grades the reference by itself, and its selfcheck wants full marks
def test_the_reference_gets_all_points() -> None:
    grade = graded(reference_files())
    assert_full_marks(grade)
    assert grade.earned == MANIFEST.total_points


@pytest.mark.slow
def test_the_stubs_get_no_points() -> None:
    grade = graded(stub_files())
    assert_zero(grade)
    assert grade.points == MANIFEST.total_points


# --- What is left out, and what runs out ----------------------------------------------------------


@pytest.mark.parametrize("only", [["barrier", "broadcast/dtypes"], ["1.9", "1.2.6"]])
def test_only_the_checks_that_were_asked_for_are_run(only: list[str]) -> None:
    grade = graded(reference_files(), only, manifest=SMALL)
    ran = {row.check_id for row in grade.rows if row.outcome is not Outcome.NOT_RUN}
    assert ran == {
        *("barrier/waits_for_the_last", "barrier/sub_group", "barrier/alone_and_often"),
        "broadcast/dtypes",
    }
    assert grade.points == 4
    assert grade.earned == Fraction(1) + Fraction(1, 10)


@pytest.mark.parametrize("name", ["tensor_parallel", "4"])
def test_a_part_stands_for_all_its_checks(name: str) -> None:
    manifest = load(REFERENCE)
    rows = planned_rows(manifest)
    wanted = {row.problem_id for row in rows if _wanted(row, [name], manifest)}
    assert wanted == {p.id for p in manifest.problems if p.part == "tensor_parallel"}


def test_a_name_that_is_no_check_is_refused_with_those_it_may_have_meant() -> None:
    with pytest.raises(UnknownCheck, match=r"no part, problem or check 'al_reduce'.*all_reduce"):
        graded(reference_files(), ["al_reduce"])
    with pytest.raises(UnknownCheck, match=r"'7.1'; parts are collectives$"):
        graded(reference_files(), ["7.1"], manifest=SMALL)


def test_without_time_every_row_says_so() -> None:
    grade = graded(reference_files(), budget=0.0)
    assert {(row.outcome, row.message) for row in grade.rows} == {
        (Outcome.NOT_RUN, "not run: out of time")
    }
    assert grade.points == MANIFEST.total_points


SLEEPS = "import time\nwhile True:\n    time.sleep(0.01)\n"


def test_a_check_that_the_budget_cuts_short_has_not_timed_out() -> None:
    started = time.monotonic()
    grade = graded(patched({"broadcast": SLEEPS}), ["broadcast"], budget=2.0)
    assert time.monotonic() - started < 15
    rows = rows_of(grade, "broadcast").values()
    assert {(row.outcome, row.message) for row in rows} == {
        (Outcome.NOT_RUN, "not run: out of time")
    }


def test_two_timeouts_end_a_problem_and_that_problem_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "TIMEOUT", 1.0)
    grade = graded(patched({"broadcast": SLEEPS}), ["broadcast", "barrier/alone_and_often"])
    outcomes = [row.outcome for row in grade.rows_of("broadcast")]
    assert outcomes == [Outcome.TIMED_OUT] * 2 + [Outcome.NOT_RUN] * 6
    rows = grade.rows_of("broadcast")
    assert "rank 0 of 2 had not finished after 1 s" in rows[0].message
    assert "collectives.py" in rows[0].message  # where it was
    assert {row.message for row in rows[2:]} == {"not run after two timeouts"}
    assert rows_of(grade, "barrier")["alone_and_often"].outcome is Outcome.PASSED


def runs_of(files: Mapping[str, bytes], only: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a case is run on it, less the probe."""
    runs = []
    run = Judge.run

    def counted(self: Judge, case: Any, *args: Any, **more: Any) -> Any:
        runs.append(case.file)
        return run(self, case, *args, **more)

    monkeypatch.setattr(Judge, "run", counted)
    graded(files, only)
    monkeypatch.undo()
    return len([file for file in runs if file != "probe"])


def test_a_stub_is_run_once_and_a_function_that_says_the_same_is_run_for_each_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    says = 'raise NotImplementedError("Problem 1.9, barrier: not written yet")'
    assert runs_of(stub_files(), ["barrier"], monkeypatch) == 1
    assert runs_of(patched({"barrier": f"if n > 1:\n    {says}"}), ["barrier"], monkeypatch) == 4


def test_a_stub_that_is_defined_anew_further_down_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    stubs, reference = stub_files(), reference_files()
    head, _, written = reference["collectives.py"].partition(b"from __future__ import annotations")
    assert head
    stubs["collectives.py"] += written
    grade = graded(stubs, ["barrier/sub_group"])
    assert rows_of(grade, "barrier")["sub_group"].outcome is Outcome.PASSED


# --- Whose fault it is ----------------------------------------------------------------------------


def test_what_a_check_raises_by_mistake_is_a_fault_of_the_graders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("in the grader")

    monkeypatch.setattr(collective, "score_bytes", broken)
    grade = graded(reference_files(), ["broadcast/traffic", "barrier/sub_group"], manifest=SMALL)
    row = rows_of(grade, "broadcast")["traffic"]
    assert row.outcome is Outcome.GRADER_FAULT
    assert row.score == 0
    assert "not your fault" in row.message
    assert "ZeroDivisionError" in row.staff
    assert "ZeroDivisionError" not in row.message
    assert grade.not_counted == Fraction(1, 2)
    assert rows_of(grade, "barrier")["sub_group"].outcome is Outcome.PASSED


def test_a_probe_that_breaks_is_a_fault_of_the_graders(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("in the grader")

    monkeypatch.setattr(Judge, "run", broken)
    grade = graded(reference_files(), ["barrier"], manifest=SMALL)
    assert {row.outcome for row in grade.rows_of("barrier")} == {Outcome.GRADER_FAULT}


def test_an_interrupt_ends_the_grading(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Judge, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        graded(reference_files(), ["barrier"], manifest=SMALL)


def test_partial_credit_is_that_part_of_the_checks_points() -> None:
    star = """
    if rank == root:
        for peer in ranks:
            if peer != src:
                dist.send(flat, peer, group)
    else:
        dist.recv(flat, src, group)
    """
    grade = graded(patched({"broadcast": star}), ["broadcast/traffic"])
    row = rows_of(grade, "broadcast")["traffic"]
    assert (row.outcome, row.score) == (Outcome.PARTIAL, Fraction(1, 4) * Fraction(1, 4) * 2)
    assert "rank 0 sent 7.00 S; 3.00 S is enough (S is the full tensor, 64 KiB)" in row.message


def test_the_grade_is_told_as_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def changed(grade: Grade) -> None:
        seen.append(sum(row.outcome is not Outcome.NOT_RUN for row in grade.rows))

    graded(reference_files(), ["barrier"], manifest=SMALL, changed=changed, unusable=UNUSABLE)
    assert seen == [0, 1, 2, 3]


# --- Facts and logs -------------------------------------------------------------------------------


def test_a_passed_row_tells_all_that_it_ran_with_and_a_failed_one_what_it_failed_with() -> None:
    files = patched({"all_reduce": ("chunks[rank].div_(n)", "raise RuntimeError('no AVG')")})
    grade = graded(files, ["all_reduce/sum", "all_reduce/average", "all_reduce/other_operations"])
    rows = rows_of(grade, "all_reduce")
    assert rows["sum"].facts["world size"] == "2, 4, 3, 1"
    assert rows["other_operations"].facts["operation"] == "MAX, MIN, PRODUCT"
    assert rows["average"].facts["operation"] == "AVG"
    assert rows["average"].outcome is Outcome.FAILED
    assert "RuntimeError: no AVG" in rows["average"].message


def test_a_failed_row_shows_the_students_own_lines_and_none_of_the_graders() -> None:
    grade = graded(patched({"broadcast": "raise RuntimeError('boom')"}), ["broadcast/from_rank_0"])
    row = rows_of(grade, "broadcast")["from_rank_0"]
    assert 'File "assignment/collectives.py", line' in row.message
    assert "RuntimeError: boom" in row.message
    for ours in (
        "<drive>",
        "<case",
        "impl.collectives",
        "_contextlib",
        "site-packages",
        str(Path.home()),
    ):
        assert ours not in row.message


def test_what_the_program_prints_is_in_its_row_without_what_terminals_obey() -> None:
    files = patched({"barrier": "print('\\x1b[31mhere is', rank, '\\x1b]0;title\\x07')"})
    row = rows_of(graded(files, ["barrier/sub_group"]), "barrier")["sub_group"]
    assert "here is 0" in row.log
    assert "\x1b" not in row.log
    assert "\x07" not in row.log


# --- Repeatable, and secret -----------------------------------------------------------------------

PRINTS = """
if rank == root:
    print("INPUT", flat[:3].tolist())
for peer in ranks:
    if rank == root and peer != src:
        dist.send(flat, peer, group)
if rank != root:
    dist.recv(flat, src, group)
"""


def inputs_seen(secret: Secret) -> tuple[list[str], list[tuple[Any, ...]]]:
    grade = graded(patched({"broadcast": PRINTS}), ["broadcast/layouts"], secret=secret)
    row = rows_of(grade, "broadcast")["layouts"]
    told = [(one.check_id, one.outcome, one.score, one.message) for one in grade.rows]
    return [line for line in row.log.splitlines() if "INPUT" in line], told


def test_the_same_secret_gives_the_same_inputs_and_another_one_others() -> None:
    first, grade = inputs_seen(known_secret(1))
    assert first
    assert (first, grade) == inputs_seen(known_secret(1))
    assert first != inputs_seen(known_secret(2))[0]


def test_the_secret_is_in_no_report(tmp_path: Path) -> None:
    secret = Secret(bytes(range(200, 232)))
    grade = graded(reference_files(), ["barrier/sub_group"], manifest=SMALL, secret=secret)
    write_all(grade, tmp_path)
    forms = [
        secret.value.hex(),
        base64.b64encode(secret.value).decode().strip("="),
        repr(secret.value),
    ]
    for path in tmp_path.iterdir():
        content = path.read_bytes()
        assert secret.value not in content
        assert not any(form.encode() in content for form in forms)


def test_no_input_of_a_check_is_in_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program may print what it is given; the grader itself never tells."""
    drawn: list[float] = []
    run = Judge.run

    def recorded(self: Judge, case: Any, calls: Any, *args: Any, **more: Any) -> Any:
        for inputs in calls:
            drawn.extend(numbers(inputs))
        return run(self, case, calls, *args, **more)

    monkeypatch.setattr(Judge, "run", recorded)
    row = rows_of(graded(patched({"broadcast": "pass"}), ["broadcast/from_rank_0"]), "broadcast")
    text = json.dumps([row["from_rank_0"].message, *row["from_rank_0"].causes])
    large = {str(int(abs(value))) for value in drawn if abs(value) >= 1000}
    assert large
    assert not any(value in text for value in large)


def numbers(value: Any) -> Iterator[float]:
    if hasattr(value, "flatten"):
        yield from value.double().flatten().tolist()
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from numbers(item)
    elif isinstance(value, list):
        for item in value:
            yield from numbers(item)


def test_a_row_is_blocked_where_its_module_is_missing_and_the_others_are_graded() -> None:
    files = reference_files()
    del files["launch.py"]
    grade = graded(files, ["launch", "barrier/alone_and_often"], manifest=SMALL)
    rows: tuple[Row, ...] = grade.rows_of("launch")
    assert {(row.outcome, row.message) for row in rows} == {
        (Outcome.BLOCKED, "there is no launch.py in what you handed in")
    }
    assert rows_of(grade, "barrier")["alone_and_often"].outcome is Outcome.PASSED


def test_checkfailed_keeps_its_parts() -> None:
    failed = CheckFailed("what", outcome=Outcome.CRASHED, causes=["consistent with"])
    assert (failed.message, failed.outcome, failed.causes) == (
        "what",
        Outcome.CRASHED,
        ("consistent with",),
    )


# --- Flags ----------------------------------------------------------------------------------------


def test_flags_of_a_check_are_named_once_and_not_without_number() -> None:
    flags = [f"odd {number % 40}" for number in range(200)]
    told = grading._some_flags("all_reduce/sum", flags)
    assert told[0] == "all_reduce/sum: odd 0"
    assert told[-1] == "all_reduce/sum: and 28 more"
    assert len(told) == len(set(told)) == 13
    assert grading._some_flags("x/y", ["odd", "odd"]) == ["x/y: odd"]
