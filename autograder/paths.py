"""Where the rooms of this repository are, seen from the grader, and where its secret is."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "reference"
ASSIGNMENT = ROOT / "assignment"
CHECKS = ROOT / "autograder" / "checks"
CASES = ROOT / "autograder" / "cases"
ORACLES = ROOT / "autograder" / "oracles"
SECRET_NAME = "course-secret"


def module_files(directory: Path) -> dict[str, bytes]:
    """The Python modules in a folder of our own, as `{file name: bytes}`."""
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.py"))}


def private_directory() -> Path:
    """Where the course's secret is kept, unless AUTOGRADER_PRIVATE says otherwise."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(os.environ.get("AUTOGRADER_PRIVATE") or Path(home) / "autograder")
