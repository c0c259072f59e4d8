"""The command line: exit codes, sentences, and a valid result whatever is handed in."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from autograder import cli, turns
from autograder.confine.modes import CannotConfine, Confinement, Isolation
from autograder.inputs import known_secret
from autograder.judge import Judge
from autograder.paths import ROOT

from .submissions import MANIFEST, Files, patched, reference_files

SCHEMA = json.loads((Path(__file__).parent / "gradescope_schema.json").read_text())
QUICK = ["launch/cleanup", "broadcast/sub_group", "barrier/sub_group"]


@dataclass(frozen=True)
class Ended:
    """A run of the command: exit code, what it showed, and the files that it left, if any."""

    code: int
    shown: str
    out: Path

    @property
    def results(self) -> dict[str, Any]:
        """results.json, valid against Gradescope's schema."""
        results = json.loads((self.out / "results.json").read_text())
        jsonschema.validate(results, SCHEMA)
        return dict(results)

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The rows that were run (or blocked), by check."""
        rows = {row["extra_data"]["check"]: row for row in self.results["tests"]}
        return {name: row for name, row in rows.items() if name in QUICK}

    @property
    def scores(self) -> dict[str, float]:
        return {name: row["score"] for name, row in self.rows.items()}


def command(path: Path, out: Path, *more: str, only: list[str] | None = None) -> list[str]:
    wanted = QUICK if only is None else only
    checks = [part for check in wanted for part in ("--only", check)]
    arguments = ["grade", str(path), "--out", str(out), "--seed", "1", *checks, *more]
    return [sys.executable, "-m", "autograder", *arguments]


def run_here(path: Path, out: Path, *more: str, only: list[str] | None = None) -> Ended:
    """The command in this process."""
    done = CliRunner().invoke(cli.app, command(path, out, *more, only=only)[3:])
    return Ended(done.exit_code, done.output, out)


def run(path: Path, out: Path, *more: str, only: list[str] | None = None) -> Ended:
    """The command in a process of its own."""
    done = subprocess.run(
        command(path, out, *more, only=only),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
    )
    shown = (done.stdout + done.stderr).decode()
    return Ended(done.returncode, shown, out)


# --- Bad input, through the real command ----------------------------------------------------------

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31mred"


def folder(at: Path, files: Mapping[str, bytes]) -> Path:
    at.mkdir()
    for name, content in files.items():
        (at / name).write_bytes(content)
    return at


def without(*names: str) -> Files:
    return {name: content for name, content in reference_files().items() if name not in names}


def with_text(file: str, text: str) -> Files:
    return reference_files() | {file: text.encode()}


def broken_zip(at: Path) -> Path:
    packed = at.with_suffix(".zip")
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in reference_files().items():
            archive.writestr(name, content)
    packed.write_bytes(packed.read_bytes()[: packed.stat().st_size // 2])
    return packed


def escaping(at: Path) -> Path:
    body = f"print({ESCAPES!r})\nraise RuntimeError({ESCAPES!r})"
    return folder(at, patched({"broadcast": body}))


BAD: dict[str, Callable[[Path], Path]] = {
    "missing path": lambda at: at / "is-not-there",
    "empty folder": lambda at: folder(at, {}),
    "broken zip": broken_zip,
    "syntax error": lambda at: folder(at, with_text("launch.py", "def setup(:\n")),
    "raises at import": lambda at: folder(at, with_text("launch.py", "raise KeyError('oh')\n")),
    "hangs at import": lambda at: folder(at, with_text("launch.py", "while True:\n    pass\n")),
    "missing module": lambda at: folder(at, without("launch.py")),
    "missing function": lambda at: folder(at, with_text("launch.py", "def setup(): ...\n")),
    "wrong signature": lambda at: folder(
        at, with_text("launch.py", "def setup(rank): ...\ndef cleanup(everything): ...\n")
    ),
    "escapes": escaping,
    "dies": lambda at: folder(at, patched({"broadcast": "import os\nos._exit(0)"})),
}
RIGHT = {"launch/cleanup": 0.2, "broadcast/sub_group": 0.2, "barrier/sub_group": 0.25}


WAYS: dict[str, Callable[[Path, Path], Ended]] = {
    "here": lambda path, out: run_here(path, out),
    "in a process of its own": lambda path, out: run(path, out),
}


@pytest.fixture(params=["here", pytest.param("in a process of its own", marks=pytest.mark.slow)])
def ended(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Ended]:
    """Grades a bad input. In this process, what takes its time (torch's import) is there."""
    monkeypatch.setattr("autograder.probe._TIMEOUT", 2.0)  # in this process, that is

    def grade(name: str) -> Ended:
        path = BAD[name](tmp_path / "work")
        return WAYS[request.param](path, tmp_path / "out")

    return grade


def test_a_path_that_does_not_exist_is_wrong_usage_and_gets_no_result(
    ended: Callable[[str], Ended],
) -> None:
    end = ended("missing path")
    assert end.code == 2
    assert "There is no folder or file" in end.shown
    assert "is-not-there" in end.shown.replace("\n", "")  # a long path is wrapped
    assert "Traceback" not in end.shown
    assert not end.out.exists()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("empty folder", "The folder is empty."),
        ("broken zip", "The zip archive is damaged and cannot be read."),
    ],
)
def test_what_cannot_be_used_gets_a_valid_zero_that_says_why(
    ended: Callable[[str], Ended], name: str, sentence: str
) -> None:
    end = ended(name)
    assert end.code == 2
    assert end.results["score"] == 0
    assert sum(row["max_score"] for row in end.results["tests"]) == pytest.approx(
        float(MANIFEST.total_points)
    )
    assert sentence in end.results["output"]
    assert " ".join(end.shown.split()).count(sentence) == 1  # for all rows together
    assert set(end.scores.values()) == {0}
    assert all(sentence in row["output"] for row in end.rows.values())
    record = json.loads((end.out / "grade.json").read_text())
    assert record["points"]["value"] == MANIFEST.total_points
    assert sentence in (end.out / "report.html").read_text()


@pytest.mark.parametrize(
    ("name", "outcome", "part"),
    [
        ("syntax error", "blocked", "SyntaxError"),
        ("raises at import", "blocked", "KeyError: 'oh'"),
        ("hangs at import", "blocked", "did not finish importing"),
        ("missing module", "blocked", "there is no launch.py in what you handed in"),
        ("missing function", "failed", "launch.py does not define cleanup"),
        ("wrong signature", "failed", "cleanup in launch.py takes (everything)"),
    ],
)
def test_what_is_wrong_with_one_module_costs_its_checks_alone(
    ended: Callable[[str], Ended], name: str, outcome: str, part: str
) -> None:
    end = ended(name)
    assert end.code == 0
    assert end.scores == RIGHT | {"launch/cleanup": 0.0}
    row = end.rows["launch/cleanup"]
    assert row["extra_data"]["outcome"] == outcome
    assert part in row["output"]
    assert "Traceback" not in end.shown or "KeyError" in end.shown or "SyntaxError" in end.shown


def test_a_process_that_leaves_costs_its_check_alone(ended: Callable[[str], Ended]) -> None:
    end = ended("dies")
    assert end.code == 0
    assert end.scores == RIGHT | {"broadcast/sub_group": 0.0}
    assert (
        "left with exit code 0 before it had answered"
        in (end.rows["broadcast/sub_group"]["output"])
    )


def test_nothing_that_terminals_obey_reaches_the_terminal_or_a_file(
    ended: Callable[[str], Ended],
) -> None:
    end = ended("escapes")
    assert end.code == 0
    assert end.scores == RIGHT | {"broadcast/sub_group": 0.0}
    output = end.rows["broadcast/sub_group"]["output"]
    assert "RuntimeError: red" in output
    for text in [end.shown, *(path.read_text() for path in end.out.iterdir())]:
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)
        assert "\\u001b" not in text
    for row in end.results["tests"]:
        assert "\x1b" not in row["output"]


# --- The command itself ---------------------------------------------------------------------------


@pytest.fixture
def invoke(tmp_path: Path) -> Callable[..., Ended]:
    """The command in this process, where parts of it can be made to fail."""
    return lambda path, *more, only=None: run_here(path, tmp_path / "out", *more, only=only)


def test_a_result_that_is_not_official_says_why(
    invoke: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    end = invoke(ROOT / "reference", "--isolation", "none", only=["barrier/sub_group"])
    assert end.code == 0
    sentence = (
        "This result is not official: without root, the submission runs as your own user; its "
        "inputs come from a known number, not from the course's secret; only some of the checks "
        "were asked for."
    )
    assert sentence in end.results["output"]
    assert sentence in " ".join(end.shown.split())
    assert end.results["extra_data"]["official"] is False


def test_an_official_result_that_would_not_be_one_is_refused(
    invoke: Callable[..., Ended],
) -> None:
    end = invoke(ROOT / "reference", "--official", only=["barrier/sub_group"])
    assert end.code == 2
    assert "This would not be official: its inputs come from" in end.shown.replace("\n", " ")
    assert not end.out.exists()
    end = invoke(ROOT / "reference", "--official", "--isolation", "none")
    assert "Grade as root, with --isolation auto" in " ".join(end.shown.split())


def test_an_isolation_that_cannot_be_had_is_refused_with_the_reason(
    invoke: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(asked: Isolation) -> Confinement:
        raise CannotConfine(f"isolation {asked} does not work here: not permitted")

    monkeypatch.setattr(cli, "choose", refused)
    end = invoke(ROOT / "reference", "--isolation", "full", only=["barrier/sub_group"])
    assert end.code == 2
    assert "isolation full does not work here: not permitted" in end.shown
    assert not end.out.exists()


def test_others_may_write_no_result(invoke: Callable[..., Ended], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o777)
    end = invoke(ROOT / "reference", only=["launch/cleanup"])
    assert end.code == 0
    assert end.out.stat().st_mode & 0o777 == 0o755
    assert {path.stat().st_mode & 0o777 for path in end.out.iterdir()} == {0o600}


def test_the_record_names_the_mode_and_its_layers(invoke: Callable[..., Ended]) -> None:
    end = invoke(ROOT / "reference", "--isolation", "none", only=["barrier/sub_group"])
    record = json.loads((end.out / "grade.json").read_text())
    assert record["grading"]["isolation_mode"] == "none"
    assert record["grading"]["isolation"] == ["own processes"]
    assert end.results["extra_data"]["isolation"] == "none"
    assert record["official"] is False


def test_it_takes_turns_with_whatever_is_graded_here(
    invoke: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(turns, "_folder", lambda: tmp_path / "turns")
    assert invoke(ROOT / "reference", only=["launch/cleanup"]).code == 0
    assert (tmp_path / "turns" / "lock").exists()


def test_a_fault_of_the_graders_is_its_exit_code(
    invoke: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("in the grader")

    monkeypatch.setattr(Judge, "run", broken)
    end = invoke(ROOT / "reference", only=["barrier/sub_group"])
    assert end.code == 3
    assert "Not counted yet: 1 check (1.9.2), 0.25 points." in end.results["output"]
    assert "ZeroDivisionError" not in json.dumps(end.results)
    assert "ZeroDivisionError" in (end.out / "grade.json").read_text()


def test_a_grader_that_fails_as_a_whole_says_so_in_the_result(
    invoke: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("in the grader")

    monkeypatch.setattr("autograder.grade.Grade.record", broken)
    end = invoke(ROOT / "reference", only=["barrier/sub_group"])
    assert end.code == 3
    assert "The grader itself failed before it was done." in end.results["output"]


def test_a_manifest_that_cannot_be_read_is_the_graders_fault(
    invoke: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "reference", tmp_path / "reference")
    (tmp_path / "reference" / "course.toml").write_text("name = 3\n")
    monkeypatch.setattr(cli, "REFERENCE", tmp_path / "reference")
    end = invoke(ROOT / "reference")
    assert end.code == 3
    assert "reference/course.toml" in end.shown
    assert "Traceback" not in end.shown


def test_an_unknown_check_is_wrong_usage(invoke: Callable[..., Ended]) -> None:
    end = invoke(ROOT / "reference", only=["al_reduce"])
    assert end.code == 2
    assert "no part, problem or check 'al_reduce'" in " ".join(end.shown.split())
    assert not (end.out / "results.json").exists()


def test_results_that_cannot_be_written_are_wrong_usage(
    invoke: Callable[..., Ended], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    end = invoke(ROOT / "reference", "--out", str(tmp_path / "file" / "out"))
    assert end.code == 2
    assert "The results cannot be written to" in end.shown


def test_nothing_of_an_earlier_grading_lies_beside_new_results(
    invoke: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    for name in ("grade.json", "report.html"):
        (tmp_path / "out" / name).write_text("of another grading")

    def killed(*_: Any, **__: Any) -> None:
        raise SystemExit(9)

    monkeypatch.setattr("autograder.report.write_all", killed)
    end = invoke(ROOT / "reference", only=["barrier/sub_group"])
    assert end.code == 9
    assert [path.name for path in end.out.iterdir()] == ["results.json"]
    assert end.results


def test_a_name_that_terminals_obey_is_shown_without_it(
    invoke: Callable[..., Ended], tmp_path: Path
) -> None:
    out = tmp_path / f"o{ESCAPES}ut"
    end = invoke(ROOT / "reference", "--out", str(out), only=["barrier/alone_and_often"])
    assert end.code == 0
    assert (out / "results.json").exists()
    assert "\x1b" not in end.shown


def test_the_secret_is_neither_shown_nor_written(
    invoke: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    end = invoke(ROOT / "reference", only=["barrier/alone_and_often"])
    secret = known_secret(1).value
    for content in [end.shown.encode(), *(path.read_bytes() for path in end.out.iterdir())]:
        assert secret not in content
        assert secret.hex().encode() not in content


def test_without_a_place_for_results_they_go_to_a_folder_of_the_submissions_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    work = folder(tmp_path / "anna", {})
    done = CliRunner().invoke(cli.app, ["grade", str(work), "--seed", "1"])
    assert done.exit_code == 2
    assert (tmp_path / "graded" / "anna" / "results.json").exists()


# --- A grader that is killed ----------------------------------------------------------------------


def descendants(pid: int) -> set[int]:
    """All processes below this one."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    below = {pid}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    return below - {pid}


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if _state(pid) not in ("", "Z", "X")}


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_grader_leaves_a_valid_result_and_no_process(tmp_path: Path) -> None:
    body = "import time\nprint('here', flush=True)\nwhile True:\n    time.sleep(0.01)"
    work = folder(tmp_path / "work", patched({"broadcast": body}))
    out = tmp_path / "out"
    environment = {k: v for k, v in os.environ.items() if k != "MULTIRANK_ZYGOTE"}
    grader = subprocess.Popen(
        command(work, out, only=["launch/cleanup", "broadcast/sub_group"]),
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        below = _wait_for_ranks(grader, out)
    finally:
        os.kill(grader.pid, signal.SIGKILL)
        grader.wait()
    end = Ended(-9, "", out)
    assert end.rows["launch/cleanup"]["score"] == 0.2
    assert end.rows["broadcast/sub_group"]["score"] == 0
    assert len(end.results["tests"]) > 60
    deadline = time.monotonic() + 10
    while alive(below) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive(below) == set()


def _wait_for_ranks(grader: subprocess.Popen[bytes], out: Path) -> set[int]:
    """Everything below the grader, once it runs the check that hangs."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert grader.poll() is None, "the grader has ended"
        below = descendants(grader.pid)
        results = out / "results.json"
        if results.exists() and len(below) >= 4:  # zygote, leader, two ranks
            rows = json.loads(results.read_text())["tests"]
            if any(row["extra_data"]["outcome"] == "passed" for row in rows):
                time.sleep(0.5)
                return descendants(grader.pid)
        time.sleep(0.02)
    raise AssertionError("the grader has not come so far in a minute")
