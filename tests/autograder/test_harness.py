"""What a platform runs: a valid result from the first second on, within its time, whatever happens.

Most of these grade nothing: in place of `autograder grade` runs a program that misbehaves.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from autograder import harness
from autograder.harness import Places
from autograder.manifest import Course
from autograder.paths import ROOT, SECRET_NAME
from autograder.platforms import gradescope
from autograder.policy import Lateness, Policy, RateLimit
from tests.autograder.submissions import reference_files

SCHEMA = json.loads((Path(__file__).parent / "gradescope_schema.json").read_text())
NOW = datetime.fromisoformat("2026-03-01T12:00:00-07:00")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    monkeypatch.setenv("AUTOGRADER_PRIVATE", str(private))
    (tmp_path / "submission").mkdir()
    return Places(tmp_path)


def results(places: Places) -> dict[str, Any]:
    found = json.loads(places.results.read_text())
    jsonschema.validate(found, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert isinstance(found, dict)
    return found


Stand = Callable[[str], list[list[str]]]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Stand:
    """Runs a program where `autograder grade` would be, with its options; what it was asked."""

    def put(program: str) -> list[list[str]]:
        asked: list[list[str]] = []
        supervise = harness._supervise

        def run(command: list[str], deadline: float) -> None:
            asked.append(command)
            out = command[command.index("--out") + 1]
            supervise([sys.executable, "-c", program, out], deadline)

        monkeypatch.setattr(harness, "_supervise", run)
        return asked

    return put


def metadata(places: Places, *earlier: dict[str, Any], late: timedelta = timedelta(0)) -> None:
    """Writes it as Gradescope documents it."""
    found = {
        "id": 123456,
        "created_at": (NOW + late).isoformat(),
        "assignment": {
            **{"due_date": NOW.isoformat(), "group_size": 4, "group_submission": True},
            **{"id": 25828, "course_id": 1234, "late_due_date": None, "title": "One"},
            **{"release_date": "2026-02-01T00:00:00.000000-07:00", "total_points": "20.0"},
        },
        "submission_method": "upload",
        "users": [{"email": "student@example.com", "id": 1234, "name": "A Student"}],
        "previous_submissions": list(earlier),
    }
    places.metadata.write_text(json.dumps(found))


def earlier(hours: float, **more: Any) -> dict[str, Any]:
    time = (NOW - timedelta(hours=hours)).isoformat()
    return {"submission_time": time, "score": 1.0, "autograder_error": False, **more}


# --- Whatever becomes of the grading --------------------------------------------------------------

WRITES = """
import json, pathlib, sys
pathlib.Path(sys.argv[1], "results.json").write_text(json.dumps({"score": 3.5, "output": "3.5 of 9",
    "tests": [{"score": 3.5, "max_score": 9, "name": "one"}], "extra_data": {"finished": %r}}))
"""


@pytest.mark.parametrize(
    ("program", "score"),
    [
        ("raise SystemExit(3)", 0),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 0),
        ("import time; time.sleep(60)", 0),
        (WRITES % "" + "raise SystemExit(3)", 3.5),
        ("import pathlib, sys; pathlib.Path(sys.argv[1], 'results.json').write_text('{')", 0),
        ("import pathlib, sys; pathlib.Path(sys.argv[1], 'results.json').unlink()", 0),
    ],
    ids=["a fault", "killed", "a hang", "half-way", "damaged results", "no results"],
)
def test_a_grading_that_breaks_down_is_told_of_as_not_the_students_fault(
    places: Places, stand_in: Stand, program: str, score: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "KEPT_FOR_THE_END", 0.0)
    stand_in(program)
    started = time.monotonic()
    harness.run(places, [], 3.0)
    assert time.monotonic() - started < 6
    found = results(places)
    assert found["score"] == score
    assert found["output"].startswith(gradescope.NOT_YOUR_FAULT)
    assert found["extra_data"]["grader_fault"] is True


def test_a_grading_that_is_done_stands_as_it_is(places: Places, stand_in: Stand) -> None:
    stand_in(WRITES % "2026-03-01T12:03:00+00:00")
    harness.run(places, [], 60)
    found = results(places)
    assert (found["score"], found["output"]) == (3.5, "3.5 of 9")


def test_there_is_a_valid_result_before_the_grading_starts(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(harness, "_supervise", lambda *_: seen.append(results(places)))
    harness.run(places, [], 60)
    assert seen[0]["output"] == gradescope.STARTED
    assert seen[0]["score"] == 0


def test_nothing_that_the_grading_started_is_left(
    places: Places, stand_in: Stand, tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    stand_in(
        "import subprocess, sys, pathlib\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(note)!r}).write_text(str(child.pid))"
    )
    harness.run(places, [], 60)
    deadline = time.monotonic() + 5
    while Path(f"/proc/{note.read_text()}").exists() and time.monotonic() < deadline:
        if "Z" in Path(f"/proc/{note.read_text()}/stat").read_text().split(") ")[1][:1]:
            break
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{note.read_text()}").exists()


def test_the_checks_have_less_time_than_the_platform_gives(places: Places, stand_in: Stand) -> None:
    asked = stand_in("pass")
    harness.run(places, ["--backend", "auto"], 600)
    (command,) = asked
    assert float(command[command.index("--budget") + 1]) == 510
    assert command[-4:] == ["--backend", "auto", "--seed", "0"]  # no secret was brought along
    assert "--metadata" not in command


def test_the_course_file_says_when_the_platform_ends_a_grading(
    places: Places, stand_in: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = stand_in("pass")
    monkeypatch.setattr(harness, "_course", lambda: Course("A course", platform_minutes=20))
    monkeypatch.setattr(sys, "argv", ["harness", "--root", str(places.root), "--only", "ddp"])
    assert harness.main() == 0
    (command,) = asked
    assert float(command[command.index("--budget") + 1]) == 1110
    assert command[command.index("--only") :][:2] == ["--only", "ddp"]


def test_who_handed_in_is_nobodys_business(places: Places, stand_in: Stand) -> None:
    (places.root / "private" / SECRET_NAME).write_bytes(b"x" * 32)
    metadata(places)
    places.metadata.chmod(0o644)
    asked = stand_in("pass")
    harness.run(places, [], 60)
    assert places.metadata.stat().st_mode & 0o777 == 0o600
    assert places.out.stat().st_mode & 0o777 == 0o700
    assert places.submission.stat().st_mode & 0o777 == 0o700
    (command,) = asked
    assert command[command.index("--metadata") + 1] == str(places.metadata)
    assert "--seed" not in command


# --- The course's rules ---------------------------------------------------------------------------


@pytest.fixture
def two_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = Policy(rate_limit=RateLimit(2))
    monkeypatch.setattr(harness, "_course", lambda: Course("A course", policy=rules))


@pytest.mark.usefixtures("two_a_day")
def test_over_the_limit_the_last_results_stand_with_the_reason_above_them(
    places: Places, stand_in: Stand
) -> None:
    asked = stand_in(WRITES % "now")
    last = {"score": 7.0, "output": "7 of 9 points.", "tests": []}
    metadata(places, earlier(3), earlier(1, results=last))
    harness.run(places, [], 60)
    assert asked == []
    found = results(places)
    assert found["score"] == 7.0
    assert found["output"].startswith("Not graded: this course grades 2 submissions")
    assert found["output"].endswith("7 of 9 points.")


@pytest.mark.usefixtures("two_a_day")
def test_refused_again_and_again_only_the_last_reason_is_shown(
    places: Places, stand_in: Stand
) -> None:
    stand_in(WRITES % "now")
    extra = {"counted": [earlier(20)["submission_time"]] * 2}
    last: dict[str, Any] = {"score": 7.0, "output": "7 of 9 points.", "extra_data": extra}
    for _ in range(3):
        metadata(places, earlier(20), earlier(1, results=last))
        harness.run(places, [], 60)
        last = results(places)
    assert last["output"].count("Not graded") == 1
    assert last["output"].endswith(" on.\n\n7 of 9 points.")
    assert len(last["extra_data"]["counted"]) == 2


@pytest.mark.usefixtures("two_a_day")
@pytest.mark.parametrize(
    ("score", "shown"), [(7.5, 7.5), ("7.5", 7.5), (None, 0), ("none", 0), ("nan", 0)]
)
def test_where_the_platform_lost_the_last_results_their_score_stands(
    places: Places, stand_in: Stand, score: object, shown: float
) -> None:
    stand_in(WRITES % "now")
    error = earlier(1, score=0.0, autograder_error=True)
    metadata(places, earlier(9, score=1.0), earlier(5, score=score), error)
    harness.run(places, [], 60)
    found = results(places)
    assert found["score"] == (shown or 1.0)
    assert found["output"].startswith("Not graded")
    times = [earlier(hours)["submission_time"] for hours in (9, 5)]
    assert found["extra_data"]["counted"] == times


@pytest.mark.usefixtures("two_a_day")
def test_an_error_of_the_platforms_does_not_make_refused_ones_count(
    places: Places, stand_in: Stand
) -> None:
    asked = stand_in(WRITES % "now")
    noted = {"extra_data": {"counted": [earlier(30)["submission_time"]]}}
    error = earlier(1, autograder_error=True)
    metadata(places, earlier(30), earlier(5), earlier(3, results=noted), error)
    harness.run(places, [], 60)
    assert len(asked) == 1


@pytest.mark.usefixtures("two_a_day")
@pytest.mark.parametrize(
    "before",
    [
        [earlier(1), earlier(30)],
        [earlier(1), earlier(2, autograder_error=True)],
        [earlier(2), earlier(1, results={"score": 0, "extra_data": {"grader_fault": True}})],
        # What was refused is no submission that counts: the last result says which do.
        [earlier(3), earlier(2), earlier(1, results={"extra_data": {"counted": []}})],
    ],
    ids=["longer ago", "the platform's fault", "the grader's fault", "refused ones"],
)
def test_what_was_not_graded_lately_does_not_count(
    places: Places, stand_in: Stand, before: list[dict[str, Any]]
) -> None:
    asked = stand_in("pass")
    metadata(places, *before)
    harness.run(places, [], 60)
    assert len(asked) == 1


@pytest.mark.usefixtures("two_a_day")
def test_a_grading_that_failed_hands_on_what_counted_before_it(
    places: Places, stand_in: Stand
) -> None:
    stand_in("raise SystemExit(3)")
    metadata(places, earlier(5))
    harness.run(places, [], 60)
    counted = results(places)["extra_data"]["counted"]
    assert counted == [earlier(5)["submission_time"]]


@pytest.mark.parametrize("content", ["", "[]", '{"created_at": "soon"}', '{"id": 1}'])
def test_metadata_that_nobody_can_read_stops_no_grading(
    places: Places, stand_in: Stand, content: str
) -> None:
    places.metadata.write_text(content)
    asked = stand_in(WRITES % "now")
    harness.run(places, [], 60)
    assert len(asked) == 1
    assert results(places)["score"] == 3.5


def test_it_starts_without_torch() -> None:
    program = "import sys, autograder.harness; sys.exit('torch' in sys.modules)"
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", program]) == 0


# --- For real -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.root
def test_late_work_is_graded_and_loses_what_the_course_says(
    places: Places, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, content in reference_files().items():
        (places.submission / name).write_bytes(content)
    metadata(places, earlier(5), late=timedelta(hours=30))
    site = tmp_path / "rules.py"
    site.write_text(
        "from dataclasses import replace\n"
        "from fractions import Fraction\n"
        "from autograder import cli, manifest\n"
        "from autograder.policy import Lateness, Policy\n"
        "load = manifest.load\n"
        "def late(directory):\n"
        "    found = load(directory)\n"
        "    rules = Policy(Lateness(percent_per_day=Fraction(25)))\n"
        "    return replace(found, course=replace(found.course, policy=rules))\n"
        "cli.manifests.load = late\n"
        "cli.main()\n"
    )
    supervise = harness._supervise
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(
        harness,
        "_supervise",
        lambda command, deadline: supervise(
            [command[0], str(site), *command[command.index("grade") :]], deadline
        ),
    )
    harness.run(places, ["--only", "pipeline_bubble"], 120)
    found = results(places)
    assert (found["score"], found["extra_data"]["earned"]) == (0.5, 1.0)
    assert "within day 2 after the due date: 50% is lost" in found["output"]
    assert "So 0.5 points count." in found["output"]
    times = [earlier(5)["submission_time"], (NOW + timedelta(hours=30)).isoformat()]
    assert found["extra_data"]["counted"] == times
    assert Lateness().percent_per_day == 0
