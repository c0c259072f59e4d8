"""Takes a submission in: the bytes of its modules, whatever else lies there named as ignored.

A folder, git checkout, zip or tar from somebody who may mean harm. Nothing is unpacked to disk, no
link is followed, and everything is read through limits of number and size. What is wrong with a
submission is said in sentences for the student.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import keyword
import os
import re
import stat
import tarfile
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, Protocol

from autograder.text import safe_line

KIB, MIB = 1024, 1024 * 1024
_ASSIGNMENT = "assignment"
_EXTENDED = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_DEPTH = 3  # enclosing folder / assignment / module


@dataclass(frozen=True)
class Limits:
    """How much a submission may hold. Sizes in bytes."""

    files: int = 40
    file_bytes: int = 256 * KIB
    total_bytes: int = 2 * MIB
    entries: int = 1000
    """Of an archive, or of the folders that are looked into."""
    archive_bytes: int = 32 * MIB
    unpacked_bytes: int = 64 * MIB
    ratio: int = 100
    """Unpacked over packed size, from `ratio_from` unpacked bytes on."""
    ratio_from: int = 8 * MIB
    ignored: int = 50
    """How many ignored names are listed; the rest are counted."""


class NoSuchSubmission(Exception):
    """There is nothing to grade at the path: a mistake of the caller's, not of a student's."""


class UnusableSubmission(Exception):
    """Nothing in it can be graded. The message is a sentence for the student."""


@dataclass(frozen=True)
class Ignored:
    """Something that came along and was not taken. Both fields are fit to show."""

    name: str
    why: str


@dataclass(frozen=True)
class Submission:
    """files: module file name, such as "collectives.py", to its bytes, just as they came."""

    files: dict[str, bytes]
    ignored: list[Ignored]
    source: str
    """How it was given, such as "zip archive, modules under hw1/assignment"."""

    @property
    def digest(self) -> str:
        """SHA-256 over names and bytes, in hex: the same for the same modules however packed."""
        total = hashlib.sha256()
        for name, content in sorted(self.files.items()):
            total.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(content).digest())
        return total.hexdigest()


def take(path: Path, known: Collection[str], limits: Limits | None = None) -> Submission:
    """The submission at `path`.

    known: the names of the assignment's modules, without ".py".

    Modules are taken from one place: the top, else `assignment/`, else the same two within a single
    enclosing folder; the first that holds a known module. Other modules of the student's beside
    them come along, within the limits.

    Raises NoSuchSubmission and UnusableSubmission.
    """
    limits = limits or Limits()
    try:
        with ExitStack() as opened:
            top, refused, source = _open(path, limits, opened)
            return _take(top, source, refused, known, limits)
    except FileNotFoundError:
        raise NoSuchSubmission(f"There is no folder or file {safe_line(str(path))}.") from None
    except OSError as error:
        shown = safe_line(str(path))
        raise NoSuchSubmission(f"{shown} cannot be read: {error.strerror}.") from None


# --- places: a folder on disk or in an archive -------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    """Something with a name in a place. `read(n)` returns at most n bytes of a file."""

    kind: Literal["file", "folder", "refused"]
    why: str = ""
    size: int = 0
    read: Callable[[int], bytes] = field(default=lambda limit: b"", repr=False)


class _Refused(Exception):
    """A file that turns out not to be readable as a module; the message says why."""


class _Place(Protocol):
    def entries(self) -> Mapping[str, _Entry]: ...

    def enter(self, name: str) -> _Place: ...


_LINK = "a link; links are not followed"
_NOT_REGULAR = "not a regular file"


class _Folder:
    """A folder on disk, held open, so that nothing can be swapped for a link on the way."""

    def __init__(self, fd: int, limits: Limits, opened: ExitStack) -> None:
        self._fd, self._limits, self._opened = fd, limits, opened
        self._entries: dict[str, _Entry] | None = None
        opened.callback(os.close, fd)

    def entries(self) -> Mapping[str, _Entry]:
        if self._entries is None:
            self._entries = {}
            with os.scandir(self._fd) as found:
                for item in found:
                    if len(self._entries) >= self._limits.entries:
                        raise UnusableSubmission(
                            f"The folder holds more than {self._limits.entries} files and folders. "
                            "Hand in the assignment's modules only."
                        )
                    status = item.stat(follow_symlinks=False)
                    self._entries[item.name] = self._entry(item.name, status)
        return self._entries

    def _entry(self, name: str, status: os.stat_result) -> _Entry:
        if stat.S_ISDIR(status.st_mode):
            return _Entry("folder")
        if why := _not_plain(status):
            return _Entry("refused", why)
        return _Entry("file", size=status.st_size, read=lambda limit: self._read(name, limit))

    def _read(self, name: str, limit: int) -> bytes:
        # Looked at again once open: it may have been swapped since. A FIFO would block without
        # O_NONBLOCK.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fd = os.open(name, flags, dir_fd=self._fd)
        except OSError as error:
            raise _Refused(f"cannot be read: {error.strerror}") from None
        try:
            if why := _not_plain(os.fstat(fd)):
                raise _Refused(why)
            with os.fdopen(fd, "rb", closefd=False) as file:
                return file.read(limit)
        finally:
            os.close(fd)

    def enter(self, name: str) -> _Place:
        """A folder that cannot be opened, or is a link by now, is as good as empty."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(name, flags, dir_fd=self._fd)
        except OSError:
            return _Tree()
        return _Folder(fd, self._limits, self._opened)


def _not_plain(status: os.stat_result) -> str:
    """Why it is no plain file of one name; empty when it is."""
    if stat.S_ISLNK(status.st_mode):
        return _LINK
    if not stat.S_ISREG(status.st_mode):
        return _NOT_REGULAR
    if status.st_nlink != 1:
        return "a file with a second name elsewhere (a hard link)"
    return ""


class _Tree:
    """The folders of an archive, from its table of contents."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._folders: dict[str, _Tree] = {}

    def entries(self) -> Mapping[str, _Entry]:
        return self._entries

    def enter(self, name: str) -> _Tree:
        return self._folders[name]

    def add(self, parts: list[str], entry: _Entry) -> None:
        """Raises UnusableSubmission when the name is there already."""
        *folders, name = parts
        tree = self
        for folder in folders:
            tree._entries.setdefault(folder, _Entry("folder"))
            tree = tree._folders.setdefault(folder, _Tree())
        if entry.kind == "folder":
            tree._entries.setdefault(name, entry)
            tree._folders.setdefault(name, _Tree())
        elif name in tree._entries:
            raise UnusableSubmission(
                f"The archive holds {safe_line('/'.join(parts))} more than once, and which one "
                "counts is not clear. Pack it anew."
            )
        else:
            tree._entries[name] = entry


# --- opening -------------------------------------------------------------------------------------


def _open(path: Path, limits: Limits, opened: ExitStack) -> tuple[_Place, list[Ignored], str]:
    """The top of the submission, what of it was refused at once, and how it was given."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(fd)
    if stat.S_ISDIR(status.st_mode):
        folder = _Folder(fd, limits, opened)
        return folder, [], "git checkout" if ".git" in folder.entries() else "folder"
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(status.st_mode):
            raise UnusableSubmission("This is neither a folder nor an archive.")
        packed = file.read(min(status.st_size, limits.archive_bytes) + 1)
    if len(packed) > limits.archive_bytes:
        raise UnusableSubmission(
            f"The archive is larger than {_size(limits.archive_bytes)}. Hand in the assignment's "
            "modules only, without data, environments or .git."
        )
    if packed.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        kind, contents = "zip archive", _zip_contents(packed, limits)
    elif packed.startswith(b"\x1f\x8b"):
        unzipped = gzip.GzipFile(fileobj=io.BytesIO(packed))
        kind, contents = "tar.gz archive", _tar_contents(unzipped, len(packed), limits)
    elif packed[257:262] == b"ustar":
        kind, contents = "tar archive", _tar_contents(io.BytesIO(packed), len(packed), limits)
    else:
        raise UnusableSubmission(
            "This file is not a zip, tar or tar.gz archive, or its beginning is damaged. Hand in "
            "a folder or one of these."
        )
    return *_fill(contents, kind), kind


def _fill(contents: Iterator[tuple[str, _Entry]], kind: str) -> tuple[_Tree, list[Ignored]]:
    """The tree of an archive, and the members whose names would lead out of it."""
    tree, refused = _Tree(), []
    try:
        for name, entry in contents:
            name = name.replace("\\", "/")
            parts = [part for part in name.split("/") if part not in ("", ".")]
            if name.startswith("/") or ".." in parts or re.match("[A-Za-z]:", name):
                refused.append(Ignored(_shown(name), "a path that leads out of the archive"))
            elif "\0" in name:
                refused.append(Ignored(_shown(name), "not a possible name of a file"))
            elif len(parts) > _DEPTH:
                tree.add(parts[:_DEPTH], _Entry("folder"))
            elif parts:
                tree.add(parts, entry)
    except UnusableSubmission:
        raise
    # The bytes are a stranger's, and the parsers raise whatever they stumble over.
    except Exception:
        raise UnusableSubmission(
            f"The {kind} is damaged and cannot be read. Pack it anew, and check that it opens."
        ) from None
    return tree, refused


def _zip_contents(packed: bytes, limits: Limits) -> Iterator[tuple[str, _Entry]]:
    # Counted by signature first: parsing millions of entries would fill the memory.
    if packed.count(b"PK\x01\x02") > 20 * limits.entries:
        raise _too_many(limits)
    archive = zipfile.ZipFile(io.BytesIO(packed))
    members = archive.infolist()
    if len(members) > limits.entries:
        raise _too_many(limits)
    if sum(member.file_size for member in members) > _most_unpacked(len(packed), limits):
        raise _too_large(limits)
    for member in members:
        if member.flag_bits & 0x1:
            raise UnusableSubmission(
                "The zip archive is protected by a password. Hand it in without one."
            )
        yield member.orig_filename, _zip_entry(archive, member)


def _zip_entry(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> _Entry:
    file_type = stat.S_IFMT(member.external_attr >> 16)
    if file_type == stat.S_IFLNK:
        return _Entry("refused", _LINK)
    if member.is_dir() or file_type == stat.S_IFDIR:
        return _Entry("folder")
    if file_type not in (0, stat.S_IFREG):
        return _Entry("refused", _NOT_REGULAR)
    # The other methods of compression are rare, and cannot be unpacked within a bound.
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return _Entry("refused", "compressed in an unusual way; use an ordinary zip")

    def read(limit: int) -> bytes:
        try:
            with archive.open(member) as file:
                return file.read(limit)
        except Exception:
            raise _Refused("damaged in the archive") from None

    return _Entry("file", size=member.file_size, read=read)


def _tar_contents(
    stream: IO[bytes] | gzip.GzipFile, packed_size: int, limits: Limits
) -> Iterator[tuple[str, _Entry]]:
    bounded = _Bounded(stream, _most_unpacked(packed_size, limits), limits)
    with tarfile.open(fileobj=bounded, mode="r|", tarinfo=_bounded_headers()) as archive:
        for count, member in enumerate(archive, 1):
            if count > limits.entries:
                raise _too_many(limits)
            yield member.name, _tar_entry(archive, member, limits)


def _tar_entry(archive: tarfile.TarFile, member: tarfile.TarInfo, limits: Limits) -> _Entry:
    """Read right away where it may be a module: the archive is a stream and passes once."""
    if member.isdir():
        return _Entry("folder")
    if member.issym() or member.islnk():
        return _Entry("refused", _LINK)
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        return _Entry("refused", _NOT_REGULAR)
    content = b""
    if member.name.endswith(".py") and member.size <= limits.file_bytes:
        file = archive.extractfile(member)
        assert file is not None
        content = file.read()
    return _Entry("file", size=member.size, read=lambda limit: content[:limit])


def _bounded_headers() -> type[tarfile.TarInfo]:
    """Refuses extended headers beyond any honest size: tarfile takes a long time over those."""
    left = 2 * MIB

    class Header(tarfile.TarInfo):
        @classmethod
        def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Header:
            header = super().frombuf(buf, encoding, errors)
            if header.type in _EXTENDED:
                nonlocal left
                left -= header.size
                if left < 0 or header.size > 8 * KIB:
                    raise tarfile.ReadError("extended headers too large")
            return header

    return Header


class _Bounded(io.RawIOBase):
    """A stream that says no after so many bytes, whatever the archive's headers declare."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, most: int, limits: Limits) -> None:
        self._stream, self._left, self._limits = stream, most, limits
        self._reads_past_end = 0

    def read(self, size: int = -1, /) -> bytes:
        content = self._stream.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise _too_large(self._limits)
        # To skip a member that declares a terabyte, tarfile reads on and on at the end.
        self._reads_past_end += not content
        if self._reads_past_end > 10:
            raise EOFError
        return content


def _most_unpacked(packed_size: int, limits: Limits) -> int:
    return min(limits.unpacked_bytes, max(limits.ratio_from, limits.ratio * packed_size))


def _too_many(limits: Limits) -> UnusableSubmission:
    return UnusableSubmission(
        f"The archive holds more than {limits.entries} files and folders. Hand in the "
        "assignment's modules only, without environments or .git."
    )


def _too_large(limits: Limits) -> UnusableSubmission:
    return UnusableSubmission(
        f"The archive unpacks to more than is allowed ({_size(limits.unpacked_bytes)}, or "
        f"{limits.ratio} times its own size). Hand in the assignment's modules only."
    )


# --- choosing ------------------------------------------------------------------------------------


def _take(
    top: _Place, source: str, refused: list[Ignored], known: Collection[str], limits: Limits
) -> Submission:
    modules = {f"{name}.py" for name in known}
    chosen = next((found for found in _places(top, []) if _holds(found[1], modules)), None)
    if chosen is None:
        raise _nothing_found(top, source, refused, modules)
    path, place = chosen
    files, ignored = _read_modules(place, path, modules, limits)
    above = top
    for depth, folder in enumerate(path):
        ignored += [
            Ignored(_shown(*path[:depth], name, kind=entry.kind), "outside the modules' folder")
            for name, entry in sorted(above.entries().items())
            if name not in (folder, ".git")
        ]
        above = above.enter(folder)
    ignored = refused + ignored
    if len(ignored) > limits.ignored:
        more = len(ignored) - limits.ignored
        ignored = [*ignored[: limits.ignored], Ignored(f"and {more} more", "not listed")]
    where = f"modules under {_shown(*path)}" if path else "modules at the top"
    return Submission(dict(sorted(files.items())), ignored, f"{source}, {where}")


def _places(top: _Place, path: list[str]) -> Iterator[tuple[list[str], _Place]]:
    """Where the modules may lie, the preferred place first."""
    yield path, top
    if _is_folder(top, _ASSIGNMENT):
        yield [*path, _ASSIGNMENT], top.enter(_ASSIGNMENT)
    visible = [
        name
        for name, entry in top.entries().items()
        if entry.kind == "folder" and not name.startswith((".", "__"))
    ]
    if len(visible) == 1 and not path:
        yield from _places(top.enter(visible[0]), visible)


def _is_folder(place: _Place, name: str) -> bool:
    entry = place.entries().get(name)
    return entry is not None and entry.kind == "folder"


def _holds(place: _Place, modules: Collection[str]) -> bool:
    return any(name in modules and entry.kind == "file" for name, entry in place.entries().items())


def _read_modules(
    place: _Place, path: list[str], modules: Collection[str], limits: Limits
) -> tuple[dict[str, bytes], list[Ignored]]:
    """The modules of one place, the assignment's own before the student's further ones."""
    files: dict[str, bytes] = {}
    ignored = []
    left = limits.total_bytes
    entries = place.entries().items()
    for name, entry in sorted(entries, key=lambda item: (item[0] not in modules, item[0])):
        if name == ".git":
            continue
        try:
            if why := _why_not(name, entry):
                raise _Refused(why)
            if len(files) == limits.files:
                raise _Refused(f"more than {limits.files} modules")
            content = entry.read(limits.file_bytes + 1) if entry.size <= limits.file_bytes else None
            if content is None or len(content) > limits.file_bytes:
                raise _Refused(f"larger than {_size(limits.file_bytes)}")
            if len(content) > left:
                raise _Refused(f"more than {_size(limits.total_bytes)} in all modules together")
            files[name] = content
            left -= len(content)
        except _Refused as reason:
            ignored.append(Ignored(_shown(*path, name, kind=entry.kind), str(reason)))
    return files, ignored


def _why_not(name: str, entry: _Entry) -> str:
    """Why something beside the modules is not one of them; empty when it is."""
    if entry.kind == "refused":
        return entry.why
    if entry.kind == "folder":
        beside = "; the modules beside it are taken, not those in it"
        return f"a folder{beside if name == _ASSIGNMENT else ''}"
    if not name.endswith(".py"):
        return "not a Python module"
    stem = name.removesuffix(".py")
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]{0,99}", stem) or keyword.iskeyword(stem):
        return "not a name that Python can import"
    return ""


def _nothing_found(
    top: _Place, source: str, refused: list[Ignored], modules: Collection[str]
) -> UnusableSubmission:
    found = {name: entry for name, entry in top.entries().items() if name != ".git"}
    if not found and not refused:
        return UnusableSubmission(f"The {source} is empty.")
    shown = [
        _shown(name, kind=entry.kind) + (f" ({entry.why})" if entry.why else "")
        for name, entry in sorted(found.items(), key=lambda item: (item[0] not in modules, item[0]))
    ]
    shown += [f"{item.name} ({item.why})" for item in refused]
    more = f" and {len(shown) - 10} more" if len(shown) > 10 else ""
    return UnusableSubmission(
        f"None of the assignment's modules was found. Looked for {', '.join(sorted(modules))} at "
        f"the top, under {_ASSIGNMENT}/ and in a single enclosing folder; found "
        f"{', '.join(shown[:10])}{more}."
    )


def _shown(*parts: str, kind: str = "") -> str:
    name = safe_line("/".join(parts), width=100)
    return f"{name}/" if kind == "folder" else name


def _size(count: int) -> str:
    return f"{count // MIB} MiB" if count >= MIB else f"{count // KIB} KiB"
