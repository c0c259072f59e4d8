"""Where a class's submissions come from: a folder, Gradescope's export, git checkouts.

A folder holds one submission each: a folder or an archive, named after the student. Who handed it
in, and when, may stand in a submissions.csv beside them; of a git checkout the last commit says
when; of Gradescope's export its metadata says both.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import shutil
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path, PurePosixPath

import msgspec

from autograder.batch import checkout, gradescope_export
from autograder.batch.files import as_name
from autograder.batch.files import replace as replace_file
from autograder.batch.files import rows as table
from autograder.batch.people import Entry, Student
from autograder.intake import Limits
from autograder.text import safe_line

ROSTER = "submissions.csv"
_COLUMNS = ("submission", "student", "name", "email", "submitted_at")
_ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar", ".gz", ".rar", ".7z", ".bz2", ".xz")
_MOST_BYTES = Limits().file_bytes + 1  # of a module: so many, and it is refused for its size


class NoSubmissions(ValueError):
    """There is nothing to grade, or who handed it in cannot be told; the message says where."""


@dataclass(frozen=True)
class Class:
    """What was found: the entries, and what lies there and is none."""

    entries: tuple[Entry, ...]
    left_out: tuple[str, ...] = ()
    kind: str = "folder"


def find(path: Path, unpacked: Path) -> Class:
    """The submissions in a folder, or in a zip of Gradescope's.

    unpacked: a folder of ours, where what comes out of the zip is put.

    Raises:
        NoSubmissions: there are none, or what describes them cannot be read.
    """
    if path.is_file() and zipfile.is_zipfile(path):
        return _of_export_zip(path, unpacked)
    if not path.is_dir():
        raise NoSubmissions(
            f"{safe_line(str(path))} is neither a folder of submissions nor the zip that "
            "Gradescope's “export submissions” makes."
        )
    top = _single_folder_with(path, gradescope_export.NAME)
    if top is not None:
        metadata = _metadata((top / gradescope_export.NAME).read_bytes(), unpacked)
        found = {one.name: one for one in sorted(top.iterdir())}
        return _matched(metadata, found)
    return _of_folder(path)


def _of_folder(path: Path) -> Class:
    found, left_out = [], []
    for one in sorted(path.iterdir()):
        if one.name.startswith((".", "__MACOSX")) or one.name == ROSTER:
            continue
        if one.is_dir() or one.name.lower().endswith(_ARCHIVES):
            found.append(one)
        else:
            left_out.append(one.name)
    if not found:
        raise NoSubmissions(
            f"There are no submissions in {safe_line(str(path))}: no folders and no archives."
        )
    stems = Counter(_stem(one) for one in found)
    named = [one.name if stems[_stem(one)] > 1 else _stem(one) for one in found]
    entries = [
        Entry(as_name(name), one, (Student(name),), checkout.committed_at(one))
        for name, one in zip(named, found, strict=True)
    ]
    roster = path / ROSTER
    if roster.exists():
        entries = _as_the_roster_says(roster, entries)
    git = all((entry.path / ".git").exists() for entry in entries)
    return Class(tuple(entries), tuple(left_out), "git checkouts" if git else "folder")


def _stem(path: Path) -> str:
    """The name without what says that it is an archive."""
    if not path.is_dir():
        for suffix in _ARCHIVES:
            if path.name.lower().endswith(suffix):
                return path.name[: -len(suffix)] or path.name
    return path.name


# --- submissions.csv ------------------------------------------------------------------------------


def _as_the_roster_says(path: Path, entries: list[Entry]) -> list[Entry]:
    """Who and when, by submission; a submission of several students has several lines.

    Raises:
        NoSubmissions: a line cannot be understood, or names a submission that is not there.
    """
    by_file = {entry.path.name: entry for entry in entries}
    by_name = {entry.name: entry for entry in entries}
    students: dict[str, list[Student]] = {}
    times: dict[str, datetime] = {}
    try:
        columns, rows = table(path)
    except ValueError as error:
        raise NoSubmissions(str(error)) from None
    if not {"submission", "student"} <= set(columns) or not set(columns) <= set(_COLUMNS):
        raise NoSubmissions(
            f"{ROSTER} needs the columns submission and student, and may have "
            f"{', '.join(_COLUMNS[2:])}; it has {', '.join(columns) or 'none'}."
        )
    for number, row in rows:
        named, who = (row["submission"] or "").strip(), (row["student"] or "").strip()
        entry = by_file.get(named) or by_name.get(named)
        if entry is None or not who:
            why = "names no student" if entry else f"there is no submission {safe_line(named)!r}"
            raise NoSubmissions(f"{ROSTER}, line {number}: {why}.")
        student = Student(who, (row.get("name") or "").strip(), (row.get("email") or "").strip())
        students.setdefault(entry.name, []).append(student)
        if given := (row.get("submitted_at") or "").strip():
            times[entry.name] = _time(given, f"{ROSTER}, line {number}")
    return [
        replace(
            entry,
            students=tuple(students.get(entry.name, entry.students)),
            submitted_at=times.get(entry.name, entry.submitted_at),
        )
        for entry in entries
    ]


def _time(given: str, where: str) -> datetime:
    try:
        time = datetime.fromisoformat(given)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise NoSubmissions(
            f"{where}: {safe_line(given)!r} is not a time with its zone, such as "
            "2026-03-01T23:00:00-07:00."
        )
    return time


# --- Gradescope -----------------------------------------------------------------------------------


def _metadata(content: bytes, unpacked: Path) -> dict[str, gradescope_export.Submitted]:
    """What was read is kept, since a class of hundreds with all its results takes a minute."""
    kept = unpacked / f"{hashlib.sha256(content).hexdigest()}.json"
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(kept.read_bytes(), type=dict[str, gradescope_export.Submitted])
    try:
        found = gradescope_export.read(content)
    except ValueError as error:
        raise NoSubmissions(f"{gradescope_export.NAME}: {error}.") from None
    unpacked.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(kept, msgspec.json.encode(found))
    return found


def _single_folder_with(path: Path, name: str) -> Path | None:
    """The folder itself or the single one in it, if it holds a file of that name."""
    inner = [one for one in path.iterdir() if one.is_dir() and not one.name.startswith((".", "__"))]
    for folder in (path, *(inner if len(inner) == 1 else [])):
        if (folder / name).is_file():
            return folder
    return None


def _of_export_zip(path: Path, unpacked: Path) -> Class:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        with zipfile.ZipFile(path) as archive:
            top = _top(archive)
            metadata = _metadata(archive.read(str(top / gradescope_export.NAME)), unpacked)
            found = _unpacked(archive, top, unpacked / digest)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise NoSubmissions(f"{safe_line(str(path))} cannot be unpacked: {error}.") from None
    return _matched(metadata, found)


def _top(archive: zipfile.ZipFile) -> PurePosixPath:
    """The folder in it that the metadata lies in."""
    described = [
        name
        for name in archive.namelist()
        if PurePosixPath(name).name == gradescope_export.NAME and "__MACOSX" not in name
    ]
    if not described:
        raise NoSubmissions(
            f"There is no {gradescope_export.NAME} in the zip, so it is not what Gradescope's "
            "“export submissions” makes. Unpack other archives into a folder, one submission each."
        )
    return min(map(PurePosixPath, described), key=lambda name: len(name.parts)).parent


def _unpacked(archive: zipfile.ZipFile, top: PurePosixPath, target: Path) -> dict[str, Path]:
    """The submissions, each in a folder of its own in `target`; unpacked unless they lie there.

    They appear there at once, whole: another batch may do the same at the same time.
    """
    folders = _by_folder(archive, top)
    if not target.is_dir():
        draft = Path(tempfile.mkdtemp(dir=target.parent, prefix="."))
        try:
            for folder, members in folders.items():
                (draft / as_name(folder)).mkdir()
                for inside, member in members:
                    _write(archive, member, draft / as_name(folder), inside)
            draft.rename(target)
        except OSError:
            if not target.is_dir():  # else another batch was first
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return {folder: target / as_name(folder) for folder in folders}


def _by_folder(
    archive: zipfile.ZipFile, top: PurePosixPath
) -> dict[str, list[tuple[PurePosixPath, zipfile.ZipInfo]]]:
    """The members of each submission, with their paths in it."""
    folders: dict[str, list[tuple[PurePosixPath, zipfile.ZipInfo]]] = {}
    for member in archive.infolist():
        path = PurePosixPath(member.filename)
        if path.is_relative_to(top):
            folder, *inside = path.relative_to(top).parts or ("",)
            if inside and not member.is_dir() and ".." not in inside:
                folders.setdefault(folder, []).append((PurePosixPath(*inside), member))
    return folders


def _write(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, inside: PurePosixPath
) -> None:
    """Of modules as much as is ever read, of all else the name.

    What cannot be written under its own name is no module either.
    """
    path = target / inside
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("xb")
    except (FileExistsError, NotADirectoryError, ValueError):
        return
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return
        raise
    with file:
        if path.suffix == ".py":
            with archive.open(member) as packed:
                file.write(packed.read(_MOST_BYTES))


def _matched(metadata: dict[str, gradescope_export.Submitted], found: dict[str, Path]) -> Class:
    """Metadata and folders, together; a student whose folder is empty has handed in nothing."""
    entries = [
        Entry(as_name(name), found[name], one.students, one.submitted_at)
        for name, one in metadata.items()
        if name in found
    ]
    if not entries:
        raise NoSubmissions(f"None of the submissions in {gradescope_export.NAME} is there.")
    left_out = [f"{name} (not in the metadata)" for name in _folders(found) if name not in metadata]
    left_out += [f"{name} (has no files)" for name in metadata if name not in found]
    return Class(tuple(entries), tuple(left_out), "Gradescope's export")


def _folders(found: dict[str, Path]) -> Iterator[str]:
    return (name for name, path in found.items() if path.is_dir() and not name.startswith("."))
