"""The allow-list: what students get, file by file. What is not named here does not ship.

The stubs are made anew from the reference, whatever lies in assignment/. README.md, pyproject.toml
and .gitignore are the students' own (the folder student/ holds them); constraints.txt is the part
of ours that their packages need.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from autograder import manifest as manifests
from autograder import stubs
from autograder.paths import REFERENCE, ROOT
from autograder.release import handout
from autograder.release.leaks import CANARY

# Folders of ours that students get, with what of them: as they are.
SHIPPED = {
    "multirank": "**/*.py",
    "tests/assignment": "*.py",
    ".devcontainer": "devcontainer.json",
}
_STUDENT = Path(__file__).parent / "student"
_TABLE = "<!-- The table of problems -->\n"


class ReleaseError(Exception):
    """The archive cannot be made; the text says why, and what to do."""


def files(*, solution: bool = False) -> dict[str, bytes]:
    """Everything in the archive, by path below its top folder.

    solution: with the reference as the package `solution` beside the stubs, for after the deadline.

    Raises ReleaseError, StubError and ManifestError.
    """
    found = {f"assignment/{name}": data for name, data in stubs.generate(REFERENCE).items()}
    found["assignment/problems.toml"] = _problems().encode()
    if solution:
        found |= {f"solution/{name}": data for name, data in _solution().items()}
    for folder, pattern in SHIPPED.items():
        found |= {
            path.relative_to(ROOT).as_posix(): path.read_bytes()
            for path in sorted((ROOT / folder).glob(pattern))
        }
    return found | {
        **handout.files(),
        "README.md": _readme(solution).encode(),
        "pyproject.toml": (_STUDENT / "pyproject.toml").read_bytes(),
        ".gitignore": (_STUDENT / "gitignore").read_bytes(),
        "constraints.txt": constraints().encode(),
    }


def uncommitted() -> list[str]:
    """Files that would ship, or that the handout is built from, and are not as they were
    committed; in a git checkout only."""
    if not (ROOT / ".git").exists():
        return []
    shipped = [*SHIPPED, "reference", "handouts", "autograder/release", "constraints.txt"]
    listing = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=all", "--", *shipped],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line[3:] for line in listing.stdout.splitlines()]


def constraints() -> str:
    """The lines of constraints.txt that what students install needs, directly or in turn.

    Raises ReleaseError where one of these packages is not installed here, so that what it needs in
    turn is not known.
    """
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {canonicalize_name(line.partition("==")[0]): line for line in lines if "==" in line}
    wanted: set[NormalizedName] = set()
    todo = [
        canonicalize_name(Requirement(text).name)
        for text in tomllib.loads((_STUDENT / "pyproject.toml").read_text())["project"][
            "dependencies"
        ]
    ]
    while todo:
        name = todo.pop()
        if name in wanted or name not in pins:  # not pinned: not installed by CI either
            continue
        wanted.add(name)
        try:
            needs = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            raise ReleaseError(
                f"{name} is not installed, so that what it needs is not known; run make venv"
            ) from None
        todo += [
            canonicalize_name(need.name)
            for need in needs
            if need.marker is None or "extra" not in str(need.marker)
        ]
    return "".join(f"{pins[name]}\n" for name in sorted(wanted))


def _problems() -> str:
    """problems.toml as course.toml changes it: without what is left out, and with its points."""
    on = {problem.id: problem for problem in manifests.load(REFERENCE).problems}
    text = (REFERENCE / "problems.toml").read_text(encoding="utf-8")
    kept = []
    for table in re.split(r"^(?=\[\[)", text, flags=re.MULTILINE):
        problem = tomllib.loads(table).get("problem")
        if problem is None:
            kept.append(table)
        elif (id := problem[0]["id"]) in on:
            points = f"points = {float(on[id].points):g}"
            kept.append(re.sub("^points = .*$", points, table, flags=re.MULTILINE))
    return "".join(kept)


def _solution() -> dict[str, bytes]:
    """The reference's modules, with the marks that show what students were to write."""
    paths = sorted([*REFERENCE.glob("*.py"), *REFERENCE.glob("[!_.]*/*.py")])
    sources = {path.relative_to(REFERENCE).as_posix(): path.read_bytes() for path in paths}
    cleaned = {
        name: b"".join(
            line for line in source.splitlines(keepends=True) if CANARY.encode() not in line
        )
        for name, source in sources.items()
    }
    return cleaned | {"problems.toml": _problems().encode()}


def _readme(solution: bool) -> str:
    manifest = manifests.load(REFERENCE)
    rows = [
        f"| {problem.number} {problem.title} | {float(problem.points):g} | {problem.module}.py |\n"
        for problem in manifest.problems
    ]
    table = "".join(["| problem | points | file |\n", "|---|---|---|\n", *rows])
    text = (_STUDENT / "README.md").read_text(encoding="utf-8")
    if _TABLE not in text:
        raise ReleaseError(f"student/README.md has no line {_TABLE.strip()!r}")
    text = text.replace(_TABLE, table)
    return text + ((_STUDENT / "SOLUTION.md").read_text(encoding="utf-8") if solution else "")
