"""Where the rooms of this repository are, seen from the grader."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "reference"
ASSIGNMENT = ROOT / "assignment"
CHECKS = ROOT / "autograder" / "checks"
CASES = ROOT / "autograder" / "cases"
ORACLES = ROOT / "autograder" / "oracles"


def module_files(directory: Path) -> dict[str, bytes]:
    """The Python modules in a folder of our own, as `{file name: bytes}`."""
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.py"))}
