"""The grading image for real: built, loaded, and run as Gradescope and GPU machines run it."""

from __future__ import annotations

import json
import secrets
import subprocess
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from autograder.digest import grader_digest
from autograder.inputs import Secret
from autograder.paths import ROOT
from autograder.platforms import upload
from autograder.report import gradescope
from tests.autograder.submissions import MANIFEST, SMALL, graded, reference_files, stub_files
from tests.image.containers import IMAGE, ZIPPED, Grading, docker, outcomes

SCHEMA = json.loads((ROOT / "tests" / "autograder" / "gradescope_schema.json").read_text())
SECRET = secrets.token_bytes(32)
MOST_BYTES = 1_600_000_000
MEMORY = ("--memory=4g", "--memory-swap=4g")
# A GPU machine's options, but for its GPUs; see image/README.md.
READ_ONLY = ("--read-only", "--shm-size=256m", "--tmpfs=/tmp", "--tmpfs=/run", "--tmpfs=/var/tmp")

OFF = [problem.id for problem in MANIFEST.problems if problem not in SMALL.problems]
COURSE = f'name = "{MANIFEST.course.name}"\n[problems]\noff = {json.dumps(OFF)}\n'
LATE_COSTS = "[lateness]\npercent_per_day = 10\n"
# As Gradescope has it beside a submission, which is a day late here.
METADATA = {
    "id": 123456,
    "created_at": "2026-03-02T12:00:00.000000-07:00",
    "assignment": {"id": 25828, "title": "One", "due_date": "2026-03-01T23:00:00.000000-07:00"},
    "submission_method": "upload",
    "users": [{"email": "student@example.com", "id": 1234, "name": "A Student"}],
    "previous_submissions": [],
}

HANGS = """
def broadcast(tensor, src, group=None):
    while True:
        pass
"""
# Reads what is secret, forges a result, and leaves a process behind; prints what it could do.
HOSTILE = """
import os as _os, glob as _glob, signal as _signal

_PRIVATE = [
    _path
    for _place in ("private", "results", "submission", "source/autograder", "source/reference")
    for _path in [f"/autograder/{_place}/course-secret", *_glob.glob(f"/autograder/{_place}/*")]
]
for _path in [*_PRIVATE, "/proc/1/environ", f"/proc/{_os.getppid()}/environ"]:
    try:
        with open(_path, "rb") as _file:
            print("BREACH read", _path, len(_file.read()))
    except OSError:
        pass
for _path in ("/autograder/results/results.json", "/autograder/private/x", "/autograder/x"):
    try:
        with open(_path, "w") as _file:
            print("BREACH wrote", _path, _file.write('{"score": 1000}'))
    except OSError:
        pass
for _pid in (1, _os.getppid()):
    try:
        _os.kill(_pid, _signal.SIGKILL)
        print("BREACH killed", _pid)
    except OSError:
        pass


def broadcast(tensor, src, group=None):
    print('{"score": 1000}')
    _os._exit(0)
"""


def with_added(text: str) -> dict[str, bytes]:
    files = reference_files()
    return files | {"collectives.py": files["collectives.py"] + textwrap.dedent(text).encode()}


SUBMISSIONS = {
    "reference": reference_files(),
    "stub": stub_files(),
    "hanging": with_added(HANGS),
    "hostile": with_added(HOSTILE),
}


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Grading]:
    """Each submission in a container of its own, all at once, in 4 GB; one as where GPUs are."""
    return {
        name: Grading(
            tmp_path_factory.mktemp(name),
            files,
            *MEMORY,
            *(READ_ONLY if name == "hostile" else ()),
            secret=SECRET,
            course=COURSE,
            arguments=("--backend", "auto") if name == "hostile" else (),
        )
        for name, files in SUBMISSIONS.items()
    }


def test_the_image_holds_the_grader_and_nothing_that_was_needed_to_build_it(
    inside: Mapping[str, Grading],
) -> None:
    assert int(docker("image", "inspect", "--format={{.Size}}", IMAGE)) <= MOST_BYTES
    found = docker("run", "--rm", "--network=none", IMAGE, "find", "/", "-xdev", "-printf", "%P\n")
    paths = found.splitlines()
    top = {path.split("/")[2] for path in paths if path.startswith("autograder/source/")}
    assert top == {*upload.ROOMS, *upload.FILES}
    names = {path.split("/")[-1] for path in paths if not path.startswith("usr/share/")}
    assert names & {".git", "pip.conf", "course-secret", ".cache", "gcc", "make", "g++"} == set()
    for empty in ("mnt", "root/.cache", "tmp", "autograder/private"):
        assert [path for path in paths if path.startswith(f"{empty}/")] == []
    lists = {path.split("/")[4] for path in paths if path.startswith("var/lib/apt/lists/")}
    assert lists <= {"lock", "partial"}  # which are empty
    assert not [path for path in paths if path.startswith("autograder/python/bin/pip")]
    places = [f"/autograder/{name}" for name in ROOMS]
    modes = docker("run", "--rm", "--network=none", IMAGE, "stat", "-c", "%a", *places)
    assert dict(zip(ROOMS, modes.split(), strict=True)) == ROOMS


ROOMS = {
    **dict.fromkeys(("private", "results", "submission"), "700"),
    **dict.fromkeys(("source/autograder", "source/reference", "source/assignment"), "700"),
    **dict.fromkeys(("source", "source/multirank", "python", "run_autograder"), "755"),
}


def test_it_is_the_same_grader_in_there() -> None:
    asked = "from autograder.digest import grader_digest; print(grader_digest())"
    python = "/autograder/python/bin/python"
    told = docker("run", "--rm", "--network=none", IMAGE, python, "-I", "-c", asked)
    assert told.strip() == grader_digest()


def test_results_are_valid_from_the_start_and_after_every_check(
    inside: Mapping[str, Grading],
) -> None:
    """Watched on the one that takes longest."""
    grading = inside["hanging"]
    seen: list[dict[str, Any]] = []
    while grading.running:
        results = grading.results
        if results is not None and (not seen or seen[-1] != results):
            jsonschema.validate(results, SCHEMA, cls=jsonschema.Draft202012Validator)
            seen.append(results)
        time.sleep(0.1)
    assert len(seen) > 5
    assert "being graded" in seen[0]["output"]
    assert seen[0]["score"] == 0


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_the_grade_is_the_same_inside_and_outside(name: str, inside: Mapping[str, Grading]) -> None:
    results = inside[name].wait()
    outside = graded(SUBMISSIONS[name], manifest=SMALL, secret=Secret(SECRET))
    assert outcomes(results) == outcomes(gradescope.results(outside))
    assert results["score"] == gradescope.number(outside.final)
    extra = results["extra_data"]
    assert (extra["official"], extra["isolation"]) == (True, "container")
    assert extra["points"] == float(SMALL.total_points)
    expected = {"reference": extra["points"], "stub": 0.0}
    assert results["score"] == expected.get(name, results["score"])
    assert "BREACH" not in json.dumps(results)
    if name in ("hanging", "hostile"):
        assert {one[0] for one in outcomes(results).values()} > {"passed"}


def test_its_health_is_whether_it_can_grade_officially(tmp_path: Path) -> None:
    _, command = docker(
        "image", "inspect", '--format={{join .Config.Healthcheck.Test " "}}', IMAGE
    ).split(" ", 1)
    doctor = command.split()
    without = ["docker", "run", "--rm", "--network=none", IMAGE, *doctor]
    assert subprocess.run(without, capture_output=True, check=False).returncode == 2
    (tmp_path / "course-secret").write_bytes(SECRET)
    (tmp_path / "course-secret").chmod(0o600)
    tmp_path.chmod(0o700)
    told = docker(
        *("run", "--rm", "--network=none", f"--volume={tmp_path}:/autograder/private:ro"),
        *(IMAGE, *doctor),
    )
    assert "container" in told


def test_gradescopes_zip_grades_alike_with_the_secret_that_it_carries_and_lateness_counts(
    tmp_path: Path,
) -> None:
    grading = Grading(
        tmp_path, reference_files(), image=ZIPPED, course=COURSE + LATE_COSTS, metadata=METADATA
    )
    results = grading.wait()
    assert results["extra_data"]["points"] == float(SMALL.total_points)
    assert results["score"] == pytest.approx(0.9 * float(SMALL.total_points))
    assert results["extra_data"]["official"]


@pytest.mark.slow
@pytest.mark.nightly
def test_the_whole_reference_takes_as_long_inside_as_outside_and_4_gb(tmp_path: Path) -> None:
    results = Grading(tmp_path, reference_files(), *MEMORY, secret=SECRET).wait()
    started = time.monotonic()
    outside = graded(reference_files(), secret=Secret(SECRET))
    seconds = time.monotonic() - started
    print(f"inside {results['execution_time']:.0f} s, outside {seconds:.0f} s")
    assert results["score"] == gradescope.number(outside.final) == 100
    assert results["execution_time"] <= 1.3 * seconds
