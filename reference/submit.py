"""Hands in: checks your files, runs the public tests, and writes the archive to upload.

    python -m assignment.submit                    # writes submission.zip
    python -m assignment.submit --out mine.zip

All of it is given. The archive is written whatever the tests say: what is not right yet costs its
points and no others.
"""

from __future__ import annotations

import argparse
import keyword
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import progress

_HERE = Path(__file__).resolve().parent
PACKAGE = _HERE.name
# What came with the assignment beside the modules that you write in.
GIVEN = ("__init__", "bandwidth_report", "loglog", "progress", "schedule_view", "submit")
# What the grader takes, at most.
FILES, FILE_KIB, TOTAL_KIB = 40, 256, 2048
_IMPORT_SECONDS = 60
_NOT_YOURS = ("problems.toml", "__pycache__")  # left out without a word


@dataclass(frozen=True)
class Files:
    """What lies in the folder.

    taken: the modules that go into the archive, in its order.
    missing: modules that the assignment asks for and that are not there.
    own: those of the taken ones that are further modules of yours.
    left_out: what does not go in, by name, with the reason.
    """

    taken: list[Path]
    missing: list[str]
    own: list[str]
    left_out: dict[str, str]


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog=f"python -m {PACKAGE}.submit", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--out", type=Path, default=Path("submission.zip"), help="the archive")
    asked = parser.parse_args(arguments)
    wanted = list(dict.fromkeys(problem.module for problem in progress.problems()))
    files = look(_HERE, wanted)
    if len(files.missing) == len(wanted):
        sys.exit(f"Nothing of the assignment is in {PACKAGE}/; there is nothing to hand in.")
    broken = cannot_be_imported([path.stem for path in files.taken if path.stem in wanted])
    try:
        print("\n".join(progress.report(progress.measure())))
    except progress.NoResults as error:
        print(error)
    write(asked.out, files.taken)
    print("\n" + "\n".join([*warnings(files, broken), *contents(asked.out, files)]))


def look(folder: Path, wanted: Sequence[str]) -> Files:
    """What of the folder is handed in. wanted: the assignment's modules, without ".py"."""
    taken: list[Path] = []
    left_out: dict[str, str] = {}
    size = 0
    entries = [path for path in sorted(folder.iterdir()) if path.name not in _NOT_YOURS]
    for path in sorted(entries, key=lambda path: (path.stem not in wanted, path.name)):
        if why := _why_not(path, len(taken), size):
            left_out[path.name + ("/" if path.is_dir() else "")] = why
            continue
        taken.append(path)
        size += path.stat().st_size
    stems = [path.stem for path in taken]
    own = [path.name for path in taken if path.stem not in (*wanted, *GIVEN)]
    return Files(taken, [f"{name}.py" for name in wanted if name not in stems], own, left_out)


def _why_not(path: Path, count: int, size: int) -> str:
    """Why a file is left out; "" when it is taken."""
    if path.is_dir() and path.name == "examples":
        return "they came with the assignment; the grader does not need them"
    if path.is_dir():
        return f"a folder; put modules directly into {PACKAGE}/"
    if path.suffix != ".py":
        return "not a Python module"
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]{0,99}", path.stem) or keyword.iskeyword(path.stem):
        return "not a name that Python can import"
    if not path.is_file():
        return "cannot be read"
    if count == FILES:
        return f"more than {FILES} modules"
    if path.stat().st_size > FILE_KIB * 1024:
        return f"larger than {FILE_KIB} KiB"
    if size + path.stat().st_size > TOTAL_KIB * 1024:
        return f"more than {TOTAL_KIB // 1024} MiB in all modules together"
    return ""


_IMPORTS = """
import importlib, sys
sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
for name in sys.argv[2:]:
    print(f"\\0{name}\\0\\0", flush=True)
    try:
        importlib.import_module(f"{sys.argv[1]}.{name}")
    except BaseException as error:
        print(f"\\0{name}\\0{type(error).__name__}: {error}\\0", flush=True)
print("\\0\\0\\0", flush=True)
"""


def cannot_be_imported(modules: Sequence[str]) -> dict[str, str]:
    """The modules that cannot be imported, with what they say. In another process; where one of
    them ends it, those after it get a new one."""
    broken: dict[str, str] = {}
    left = list(modules)
    while left:
        command = [sys.executable, "-c", _IMPORTS, PACKAGE, *left]
        why = "Python dies when it is imported"
        try:
            told = subprocess.run(
                command, cwd=_HERE.parent, capture_output=True, timeout=_IMPORT_SECONDS
            ).stdout
        except subprocess.TimeoutExpired as late:
            told = late.stdout or b""
            why = f"importing it takes over {_IMPORT_SECONDS} s"
        found = re.findall("\0(.*?)\0(.*?)\0", told.decode(errors="replace"), re.DOTALL)
        said = [(name, error) for name, error in found if name in ("", *left)]  # and no module's
        broken |= {name: error.partition("\n")[0] for name, error in said if error}
        last = said[-1][0] if said else left[0]
        if not last:  # the end
            break
        broken[last] = why
        left = left[left.index(last) + 1 :]
    return broken


def write(out: Path, taken: Sequence[Path]) -> None:
    """The archive, with the modules under `assignment/`."""
    # A file may be dated before 1980, where a zip's dates begin: then it is dated that.
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for path in taken:
            archive.write(path, f"assignment/{path.name}")


def warnings(files: Files, broken: dict[str, str]) -> list[str]:
    """Lines on what costs points."""
    lines = [f"MISSING  {name}: its problems get no points" for name in files.missing]
    lines += [
        f"BROKEN   {name}.py cannot be imported, its problems get no points: {why}"
        for name, why in broken.items()
    ]
    return [*lines, ""] if lines else []


def contents(out: Path, files: Files) -> list[str]:
    """Lines on what is in the archive and what is not."""
    given = sum(path.stem in GIVEN for path in files.taken)
    yours = len(files.taken) - given
    lines = [f"{out}: {yours} modules of yours, {given} that came with the assignment. Upload it."]
    if files.own:
        lines.append(f"  with your own: {', '.join(files.own)}")
    lines += [f"  left out: {name} ({why})" for name, why in files.left_out.items()]
    return lines


if __name__ == "__main__":
    main()
