"""What the tests of this folder share: options, the check, and the summary at the end.

    pytest tests/assignment/test_collectives.py                 all tests of one module
    pytest tests/assignment -k all_reduce                       those of one function
    pytest tests/assignment -k random --fuzz 200                random cases as well
    pytest tests/assignment -k all_reduce --timeline pictures   draws each test's runs

Each test is worth a share of a problem: `@pytest.mark.problem("all_reduce", share=0.2)`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import tomllib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import multirank

from .judge import Check
from .running import Subject, Worlds

_DRAWN = 4  # runs of a test, at most


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("assignment")
    group.addoption(
        "--implementation",
        default="assignment",
        metavar="PACKAGE",
        help="the package that is tested (default: assignment)",
    )
    group.addoption(
        "--fuzz",
        type=int,
        default=0,
        metavar="N",
        help="compare each collective with torch.distributed in N random cases",
    )
    group.addoption(
        "--fuzz-seed",
        type=int,
        default=None,
        metavar="SEED",
        help="where the random cases begin; a failure names the seed that repeats it",
    )
    group.addoption(
        "--timeline",
        type=Path,
        default=None,
        metavar="DIR",
        help="draw what each test ran, as one page a test in this folder",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--fuzz", 0) < 0:
        raise pytest.UsageError("--fuzz: the number of random cases cannot be negative")
    folder: Path | None = config.getoption("--timeline", None)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise pytest.UsageError(f"--timeline: {folder} is a file; give a folder for the pages")
    config.addinivalue_line(
        "markers", "problem(id, share): the problem that a test belongs to, and its share of it"
    )
    if not hasattr(config, "workerinput"):  # the workers of pytest-xdist use what we start
        multirank.start()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if problem := item.get_closest_marker("problem"):
            item.user_properties.append(("problem", problem.args[0]))
            item.user_properties.append(("share", problem.kwargs["share"]))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """One line for each problem: how many of its tests pass."""
    if config.getoption("no_summary"):
        return
    tallies: dict[str, list[bool]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            if problem := dict(report.user_properties).get("problem"):
                tallies.setdefault(str(problem), []).append(outcome == "passed")
    if not tallies:
        return
    terminalreporter.section("problems")
    numbers = _numbers(_package(config))
    width = max(map(len, tallies))
    for name in sorted(tallies, key=lambda name: (numbers.get(name, ""), name)):
        passed = tallies[name]
        line = f"{numbers.get(name, ''):<4} {name:<{width}}  "
        line += f"{sum(passed)} of {len(passed)} public tests pass"
        terminalreporter.write_line(line, green=all(passed), red=not all(passed))


@pytest.fixture
def implementation(pytestconfig: pytest.Config) -> str:
    """The name of the package that is tested."""
    return _package(pytestconfig)


@pytest.fixture(scope="session")
def worlds() -> Iterator[Worlds]:
    """Live ranks, ended when the last test is done."""
    with contextlib.closing(Worlds()) as worlds:
        yield worlds


@pytest.fixture(autouse=True)
def _drawn(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Draws what a test ran, if that was asked for; of many runs the last."""
    folder: Path | None = pytestconfig.getoption("--timeline", None)
    if folder is None:
        yield
        return
    runs: deque[multirank.Run] = deque(maxlen=_DRAWN)
    call = multirank.World.call

    def noted(*args: Any, **kwargs: Any) -> multirank.Run:
        try:
            runs.append(call(*args, **kwargs))
        except multirank.RanksFailed as failed:
            runs.append(failed.run)
            raise
        return runs[-1]

    monkeypatch.setattr(multirank.World, "call", noted)
    yield
    if runs:
        folder.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^\w.-]+", "_", f"{request.path.stem}-{request.node.name}")[:150]
        titles = [request.node.name] * len(runs)
        multirank.timeline(*runs, titles=titles).save(folder / f"{name}.html")


@pytest.fixture
def check(implementation: str, worlds: Worlds) -> Check:
    """Checks the functions of collectives.py."""
    return Check(Subject(implementation, "collectives"), worlds)


def _package(config: pytest.Config) -> str:
    # Where pytest reads this file too late to know our options, they have their defaults.
    return str(config.getoption("--implementation", "assignment"))


def _numbers(package: str) -> dict[str, str]:
    """The problems' numbers by their ids, from the package's list of problems."""
    spec = importlib.util.find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or []:
        file = Path(folder) / "problems.toml"
        if file.is_file():
            problems = tomllib.loads(file.read_text(encoding="utf-8"))["problem"]
            return {problem["id"]: problem["number"] for problem in problems}
    return {}
