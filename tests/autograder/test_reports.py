"""Each report says what the grade says: valid, whole, and nothing that is for staff alone."""

from __future__ import annotations

import json
import os
import re
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import multirank
from autograder.grade import About, Grade, Outcome, Row
from autograder.intake import Ignored
from autograder.manifest import Problem
from autograder.report import gradescope, page, staff, write_all, write_results
from autograder.report.record import grade_record

SCHEMA = json.loads((Path(__file__).parent / "gradescope_schema.json").read_text())
HOSTILE = "\x1b]8;;http://evil.example\x07link\u202e<script>alert(1)</script> ``` {{ 7 * 7 }} &amp;"
STAFF = "for-staff-alone"

THIRDS = Problem("thirds", "1.1", "one", "Thirds", Fraction(1), "m", ("thirds",))
OUTCOMES = Problem("outcomes", "1.2", "one", "One of each", Fraction(10), "m", ("outcomes",))


def row(problem: Problem, n: int, points: Fraction, **more: Any) -> Row:
    return Row(
        check_id=f"{problem.id}.{n}",
        problem_id=problem.id,
        problem_number=problem.number,
        number=f"{problem.number}.{n}",
        title=f"{problem.title}, {n}",
        kind="values",
        points=points,
        facts={"world size": "4", "dtype": "float32"},
        rerun="pytest tests/assignment/test_collectives.py -k all_reduce",
        **more,
    )


def empty_grade() -> Grade:
    rows = [row(THIRDS, n, Fraction(1, 3)) for n in (1, 2, 3)]
    rows += [row(OUTCOMES, n, Fraction(1)) for n in range(1, 11)]
    rows += [row(OUTCOMES, 11, Fraction(0))]
    about = About(
        course="Distributed training",
        source="zip archive, modules at the top",
        digest="d" * 64,
        ignored=[Ignored("notes<b>.txt", "not a Python module")],
        backend="gloo",
        isolation=["uid drop"],
        unofficial=["the secret is a known one"],
        versions={"torch": "2.13.0"},
        secret_fingerprint=f"{STAFF}-fingerprint",
        flags=[f"{STAFF}-flag"],
        started="2026-01-01T00:00:00+00:00",
        finished="2026-01-01T00:01:00+00:00",
        seconds=60.04,
    )
    return Grade([THIRDS, OUTCOMES], rows, about)


@pytest.fixture
def grade() -> Grade:
    """Thirds passed, and one row of each outcome."""
    grade = empty_grade()
    for n in (1, 2, 3):
        grade.record(f"thirds.{n}", Outcome.PASSED, seconds=0.1)
    for n, outcome in enumerate(Outcome, 1):
        grade.record(
            f"outcomes.{n}",
            outcome,
            score=Fraction(1, 7) if outcome is Outcome.PARTIAL else None,
            message=f"message {n}: {HOSTILE}",
            causes=[f"cause {n}"],
            facts={"operation": HOSTILE},
            log=f"log {n}: {HOSTILE}",
            staff=STAFF,
            seconds=float(n),
        )
    grade.record("outcomes.11", Outcome.NEEDS_HARDWARE, message="Needs two GPUs.")
    return grade


# --- results.json ------------------------------------------------------------------------------


def validate(results: dict[str, Any]) -> dict[str, Any]:
    jsonschema.validate(results, SCHEMA, cls=jsonschema.Draft202012Validator)
    return results


def rows_by_number(grade: Grade) -> dict[str, dict[str, Any]]:
    return {test["number"]: test for test in validate(gradescope.results(grade))["tests"]}


def test_results_are_valid_before_anything_ran_and_after_every_check(grade: Grade) -> None:
    results = validate(gradescope.results(empty_grade()))
    assert results["score"] == 0
    assert round(sum(test.get("max_score", 0) for test in results["tests"]), 3) == 11
    assert len(results["tests"]) == 14
    validate(gradescope.results(grade))


def test_what_was_measured_is_a_column_of_the_leaderboard(grade: Grade) -> None:
    assert validate(gradescope.results(grade))["leaderboard"] == []
    grade.record("thirds.1", Outcome.PASSED, leaderboard={"Speed": 1.25})
    assert validate(gradescope.results(grade))["leaderboard"] == [
        {"name": "Speed", "value": 1.25, "order": "desc"}
    ]
    assert grade_record(grade)["checks"][0]["leaderboard"] == {"Speed": 1.25}


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(Outcome), st.text(), st.fractions(), st.text(), st.floats(0, 1e6))
def test_results_are_valid_whatever_a_submission_says(
    outcome: Outcome, message: str, score: Fraction, log: str, seconds: float
) -> None:
    grade = empty_grade()
    part = score if outcome is Outcome.PARTIAL else None
    grade.record("outcomes.1", outcome, message=message, score=part, log=log, seconds=seconds)
    text = json.dumps(validate(gradescope.results(grade)), allow_nan=False)
    assert json.loads(text) == gradescope.results(grade)


def test_every_text_is_declared_plain_and_every_row_visible(grade: Grade) -> None:
    results = validate(gradescope.results(grade))
    for field in ("output_format", "test_output_format", "test_name_format"):
        assert results[field] == "text"
    assert results["visibility"] == "visible"
    assert results["stdout_visibility"] == "hidden"
    for test in results["tests"]:
        assert (test["output_format"], test["name_format"]) == ("text", "text")
        assert test["visibility"] == "visible"
        assert test["status"] in ("passed", "failed")


def test_only_a_row_with_full_marks_is_passed(grade: Grade) -> None:
    passed = [n for n, test in rows_by_number(grade).items() if test["status"] == "passed"]
    assert passed == ["1.1.1", "1.1.2", "1.1.3", "1.2.1"]


def test_the_total_is_exact_although_rows_are_rounded(grade: Grade) -> None:
    tests = rows_by_number(grade)
    assert [tests[f"1.1.{n}"]["score"] for n in (1, 2, 3)] == [0.3333] * 3
    assert gradescope.results(grade)["score"] == 2.1429
    assert tests["1.2.2"]["score"] == 0.1429
    assert tests["1.2.2"]["max_score"] == 1


def test_a_row_without_points_that_needs_hardware_is_a_note(grade: Grade) -> None:
    tests = rows_by_number(grade)
    assert "score" not in tests["1.2.11"]
    assert "max_score" not in tests["1.2.11"]
    assert (tests["1.2.8"]["score"], tests["1.2.8"]["max_score"]) == (0, 1)
    assert "Needs hardware" in tests["1.2.11"]["output"]


def test_a_row_says_what_is_wrong_before_how_to_look_into_it(grade: Grade) -> None:
    output = rows_by_number(grade)["1.2.3"]["output"]
    wanted = [
        "Failed: 0 of 1 points.",
        "message 3",
        "- cause 3",
        "world size: 4, dtype: float32, operation: ",
        "pytest tests/assignment",
        "What your program printed:\nlog 3",
    ]
    places = [output.index(part) for part in wanted]
    assert places == sorted(places)


def test_only_rows_that_a_student_can_mend_offer_a_test_to_run(grade: Grade) -> None:
    offered = [n for n, test in rows_by_number(grade).items() if "pytest" in test["output"]]
    assert offered == [f"1.2.{n}" for n in (2, 3, 4, 5, 6)]
    assert page.render(grade).count("pytest") == 5


def test_a_passed_row_says_so_and_what_it_ran_with(grade: Grade) -> None:
    output = rows_by_number(grade)["1.1.1"]["output"]
    assert output == "Passed: 0.33 of 0.33 points.\nworld size: 4, dtype: float32"


def test_results_begin_with_the_sentences_a_student_should_know(grade: Grade) -> None:
    output = gradescope.results(grade)["output"]
    assert output.startswith("2.14 of 11 points.\n")
    assert "not your fault" in output
    assert "not official" in output


def test_results_hold_nothing_for_staff_and_nothing_a_terminal_obeys(grade: Grade) -> None:
    text = json.dumps(gradescope.results(grade), ensure_ascii=False)
    assert STAFF not in text
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202e]", text)


# --- grade.json --------------------------------------------------------------------------------


def test_the_record_holds_everything(grade: Grade) -> None:
    record = json.loads(json.dumps(grade_record(grade), allow_nan=False))
    assert record["earned"] == {"value": 2.1429, "exact": "15/7"}
    assert record["points"] == {"value": 11.0, "exact": "11"}
    assert record["not_counted"]["exact"] == "2"
    assert record["official"] is False
    assert record["unofficial_because"] == ["the secret is a known one"]
    assert record["flags"] == [f"{STAFF}-flag"]
    assert record["grading"]["secret_fingerprint"] == f"{STAFF}-fingerprint"
    assert record["submission"]["ignored"] == [
        {"name": "notes<b>.txt", "why": "not a Python module"}
    ]
    assert [problem["number"] for problem in record["problems"]] == ["1.1", "1.2"]
    assert record["problems"][1]["outcome"] == "grader fault"
    third = record["checks"][5]
    assert (third["id"], third["outcome"], third["staff"]) == ("outcomes.3", "failed", STAFF)
    assert third["facts"]["dtype"] == "float32"
    planned = set(Row.__dataclass_fields__) - {"problem_number", "timeline"}
    renamed = {"check_id": "id", "problem_id": "problem"}
    assert set(third) == {renamed.get(name, name) for name in planned}


# --- report.html -------------------------------------------------------------------------------


class Elements(HTMLParser):
    """The elements, their attributes and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_well_formed_and_loads_and_runs_nothing(grade: Grade) -> None:
    found = Elements(page.render(grade))
    assert found.open == []
    assert not {"script", "img", "link", "iframe", "object", "form"} & {t for t, _ in found.tags}
    for _, attributes in found.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "src"]
        assert (attributes.get("href") or "#check-").startswith("#check-")
    metas = [attributes.get("content") or "" for tag, attributes in found.tags if tag == "meta"]
    assert any("default-src 'none'" in content for content in metas)
    assert "url(" not in page.render(grade)
    assert "@import" not in page.render(grade)


def test_what_a_submission_says_is_shown_as_text(grade: Grade) -> None:
    html = page.render(grade)
    assert "<script>" not in html
    text = Elements(html).text
    assert "<script>alert(1)</script> ``` {{ 7 * 7 }} &amp;" in text
    assert "notes<b>.txt" in text
    assert "\x1b" not in html
    assert "\u202e" not in html


def test_the_page_shows_every_row_and_nothing_for_staff(grade: Grade) -> None:
    html = page.render(grade)
    text = Elements(html).text
    for line in grade.rows:
        assert line.title in text
    assert STAFF not in html
    assert "2.14 of 11 points" in " ".join(text.split())


def test_the_page_begins_with_the_total_and_the_sentences(grade: Grade) -> None:
    html = page.render(grade)
    assert "width: 19.48%" in html
    text = Elements(html).text
    places = [text.index(sentence) for sentence in grade.sentences()[1:]]
    assert len(places) == 6
    assert places == sorted(places)
    assert places[-1] < text.index("What to look at")


def test_a_check_is_told_with_what_it_ran_with(grade: Grade) -> None:
    text = " ".join(Elements(page.render(grade)).text.split())
    assert "1.2.3 One of each, 3failed 0 of 1 One of each · world size: 4 · dtype: flo" in text


def test_the_page_says_how_long_each_check_took(grade: Grade) -> None:
    html = page.render(grade)
    assert '<td class="time">9.0 s</td>' in html
    assert html.count('<td class="time"></td>') == 1  # the one that needs hardware


def test_the_page_says_how_it_was_graded(grade: Grade) -> None:
    text = Elements(page.render(grade)).text
    for said in (f"Digest{'d' * 16}\n", "Isolationuid drop\n", "Took60 s\n", "Backendgloo\n"):
        assert said in text
    bare = Grade([THIRDS], [row(THIRDS, 1, Fraction(1))], About(course=""))
    text = Elements(page.render(bare)).text
    assert "Isolationnone\n" in text
    assert "Took" not in text


def test_what_went_wrong_comes_before_the_tables(grade: Grade) -> None:
    text = Elements(page.render(grade)).text
    look, everything = text.index("What to look at"), text.index("All checks")
    assert look < text.index("message 3") < everything
    assert look < text.index("cause 3") < everything
    assert "message 1:" not in text[look:everything]


def test_rows_of_a_problem_that_say_the_same_are_said_once() -> None:
    grade = empty_grade()
    for n in (1, 2, 3):
        grade.record(f"thirds.{n}", Outcome.BLOCKED, message="There is no thirds.", log=f"log {n}")
    grade.record("outcomes.1", Outcome.BLOCKED, message="There is no thirds.")
    text = " ".join(Elements(page.render(grade)).text.split())
    assert text.count("There is no thirds.") == 2
    assert "3 checks: 1.1.1, 1.1.2, 1.1.3blocked 0 of 1" in text
    assert "log 1" in text
    assert "There is no thirds. The nearest" in text
    several = text.split("3 checks: ")[1].split("There is no thirds.")[0]
    assert several == "1.1.1, 1.1.2, 1.1.3blocked 0 of 1 Thirds "


def test_a_traceback_is_set_apart_from_what_is_said_of_it(grade: Grade) -> None:
    raised = 'Traceback (most recent call last):\n  File "collectives.py", line 3'
    grade.record("outcomes.3", Outcome.FAILED, message=f"Rank 1 raised.\n\n{raised}")
    html = page.render(grade)
    assert '<p class="message">Rank 1 raised.</p>' in html
    assert "<pre>Traceback (most recent call last):\n  File &#34;collectives.py&#34;" in html


def test_links_lead_to_what_they_name(grade: Grade) -> None:
    found = Elements(page.render(grade))
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [(attributes["href"] or "")[1:] for _, attributes in found.tags if "href" in attributes]
    assert links
    assert set(links) <= set(ids)


def test_the_page_shows_some_timelines_and_no_other_report_has_any(grade: Grade) -> None:
    picture = multirank.timeline(multirank.Trace(), titles=[HOSTILE]).svg()
    for n in range(2, 10):
        grade.record(f"outcomes.{n}", Outcome.FAILED, message=f"m{n}", timeline=picture)
    html = page.render(grade)
    assert html.count("<svg xmlns") == html.count("What the ranks did: a timeline") == 6
    assert html.count("no room for its timeline") == 2
    assert "<script" not in html
    Elements(html)
    for other in (gradescope.results(grade), grade_record(grade)):
        assert "svg" not in json.dumps(other)


def test_a_page_of_full_marks_has_nothing_to_look_at() -> None:
    grade = Grade([THIRDS], [row(THIRDS, 1, Fraction(1))], About(course="A course"))
    grade.record("thirds.1", Outcome.PASSED)
    html = page.render(grade)
    assert "What to look at" not in html
    assert "1 <small>of 1 points</small>" in html
    assert "width: 100.0%" in html


# --- report-staff.html -------------------------------------------------------------------------


def test_the_staffs_page_shows_what_students_may_not_see(grade: Grade) -> None:
    html = staff.render(grade)
    assert f"{STAFF}-flag" in html
    assert f"{STAFF}-fingerprint" in html
    assert html.count(f"<pre>{STAFF}</pre>") == len(Outcome)
    assert "no: the secret is a known one" in html
    assert all(row.check_id in html for row in grade.rows)
    for other in (page.render(grade), json.dumps(gradescope.results(grade))):
        assert STAFF not in other


def test_the_staffs_page_runs_nothing_and_shows_hostile_text_as_text(grade: Grade) -> None:
    html = staff.render(grade)
    Elements(html)
    assert "default-src 'none'" in html
    assert "<b>" not in html
    assert "<script" not in html
    assert "\x1b" not in html


# --- files -------------------------------------------------------------------------------------


def test_all_four_files_are_written_and_nothing_else(grade: Grade, tmp_path: Path) -> None:
    write_all(grade, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "grade.json",
        "report-staff.html",
        "report.html",
        "results.json",
    ]
    validate(json.loads((tmp_path / "results.json").read_text()))
    assert json.loads((tmp_path / "grade.json").read_text())["schema"] == 1
    assert (tmp_path / "report.html").read_text() == page.render(grade)
    assert (tmp_path / "report-staff.html").read_text() == staff.render(grade)


def test_after_each_check_only_the_results_are_written(grade: Grade, tmp_path: Path) -> None:
    write_results(grade, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.parametrize("fails", ["fsync", "dumps"])
def test_a_grader_that_fails_while_writing_leaves_the_last_valid_file(
    fails: str, grade: Grade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_results(empty_grade(), tmp_path)
    before = (tmp_path / "results.json").read_bytes()

    def fail(*args: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os if fails == "fsync" else json, fails, fail)
    with pytest.raises(KeyboardInterrupt):
        write_results(grade, tmp_path)
    assert (tmp_path / "results.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_a_file_is_never_there_in_part(
    grade: Grade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_results(empty_grade(), tmp_path)
    seen = []
    real = os.fsync

    written = []

    def look(fd: int) -> None:
        seen.append(json.loads((tmp_path / "results.json").read_text())["score"])
        written.append(os.fstat(fd).st_size)
        real(fd)

    monkeypatch.setattr(os, "fsync", look)
    write_results(grade, tmp_path)
    assert seen[0] == 0
    assert len(seen) == 2
    assert written[0] == (tmp_path / "results.json").stat().st_size
    assert json.loads((tmp_path / "results.json").read_text())["score"] == 2.1429


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_writing_a_result_leaves_no_descriptor_open(grade: Grade, tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    write_results(grade, tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_link_in_the_place_of_a_result_is_replaced_not_followed(
    grade: Grade, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "out/results.json").symlink_to(tmp_path / "precious")
    write_results(grade, tmp_path / "out")
    assert (tmp_path / "precious").read_text() == "precious"
    assert not (tmp_path / "out/results.json").is_symlink()


def test_numbers_that_are_not_json_are_never_written(grade: Grade, tmp_path: Path) -> None:
    grade.about.seconds = float("inf")
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_results(grade, tmp_path)
    assert list(tmp_path.iterdir()) == []
