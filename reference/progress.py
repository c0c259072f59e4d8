"""Where you are: your points in the public tests, problem by problem, and what to do next.

    python -m assignment.progress

All of it is given. The graded tests are like the public ones, with other sizes and values.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_HERE = Path(__file__).resolve().parent
PACKAGE = _HERE.name
_TESTS = Path("tests") / "assignment"
_ENDED_WELL = (0, 1)  # pytest's exit codes: all tests pass, and some do not
_UNWRITTEN = "not written yet"
# Tests end what hangs; this is for what they cannot end, such as an endless loop outside Python.
_MINUTES = 15


class NoResults(Exception):
    """The tests could not be run; the text says why."""


@dataclass(frozen=True)
class Test:
    """One public test that was run. share: its part of the problem; message: what is wrong."""

    name: str
    share: float
    passed: bool
    message: str = ""


@dataclass
class Progress:
    """One problem, with the public tests that belong to it."""

    id: str
    number: str
    title: str
    module: str
    points: float
    tests: list[Test] = field(default_factory=list)

    @property
    def public_points(self) -> float:
        """What the public tests give, at most."""
        return self.points * sum(test.share for test in self.tests)

    @property
    def earned(self) -> float:
        """What they give now."""
        return self.points * sum(test.share for test in self.tests if test.passed)

    @property
    def failed(self) -> list[Test]:
        """The tests that fail, in the order in which they ran."""
        return [test for test in self.tests if not test.passed]

    @property
    def state(self) -> str:
        """In a few words."""
        if not self.failed:
            return ""
        if all(_UNWRITTEN in test.message for test in self.failed):
            return _UNWRITTEN
        return f"{len(self.failed)} of {len(self.tests)} tests fail"


def main() -> None:
    """The command."""
    try:
        found = measure()
    except NoResults as error:
        sys.exit(str(error))
    print("\n".join(report(found)))


def measure(root: Path = _HERE.parent) -> list[Progress]:
    """Runs the public tests, and reads off what they say.

    root: the folder that `assignment/` and `tests/` lie in.

    Raises:
        NoResults: they did not run.
    """
    if not (root / _TESTS).is_dir():
        raise NoResults(f"There is no folder {_TESTS} beside {PACKAGE}/; unpack the archive again.")
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [sys.executable, "-m", "pytest", str(_TESTS), f"--implementation={PACKAGE}"]
        command += ["-n", str(_workers()), "--dist", "loadfile", "-q", "--tb=no", "--no-summary"]
        print("Running the public tests, which takes about a minute ...", flush=True)
        command.append(f"--junitxml={results}")
        code = _run(command, root)
        if code not in _ENDED_WELL or not results.is_file():
            raise NoResults(
                f"pytest could not run the tests (exit code {code}); what it says:\n"
                f"    pytest {_TESTS}"
            )
        return read(results, problems())


def problems() -> list[Progress]:
    """All problems, from problems.toml, with no tests."""
    listed = tomllib.loads((_HERE / "problems.toml").read_text(encoding="utf-8"))["problem"]
    return [
        Progress(one["id"], one["number"], one["title"], one["module"], one["points"])
        for one in listed
    ]


def _run(command: Sequence[str], root: Path) -> int:
    """The exit code. Of what does not come to an end, nothing is left running."""
    running = subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        return running.wait(60 * _MINUTES)
    except subprocess.TimeoutExpired:
        raise NoResults(
            f"The public tests have not come to an end in {_MINUTES} minutes. This shows which one "
            f"does not:\n    pytest {_TESTS} -v"
        ) from None
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def read(results: Path, into: Sequence[Progress]) -> list[Progress]:
    """The problems with the tests of a JUnit file; those that were skipped do not count.

    Raises:
        NoResults: a file of tests could not be read.
    """
    by_id = {problem.id: problem for problem in into}
    for case in ElementTree.parse(results).iter("testcase"):
        if case.find("error[@message='collection failure']") is not None:
            raise NoResults(
                f"pytest could not run the tests of {case.get('name')}; see what it says:\n"
                f"    pytest {_TESTS}"
            )
        noted = {one.get("name"): one.get("value", "") for one in case.iter("property")}
        problem = by_id.get(noted.get("problem") or "")
        if problem is None or case.find("skipped") is not None:
            continue
        failures = [*case.findall("failure"), *case.findall("error")]
        message = next((one.get("message", "") for one in failures), "")
        file = (case.get("classname") or "").replace(".", "/") + ".py"
        name = f"{file}::{case.get('name')}"
        problem.tests.append(Test(name, float(noted["share"]), not failures, message))
    return list(into)


def report(found: Sequence[Progress]) -> list[str]:
    """Lines: every problem, the sum, and what to do next."""
    width = max(len(problem.title) for problem in found)
    lines = [""]
    for problem in found:
        points = f"{_points(problem.earned):>5} of {_points(problem.public_points):<4}"
        lines.append(
            f"{problem.number:<4} {problem.title:<{width}} {points} {problem.state}".rstrip()
        )
    earned = sum(problem.earned for problem in found)
    most = sum(problem.public_points for problem in found)
    tests = [test for problem in found for test in problem.tests]
    passed = sum(test.passed for test in tests)
    total = f"{_points(earned)} of {_points(most)} public points"
    return [*lines, "", f"{total}; {passed} of {len(tests)} tests pass", "", *_next(found)]


def _next(found: Sequence[Progress]) -> list[str]:
    """What is begun comes before what is not, and then the order of the problems counts."""
    todo = [problem for problem in found if problem.failed]
    if not todo:
        return ["All public tests pass. Hand it in:", f"    python -m {PACKAGE}.submit"]
    problem = next((one for one in todo if one.state != _UNWRITTEN), todo[0])
    test = next((one for one in problem.failed if _UNWRITTEN not in one.message), problem.failed[0])
    said = test.message.removeprefix("Failed: ").strip().splitlines()
    what = [f"    {said[0]}"] if said else []
    return [
        f"Next: {problem.number} {problem.title}, in {PACKAGE}/{problem.module}.py",
        *what,
        f"    pytest {_quoted(test.name)}",
    ]


def _points(points: float) -> str:
    """With one digit after the point, where it is not whole; never more than there is."""
    return f"{math.floor(round(10 * points, 6)) / 10:g}"


def _quoted(name: str) -> str:
    return f"'{name}'" if any(sign in name for sign in "[] ()") else name


def _workers() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores or 1, 4))


if __name__ == "__main__":
    main()
