"""Every platform gets what its documentation asks for, whatever a grade says, and no staff text."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from autograder import cli, record
from autograder.grade import About, Grade, Outcome, Row
from autograder.intake import Ignored
from autograder.manifest import Problem
from autograder.platforms import classroom50, junit, markdown, prairielearn
from autograder.platforms.convert import Platform, convert
from autograder.policy import Decision
from autograder.record import Record
from autograder.report.record import grade_record

HERE = Path(__file__).parent
HOSTILE = "```\n# 100 points\n<script>alert(1)</script> | ]]> &amp; \x00\x0b\x1b[2J {{ 7 * 7 }}"
STAFF = "for-staff-alone"
THIRDS = Problem("thirds", "1.1", "one", "Thirds | <b>", Fraction(1), "m", ("thirds",))
REST = Problem("rest", "1.2", "one", "One of each", Fraction(10), "m", ("rest",))
RUNNER = {
    **{"CLASSROOM": "cs-1", "ASSIGNMENT": "distributed", "SUBMISSION_TAG": "submit/2026-a1b2c3d"},
    **{"COMMIT_URL": "commit-url", "RELEASE_URL": "release-url"},
}


def row(problem: Problem, place: int, points: Fraction) -> Row:
    return Row(
        f"{problem.id}/{place}",
        problem.id,
        problem.number,
        f"{problem.number}.{place}",
        f"{problem.title}, {place}",
        "values",
        points,
        rerun="pytest tests/assignment/test_m.py",
    )


def graded(factor: Fraction = Fraction(1), text: str = HOSTILE) -> Grade:
    """Two thirds passed, and one row of each outcome but faults of the grader's."""
    rows = [row(THIRDS, place, Fraction(1, 3)) for place in (1, 2, 3)]
    rows += [row(REST, place, Fraction(1)) for place in range(1, 11)]
    about = About(
        course="Distributed training",
        digest="d" * 64,
        ignored=[Ignored(text, "not a module")],
        backend="gloo",
        versions={"grader": "1", "torch": "2.13.0"},
        decision=Decision(factor, reasons=("Late.",) if factor != 1 else ()),
        secret_fingerprint=STAFF,
        flags=[STAFF],
        started="2026-01-01T00:00:00+00:00",
        finished="2026-01-01T00:01:00+00:00",
    )
    grade = Grade([THIRDS, REST], rows, about)
    for place in (1, 2):
        grade.record(f"thirds/{place}", Outcome.PASSED, seconds=1.0)
    unjudged = (Outcome.GRADER_FAULT, Outcome.TOO_NOISY)
    for place, outcome in enumerate([one for one in Outcome if one not in unjudged], 1):
        part = Fraction(1, 7) if outcome is Outcome.PARTIAL else None
        said: dict[str, Any] = {
            "message": text,
            "causes": [text],
            "facts": {"op": text},
            "log": text,
        }
        grade.record(f"rest/{place}", outcome, score=part, staff=STAFF, seconds=0.5, **said)
    return grade


def recorded(grade: Grade) -> Record:
    return record.decode(json.dumps(grade_record(grade)))


def validated(value: Any, schema: str) -> Any:
    rules = json.loads((HERE / f"{schema}_schema.json").read_text())
    jsonschema.validate(value, rules, cls=jsonschema.Draft202012Validator)
    return value


# --- All of them ----------------------------------------------------------------------------------


@pytest.mark.parametrize("platform", Platform)
def test_no_platform_is_told_what_is_for_staff(platform: Platform) -> None:
    assert STAFF in json.dumps(grade_record(graded()))
    assert STAFF not in convert(recorded(graded()), platform, RUNNER)


@settings(deadline=None, max_examples=40)
@given(st.text(), st.fractions(0, 1))
def test_every_platform_reads_what_it_gets_whatever_a_submission_says(
    text: str, factor: Fraction
) -> None:
    found = recorded(graded(factor, text))
    validated(prairielearn.convert(found), "prairielearn")
    validated(classroom50.convert(found, RUNNER), "classroom50")
    a_junit_file(junit.convert(found))
    markdown.convert(found).encode()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda raw: raw.pop("checks"), "missing required field `checks`"),
        (lambda raw: raw.update(schema=2), "is of schema 2; this grader reads schema 1"),
        (lambda raw: raw["earned"].update(exact="all"), "matching regex"),
        (lambda raw: raw["checks"][0].update(outcome="won"), "Invalid enum value 'won'"),
    ],
)
def test_what_is_no_grade_of_ours_is_named(spoil: Callable[[Any], Any], said: str) -> None:
    raw = grade_record(graded())
    spoil(raw)
    with pytest.raises(record.NoGrade, match=said):
        record.decode(json.dumps(raw), "some.json")


# --- PrairieLearn ---------------------------------------------------------------------------------


def test_prairielearn_gets_a_score_from_0_to_1_and_points_for_every_test() -> None:
    grade = graded(Fraction(1, 2))
    found = validated(prairielearn.convert(recorded(grade)), "prairielearn")
    assert found["score"] == float(grade.earned / 2 / 11)
    assert sum(test["points"] for test in found["tests"]) == pytest.approx(float(grade.earned))
    assert sum(test["max_points"] for test in found["tests"]) == pytest.approx(11)


def test_prairielearn_takes_no_attempt_away_for_a_fault_of_the_graders() -> None:
    grade = graded()
    grade.record("rest/1", Outcome.GRADER_FAULT, message="not your fault", staff=STAFF)
    found = validated(prairielearn.convert(recorded(grade)), "prairielearn")
    assert found["gradable"] is False
    assert "not your fault" in found["format_errors"][0]


def test_prairielearn_takes_no_attempt_away_for_what_cannot_be_graded_at_all() -> None:
    grade = graded()
    for one in grade.rows:
        grade.record(one.check_id, Outcome.BLOCKED, message="The archive is empty.")
    found = validated(prairielearn.convert(recorded(grade)), "prairielearn")
    assert found == {"gradable": False, "format_errors": ["The archive is empty."]}


def test_prairielearn_never_gets_more_than_its_megabyte() -> None:
    grade = graded(text="\n".join(["é" * 300] * 60))
    some = recorded(grade)
    found = prairielearn.convert(replace_checks(some, 20))
    assert len(json.dumps(found).encode()) < 1_000_000
    assert any("[cut]" in test["output"] for test in found["tests"])
    short = prairielearn.convert(recorded(graded()))
    assert not any("[cut]" in test["output"] for test in short["tests"])


def replace_checks(found: Record, times: int) -> Record:
    return msgspec.structs.replace(found, checks=found.checks * times)


# --- Classroom 50 ---------------------------------------------------------------------------------


def test_classroom50_gets_hundredths_of_points_that_add_up_and_are_never_rounded_up() -> None:
    found = validated(classroom50.convert(recorded(graded()), RUNNER), "classroom50")
    thirds, rest = found["tests"]
    assert (thirds["score"], thirds["max-score"], thirds["passed"]) == (66, 100, False)
    assert (rest["score"], rest["max-score"]) == (114, 1000)
    assert (found["score"], found["max-score"]) == (180, 1100)
    assert found["review"] == "commit-url"
    assert found["datetime"] == "2026-01-01T00:01:00Z"


def test_classroom50_is_told_that_a_problem_passed_only_with_all_of_its_points() -> None:
    grade = graded()
    grade.record("thirds/3", Outcome.PASSED)
    assert classroom50.convert(recorded(grade), RUNNER)["tests"][0]["passed"] is True
    grade.record("thirds/3", Outcome.PARTIAL, score=Fraction(333, 1000))
    assert classroom50.convert(recorded(grade), RUNNER)["tests"][0]["passed"] is False


def test_outside_of_classroom50s_runner_the_missing_variables_are_named() -> None:
    some = {"ASSIGNMENT": "a", "SUBMISSION_TAG": "t", "COMMIT_URL": "c"}
    with pytest.raises(classroom50.NotOnClassroom50, match="CLASSROOM, RELEASE_URL"):
        classroom50.convert(recorded(graded()), some)


# --- JUnit XML ------------------------------------------------------------------------------------

# Elements, with what may stand in them and the attributes that they must and may have: what
# the widely used schema of Jenkins' reader has in common with others.
JUNIT: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (
        {"testsuite"},
        {"name", "tests", "failures", "errors"},
        {"skipped", "time"},
    ),
    "testsuite": (
        {"testcase"},
        {"name", "tests", "failures", "errors", "time", "timestamp"},
        {"skipped"},
    ),
    "testcase": (
        {"failure", "error", "skipped", "system-out"},
        {"name", "classname", "time"},
        set(),
    ),
    "failure": (set(), {"message", "type"}, set()),
    "error": (set(), {"message", "type"}, set()),
    "skipped": (set(), {"message"}, set()),
    "system-out": (set(), set(), set()),
}


def a_junit_file(text: str) -> ET.Element:
    """Checks its structure, and that every count is right."""
    root = ET.fromstring(text.encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        inside, must, may = JUNIT[element.tag]
        assert {child.tag for child in element} <= inside
        assert must <= set(element.attrib) <= must | may
        if element.tag in ("testsuites", "testsuite"):
            cases = list(element.iter("testcase"))
            assert int(element.attrib["tests"]) == len(cases)
            for counter, tag in (
                ("failures", "failure"),
                ("errors", "error"),
                ("skipped", "skipped"),
            ):
                there = sum(case.find(tag) is not None for case in cases)
                assert int(element.attrib[counter]) == there
    return root


def test_junit_has_a_suite_for_each_problem_and_tells_failures_errors_and_skips_apart() -> None:
    grade = graded()
    grade.record("thirds/3", Outcome.TOO_NOISY, message="not scored")
    root = a_junit_file(junit.convert(recorded(grade)))
    thirds, rest = root
    assert [case.attrib["name"][:5] for case in thirds] == ["1.1.1", "1.1.2", "1.1.3"]
    assert [child.tag for child in thirds[2]] == ["error"]
    found = [case[0] for case in rest if case[0].tag != "system-out"]
    kinds = {one.attrib["message"].partition(",")[0]: one.tag for one in found}
    assert (
        kinds["partial"] == kinds["failed"] == kinds["timed out"] == kinds["crashed"] == "failure"
    )
    assert kinds["blocked"] == kinds["not run"] == kinds["needs hardware"] == "skipped"
    assert root.attrib["time"] == "6.000"


# --- Markdown -------------------------------------------------------------------------------------


def test_in_markdown_a_submissions_text_stays_text() -> None:
    text = markdown.convert(recorded(graded()))
    assert text.startswith("# Distributed training: 1.81 of 11 points\n")
    assert "| 1.1 | Thirds \\| \\<b\\> | 0.67 / 1 | not run |" in text
    fence = ""
    outside = []
    for line in text.split("\n"):
        ticks = line[: len(line) - len(line.lstrip("`"))]
        if not fence and len(ticks) >= 3:
            fence = ticks
        elif fence and line == fence:
            fence = ""
        elif not fence:
            outside.append(line)
    assert not fence
    assert not any("script" in line or "100 points" in line for line in outside)
    assert sum(line.startswith("|") for line in outside) == 4


# --- The command ----------------------------------------------------------------------------------


def test_the_command_prints_or_writes(tmp_path: Path) -> None:
    grade = tmp_path / "grade.json"
    grade.write_text(json.dumps(grade_record(graded())))
    printed = CliRunner().invoke(cli.app, ["convert", str(grade), "--to", "junit"])
    assert printed.exit_code == 0
    a_junit_file(printed.output)
    out = tmp_path / "new" / "summary.md"
    arguments = ["convert", str(grade), "--to", "markdown", "--out", str(out)]
    assert CliRunner().invoke(cli.app, arguments).exit_code == 0
    assert out.read_text() == markdown.convert(recorded(graded()))


def test_the_command_says_what_it_cannot_read(tmp_path: Path) -> None:
    arguments = ["convert", str(tmp_path / "none.json"), "--to", "junit"]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 2
    assert "none.json cannot be read: No such file or directory" in done.output
