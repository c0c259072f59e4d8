"""The public tests, run on a variant as its student would run them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autograder.grading import MEDDLING, without_variables
from autograder.paths import REFERENCE, ROOT

_PACKAGE = "solution_under_test"
_TIMEOUT = 300.0  # seconds


@dataclass(frozen=True)
class PublicRun:
    """How the public tests of one module ended.

    passed, failed: names of the tests.
    """

    passed: frozenset[str]
    failed: frozenset[str]


class PublicTestsBroken(RuntimeError):
    """The public tests could not be run at all."""


def run_public_tests(files: Mapping[str, bytes], module: str) -> PublicRun:
    """Runs tests/assignment/test_MODULE.py on a package made of the files.

    Raises PublicTestsBroken when pytest did not get as far as running tests.
    """
    with tempfile.TemporaryDirectory(prefix="autograder-public-") as directory:
        package = Path(directory) / _PACKAGE
        package.mkdir()
        for name, content in files.items():
            (package / name).write_bytes(content)
        (package / "problems.toml").write_bytes((REFERENCE / "problems.toml").read_bytes())
        results = Path(directory) / "results.xml"
        with without_variables(MEDDLING):
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "pytest", f"tests/assignment/test_{module}.py"),
                    f"--implementation={_PACKAGE}",
                    *(f"--junitxml={results}", "-q", "-p", "no:cacheprovider"),
                ],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": directory},
                capture_output=True,
                text=True,
                timeout=_TIMEOUT,
                check=False,
            )
        if done.returncode not in (0, 1) or not results.is_file():
            raise PublicTestsBroken(f"{done.stdout}\n{done.stderr}".strip()[-4000:])
        return _read(results)


def _read(results: Path) -> PublicRun:
    passed, failed = set(), set()
    for case in ElementTree.parse(results).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(str(case.get("name")))
        elif case.find("skipped") is None:
            passed.add(str(case.get("name")))
    return PublicRun(frozenset(passed), frozenset(failed))
