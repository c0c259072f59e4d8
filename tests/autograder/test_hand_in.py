"""The students' `progress` and `submit`: what they say, and that the grader takes all of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections import defaultdict
from pathlib import Path

import pytest

from autograder.intake import Limits, take
from autograder.paths import REFERENCE, ROOT
from autograder.release import contents
from reference import progress, submit

from .submissions import MANIFEST

WANTED = list(MANIFEST.modules)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked release, of whose tests those of one module are there that needs no ranks."""
    top = tmp_path_factory.mktemp("release")
    for name, data in contents.files().items():
        if name.startswith("tests/assignment/test_") and not name.endswith("test_accounting.py"):
            continue
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(data)
    return top


@pytest.fixture
def student(release: Path, tmp_path: Path) -> Path:
    """The same, for one test alone."""
    shutil.copytree(release, tmp_path / "student")
    return tmp_path / "student"


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def solve(folder: Path, *functions: str) -> None:
    """Writes the reference's accounting.py, but for the functions that are named."""
    source = (REFERENCE / "accounting.py").read_text()
    for function in functions:
        source += f"\n\ndef {function}(*_, **__):\n    return -1.0\n"
    (folder / "assignment" / "accounting.py").write_text(source)


# --- progress -------------------------------------------------------------------------------------


def problem(
    *tests: progress.Test, id: str = "all_reduce", number: str = "1.7"
) -> progress.Progress:
    return progress.Progress(id, number, "All-reduce", "collectives", 6, list(tests))


def passed(share: float) -> progress.Test:
    return progress.Test("t.py::passed", share, passed=True)


def failed(share: float, message: str) -> progress.Test:
    return progress.Test("t.py::test[ring]", share, passed=False, message=message)


def test_points_are_shares_of_the_problems_points() -> None:
    lines = progress.report([problem(passed(0.75), failed(0.25, "Failed: too few bytes\nmore"))])
    assert lines[1].split()[:5] == ["1.7", "All-reduce", "4.5", "of", "6"]
    assert lines[1].endswith("1 of 2 tests fail")
    assert "4.5 of 6 public points; 1 of 2 tests pass" in lines
    assert lines[-3:] == [
        "Next: 1.7 All-reduce, in reference/collectives.py",
        "    too few bytes",
        "    pytest 't.py::test[ring]'",
    ]


def test_points_are_never_rounded_up() -> None:
    told = progress.report([problem(passed(0.99), failed(0.01, "no"))])
    assert "5.9 of 6 public points; 1 of 2 tests pass" in told


def test_what_is_begun_comes_before_what_is_not() -> None:
    unwritten = problem(failed(1, "f is not written yet: implement it"), number="1.1")
    begun = problem(passed(0.5), failed(0.5, "wrong"), number="1.2")
    lines = progress.report([unwritten, begun])
    assert lines[1].endswith("not written yet")
    assert any(line.startswith("Next: 1.2") for line in lines)
    assert any(line.startswith("Next: 1.1") for line in progress.report([unwritten]))


def test_when_all_is_done_it_says_how_to_hand_in() -> None:
    lines = progress.report([problem(passed(1))])
    assert "6 of 6 public points; 1 of 1 tests pass" in lines
    assert lines[-1] == "    python -m reference.submit"


def test_the_shares_of_the_public_tests_of_each_problem_sum_to_one() -> None:
    class Collected:
        def __init__(self) -> None:
            self.shares: dict[str, float] = defaultdict(float)

        def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
            for item in items:
                if mark := item.get_closest_marker("problem"):
                    self.shares[mark.args[0]] += mark.kwargs["share"]

    found = Collected()
    pytest.main(["--collect-only", "-q", str(ROOT / "tests/assignment")], [found])
    assert found.shares == {problem.id: pytest.approx(1) for problem in MANIFEST.problems}


@pytest.mark.slow  # 10 s
def test_in_a_release_it_counts_what_is_written_and_names_what_fails(student: Path) -> None:
    done = command(student, "assignment.progress")
    assert "0 of 8 public points" in done.stdout, done.stdout + done.stderr
    assert "setup is not written" not in done.stdout  # whose tests are not there
    assert "Next: 6.1" in done.stdout
    solve(student, "training_flops")
    done = command(student, "assignment.progress")
    assert "Next: 6.1" in done.stdout, done.stdout
    assert "7 of 8 public points" in done.stdout or "7." in done.stdout
    solve(student)
    done = command(student, "assignment.progress")
    assert "8 of 8 public points" in done.stdout
    assert "python -m assignment.submit" in done.stdout


@pytest.mark.slow  # 4 s
def test_tests_that_cannot_be_run_are_an_error(student: Path) -> None:
    (student / "tests/assignment/test_accounting.py").write_text("import nonsense_")
    done = command(student, "assignment.progress")
    assert done.returncode == 1
    assert "pytest could not run the tests" in done.stderr
    shutil.rmtree(student / "tests")
    assert "There is no folder tests/assignment" in command(student, "assignment.progress").stderr


# --- submit ---------------------------------------------------------------------------------------


@pytest.mark.slow  # 5 s
def test_the_grader_takes_what_it_hands_in_and_ignores_nothing(student: Path) -> None:
    solve(student)
    (student / "assignment/helpers.py").write_text("ONE = 1\n")
    (student / "assignment/notes.txt").write_text("...")
    (student / "assignment/my-ring.py").write_text("")
    (student / "assignment/data").mkdir()
    done = command(student, "assignment.submit")
    assert done.returncode == 0, done.stderr
    assert "8 of 8 public points" in done.stdout
    assert "with your own: helpers.py" in done.stdout
    assert "bringing up nodes" not in done.stdout
    assert "left out: notes.txt (not a Python module)" in done.stdout
    assert "left out: my-ring.py (not a name that Python can import)" in done.stdout
    assert "left out: data/ (a folder" in done.stdout
    assert "left out: examples/ (they came with the assignment" in done.stdout
    submission = take(student / "submission.zip", WANTED)
    assert submission.ignored == []
    assert submission.files == {
        path.name: path.read_bytes()
        for path in (student / "assignment").glob("*.py")
        if path.name != "my-ring.py"
    }


@pytest.mark.slow  # 5 s
def test_what_is_missing_or_broken_is_told_and_the_rest_is_handed_in(student: Path) -> None:
    (student / "assignment/ddp.py").unlink()
    (student / "assignment/pipeline_parallel.py").write_text("def f(:\n")
    (student / "assignment/tensor_parallel.py").write_text("import nonsense_\n")
    done = command(student, "assignment.submit", "--out", "mine.zip")
    assert done.returncode == 0, done.stderr
    assert "MISSING  ddp.py" in done.stdout
    assert "BROKEN   pipeline_parallel.py cannot be imported" in done.stdout
    assert "SyntaxError: invalid syntax" in done.stdout
    assert "ModuleNotFoundError: No module named 'nonsense_'" in done.stdout
    assert "ddp.py" not in take(student / "mine.zip", WANTED).files


def test_a_module_that_ends_python_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "assignment"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "good.py").write_text("import os\nos.write(1, b'\\xff')\n")
    (folder / "bad.py").write_text("import os\nos._exit(0)\n")
    (folder / "slow.py").write_text("import time\ntime.sleep(60)\n")
    (folder / "raises.py").write_text("raise ValueError('\\udc80')\n")
    monkeypatch.setattr(submit, "_HERE", folder)
    monkeypatch.setattr(submit, "PACKAGE", "assignment")
    monkeypatch.setattr(submit, "_IMPORT_SECONDS", 2)
    assert submit.cannot_be_imported(["good"]) == {}
    assert submit.cannot_be_imported(["raises", "bad", "slow", "good"]) == {
        "raises": "ValueError: \\udc80",
        "bad": "Python dies when it is imported",
        "slow": "importing it takes over 2 s",
    }


def test_a_file_dated_before_zip_begins_is_handed_in(tmp_path: Path) -> None:
    (tmp_path / "ddp.py").touch()
    os.utime(tmp_path / "ddp.py", (0, 0))  # 1970
    submit.write(tmp_path / "s.zip", [tmp_path / "ddp.py"])
    assert list(take(tmp_path / "s.zip", ["ddp"]).files) == ["ddp.py"]


def test_its_limits_are_the_graders_and_the_given_modules_are_all(tmp_path: Path) -> None:
    limits = Limits()
    assert limits.files == submit.FILES
    assert limits.file_bytes == submit.FILE_KIB * 1024
    assert limits.total_bytes == submit.TOTAL_KIB * 1024
    assert {*submit.GIVEN, *WANTED} == {path.stem for path in REFERENCE.glob("*.py")}
    (tmp_path / "ddp.py").touch()
    (tmp_path / "large.py").write_bytes(b"#" * (256 * 1024 + 1))
    for number in range(45):
        (tmp_path / f"m{number}.py").touch()
    found = submit.look(tmp_path, ["ddp"])
    submit.write(tmp_path / "s.zip", found.taken)
    assert len(found.taken) == 40
    assert found.left_out["large.py"] == "larger than 256 KiB"
    assert found.left_out["m9.py"] == "more than 40 modules"
    assert take(tmp_path / "s.zip", ["ddp"]).ignored == []
    with zipfile.ZipFile(tmp_path / "s.zip") as archive:
        assert archive.namelist()[0] == "assignment/ddp.py"
