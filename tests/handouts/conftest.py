"""What the tests of the handout share: a student's folder, in which everything is written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from autograder.paths import REFERENCE, ROOT
from handouts.build import write_data

_STUDENTS = ("multirank", "tests/assignment", "pyproject.toml", "Makefile", "constraints.txt")
_AUTOGRADER = ".venv/bin/autograder"
_TRAIN = """
import torch
import torch.distributed as dist

def main():
    x = torch.ones(4)
    dist.all_reduce(x)
"""


@pytest.fixture(scope="session", autouse=True)
def _data() -> None:
    """What Typst reads."""
    write_data()


class Folder:
    """A student's folder in which everything is written: the reference as `assignment`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        unwanted = shutil.ignore_patterns("__pycache__", "course.toml")
        for name in _STUDENTS:
            source, target = ROOT / name, path / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=unwanted)
            else:
                shutil.copyfile(source, target)
        shutil.copytree(REFERENCE, path / "assignment", ignore=unwanted)
        (path / "train.py").write_text(_TRAIN)

    def run(self, command: Sequence[str] | str) -> subprocess.CompletedProcess[str]:
        """Runs a command there, as a student would with the environment activated; staff's here."""
        bin_ = Path(sys.executable).parent
        of_staff = isinstance(command, str) and command.startswith(_AUTOGRADER)
        if isinstance(command, str):
            command = ["bash", "-c", command.replace(_AUTOGRADER, "python -m autograder")]
        return subprocess.run(
            command,
            cwd=ROOT if of_staff else self.path,
            env=os.environ
            | {
                "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT if of_staff else self.path),
                "AUTOGRADER_PRIVATE": str(self.path / "private"),
                "GLOO_SOCKET_IFNAME": "lo",
                "PYTEST_ADDOPTS": "-p no:cacheprovider",
            },
            capture_output=True,
            text=True,
            timeout=600,
        )


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The folder, once for all tests."""
    return Folder(tmp_path_factory.mktemp("student"))
