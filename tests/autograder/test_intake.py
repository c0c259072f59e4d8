"""A submission is read however it is given, and nothing in it reads or harms the grader."""

from __future__ import annotations

import gzip
import io
import os
import socket
import stat
import sys
import tarfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autograder.intake import (
    Ignored,
    Limits,
    NoSuchSubmission,
    Submission,
    UnusableSubmission,
    take,
)

KNOWN = ["launch", "collectives"]
CODE = b"def all_reduce(tensor, op, group=None): ...\n"
SECRET = "the grader's own secret"

Tree = Mapping[str, bytes]


def folder(at: Path, files: Tree) -> Path:
    at.mkdir(exist_ok=True)
    for name, content in files.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_bytes(content)
    return at


def zipped(at: Path, files: Tree) -> Path:
    with zipfile.ZipFile(at, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return at


def tarred(at: Path, files: Tree, squeeze: Callable[[bytes], bytes] = bytes) -> Path:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            archive.addfile(*member(name, content))
    at.write_bytes(squeeze(packed.getvalue()))
    return at


def member(name: str, content: bytes = b"", **more: object) -> tuple[tarfile.TarInfo, io.BytesIO]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in more.items():
        setattr(info, field, value)
    return info, io.BytesIO(content)


GIVEN: dict[str, Callable[[Path, Tree], Path]] = {
    "folder": lambda at, files: folder(at / "work", files),
    "zip archive": lambda at, files: zipped(at / "work.zip", files),
    "tar archive": lambda at, files: tarred(at / "work.tar", files),
    "tar.gz archive": lambda at, files: tarred(at / "work.tgz", files, gzip.compress),
}
each_way = pytest.mark.parametrize("way", GIVEN)
each_archive = pytest.mark.parametrize("way", [way for way in GIVEN if way != "folder"])


def given_as(way: str, at: Path, files: Tree) -> Submission:
    return take(GIVEN[way](at, files), KNOWN)


def why(submission: Submission) -> dict[str, str]:
    return {item.name: item.why for item in submission.ignored}


def refusal(path: Path, limits: Limits | None = None) -> str:
    with pytest.raises(UnusableSubmission) as error:
        take(path, KNOWN, limits)
    return str(error.value)


# --- where the modules lie ---------------------------------------------------------------------


@each_way
@pytest.mark.parametrize(
    "under", ["", "assignment/", "hw1/", "hw1/assignment/", "assignment/assignment/"]
)
def test_modules_are_found_wherever_students_put_them(way: str, under: str, tmp_path: Path) -> None:
    files = {f"{under}collectives.py": CODE, f"{under}helpers.py": b"x = 1\n"}
    taken = given_as(way, tmp_path, files)
    assert taken.files == {"collectives.py": CODE, "helpers.py": b"x = 1\n"}
    assert taken.ignored == []
    where = f"modules under {under[:-1]}" if under else "modules at the top"
    assert taken.source == f"{way}, {where}"


@each_way
def test_the_same_modules_have_the_same_digest_however_packed(way: str, tmp_path: Path) -> None:
    one = given_as(way, tmp_path, {"launch.py": b"a", "collectives.py": CODE})
    (tmp_path / "other").mkdir()
    other = folder(tmp_path / "other" / "x", {"hw/collectives.py": CODE, "hw/launch.py": b"a"})
    assert one.digest == take(other, KNOWN).digest
    moved = folder(tmp_path / "moved", {"launch.py": CODE, "collectives.py": b"a"})
    assert one.digest != take(moved, KNOWN).digest


@each_way
def test_the_top_wins_over_assignment_and_it_is_said(way: str, tmp_path: Path) -> None:
    files = {"collectives.py": CODE, "assignment/collectives.py": b"old\n", "README.md": b"hi"}
    taken = given_as(way, tmp_path, files)
    assert taken.files == {"collectives.py": CODE}
    assert why(taken) == {
        "README.md": "not a Python module",
        "assignment/": "a folder; the modules beside it are taken, not those in it",
    }


@each_way
def test_assignment_wins_where_the_top_holds_only_other_modules(way: str, tmp_path: Path) -> None:
    files = {"setup.py": b"", "tests/test_a.py": b"", "assignment/launch.py": b"x", "a.md": b""}
    taken = given_as(way, tmp_path, files)
    assert taken.files == {"launch.py": b"x"}
    outside = "outside the modules' folder"
    assert why(taken) == {"setup.py": outside, "tests/": outside, "a.md": outside}


@each_way
def test_rubbish_beside_the_enclosing_folder_does_not_hide_it(way: str, tmp_path: Path) -> None:
    files = {
        "hw/launch.py": b"x",
        "__MACOSX/hw/._launch.py": b"",
        ".DS_Store": b"",
        ".git/HEAD": b"",
    }
    taken = given_as(way, tmp_path, files)
    assert taken.files == {"launch.py": b"x"}
    assert set(why(taken)) == {"__MACOSX/", ".DS_Store"}


def test_a_git_checkout_is_taken_as_it_lies_there(tmp_path: Path) -> None:
    work = folder(
        tmp_path / "x", {"assignment/launch.py": b"x", ".git/config": b"", "tests/a": b""}
    )
    taken = take(work, KNOWN)
    assert taken.source == "git checkout, modules under assignment"
    assert set(why(taken)) == {"tests/"}
    worktree = folder(tmp_path / "y", {"launch.py": b"x", ".git": b"gitdir: elsewhere"})
    assert take(worktree, KNOWN) == Submission(
        {"launch.py": b"x"}, [], "git checkout, modules at the top"
    )


# --- which modules -----------------------------------------------------------------------------


@each_way
def test_further_modules_come_along_and_the_rest_is_named(way: str, tmp_path: Path) -> None:
    files = {
        "collectives.py": CODE,
        "__init__.py": b"",
        "_ring2.py": b"",
        "2fast.py": b"",
        "class.py": b"",
        "my-code.py": b"",
        "café.py": b"",
        "notes.PY": b"",
        "cached.pyc": b"",
        "data/big.bin": b"",
        "data/more.bin": b"",
    }
    taken = given_as(way, tmp_path, files)
    assert set(taken.files) == {"collectives.py", "__init__.py", "_ring2.py"}
    name = "not a name that Python can import"
    assert why(taken) == {
        "2fast.py": name,
        "class.py": name,
        "my-code.py": name,
        "café.py": name,
        "notes.PY": "not a Python module",
        "cached.pyc": "not a Python module",
        "data/": "a folder",
    }


@each_way
def test_source_that_python_cannot_read_is_taken_as_it_is(way: str, tmp_path: Path) -> None:
    content = b"\xff\xfe\0 def ("
    assert given_as(way, tmp_path, {"launch.py": content}).files == {"launch.py": content}


@each_way
def test_sizes_and_numbers_have_limits_and_the_assignments_own_come_first(
    way: str, tmp_path: Path
) -> None:
    limits = Limits(files=3, file_bytes=100, total_bytes=250)
    files = {
        "a_large.py": b"x" * 101,
        "a_small.py": b"x" * 100,
        "b.py": b"x" * 51,
        "c.py": b"x" * 50,
        "d.py": b"x",
        "launch.py": b"x" * 100,
    }
    taken = take(GIVEN[way](tmp_path, files), KNOWN, limits)
    assert set(taken.files) == {"launch.py", "a_small.py", "c.py"}
    assert why(taken) == {
        "a_large.py": "larger than 0 KiB",
        "b.py": "more than 0 KiB in all modules together",
        "d.py": "more than 3 modules",
    }


@each_way
def test_the_usual_limits_are_those_of_the_assignment(way: str, tmp_path: Path) -> None:
    mib = 1024**2
    assert Limits() == Limits(40, 256 * 1024, 2 * mib, 1000, 32 * mib, 64 * mib, 100, 8 * mib, 50)
    files = {f"m{n:02}.py": b"" for n in range(50)}
    files |= {"launch.py": b"x" * 262_144, "collectives.py": b"x" * 262_145}
    taken = given_as(way, tmp_path, files)
    assert len(taken.files) == 40
    assert why(taken)["collectives.py"] == "larger than 256 KiB"
    assert why(taken)["m49.py"] == "more than 40 modules"


@each_way
def test_many_ignored_files_are_counted_not_listed(way: str, tmp_path: Path) -> None:
    files = {f"{n:03}.txt": b"" for n in range(120)} | {"launch.py": b""}
    ignored = given_as(way, tmp_path, files).ignored
    assert len(ignored) == 51
    assert ignored[-1] == Ignored("and 70 more", "not listed")


@each_archive
def test_hostile_names_are_shown_harmless(way: str, tmp_path: Path) -> None:
    names = ["\x1b]8;;http://x\x07a.txt", "b\u202etxt", "<script>", "c\nd", "e" * 5000]
    taken = given_as(way, tmp_path, {"launch.py": b"", **dict.fromkeys(names, b"")})
    assert len(taken.ignored) == 5
    assert all(item.name.isprintable() and len(item.name) <= 100 for item in taken.ignored)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no such names")
def test_names_that_are_not_text_are_shown_harmless(tmp_path: Path) -> None:
    work = folder(tmp_path / "x", {"launch.py": b""})
    (Path(os.fsdecode(os.fsencode(work) + b"/\xff\x1b[2J.py"))).write_bytes(b"")
    assert why(take(work, KNOWN)) == {"\ufffd.py": "not a name that Python can import"}


# --- nothing to grade --------------------------------------------------------------------------


def test_a_path_that_does_not_exist_is_the_callers_mistake(tmp_path: Path) -> None:
    with pytest.raises(NoSuchSubmission, match="no folder or file"):
        take(tmp_path / "nowhere", KNOWN)


@pytest.mark.parametrize("way", ["folder", "zip archive", "tar.gz archive"])
def test_an_empty_submission_is_called_empty(way: str, tmp_path: Path) -> None:
    assert refusal(GIVEN[way](tmp_path, {})) == f"The {way} is empty."


@each_way
def test_a_submission_without_a_known_module_says_what_was_looked_for(
    way: str, tmp_path: Path
) -> None:
    files = {"homework.py": CODE, "notes/launch.txt": b"", **{f"z{n:02}": b"" for n in range(20)}}
    said = refusal(GIVEN[way](tmp_path, files))
    assert "collectives.py, launch.py" in said
    assert "found homework.py, notes/, z00" in said
    assert said.endswith("and 12 more.")


def test_modules_in_several_folders_are_not_guessed_at(tmp_path: Path) -> None:
    work = folder(tmp_path / "x", {"a/launch.py": b"", "b/launch.py": b""})
    assert "found a/, b/" in refusal(work)


@pytest.mark.parametrize("content", [b"", b"import torch\n", b"7z\xbc\xaf\x27\x1c", b"\0" * 2000])
def test_a_file_that_is_no_archive_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    assert "not a zip, tar or tar.gz" in refusal(tmp_path / "x")


@each_archive
def test_a_truncated_archive_is_refused(way: str, tmp_path: Path) -> None:
    path = GIVEN[way](tmp_path, {"launch.py": os.urandom(5000), "collectives.py": CODE})
    whole = path.read_bytes()
    size = len(whole.rstrip(b"\0"))
    for cut in range(300, size - 1, 997):
        path.write_bytes(whole[:cut])
        assert (
            refusal(path)
            == f"The {way} is damaged and cannot be read. Pack it anew, and check that it opens."
        )


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(list(GIVEN)[1:]), st.data())
def test_damaged_archives_are_read_or_refused_but_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, way: str, data: st.DataObject
) -> None:
    path = GIVEN[way](tmp_path_factory.mktemp("x"), {"launch.py": CODE * 9, "b/c.py": b"x"})
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        take(path, KNOWN)
    except UnusableSubmission as error:
        assert str(error).endswith(".")  # noqa: PT017


def test_a_module_damaged_within_a_zip_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("launch.py", b"good = 1\n")
        archive.writestr("collectives.py", b"value = 12345\n")
    path.write_bytes(path.read_bytes().replace(b"12345", b"54321"))
    taken = take(path, KNOWN)
    assert taken.files == {"launch.py": b"good = 1\n"}
    assert why(taken) == {"collectives.py": "damaged in the archive"}


def test_a_zip_with_a_password_says_so(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", {"launch.py": CODE})
    content = bytearray(path.read_bytes())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    assert "password" in refusal(path)


# --- hostile folders ---------------------------------------------------------------------------


def test_links_are_not_followed(tmp_path: Path) -> None:
    folder(tmp_path / "private", {"secret.py": SECRET.encode(), "launch.py": SECRET.encode()})
    work = folder(tmp_path / "work", {"launch.py": b"mine"})
    (work / "collectives.py").symlink_to(tmp_path / "private/secret.py")
    (work / "dangling.py").symlink_to(tmp_path / "nowhere")
    (work / "assignment").symlink_to(tmp_path / "private")
    os.link(tmp_path / "private/secret.py", work / "hard.py")
    taken = take(work, KNOWN)
    assert taken.files == {"launch.py": b"mine"}
    link = "a link; links are not followed"
    assert why(taken) == {
        "collectives.py": link,
        "dangling.py": link,
        "assignment": link,
        "hard.py": "a file with a second name elsewhere (a hard link)",
    }


def test_a_link_in_place_of_the_only_module_is_told(tmp_path: Path) -> None:
    folder(tmp_path / "private", {"launch.py": SECRET.encode()})
    work = folder(tmp_path / "work", {})
    (work / "launch.py").symlink_to(tmp_path / "private/launch.py")
    (work / "assignment").symlink_to(tmp_path / "private")
    said = refusal(work)
    assert "launch.py (a link; links are not followed)" in said
    assert SECRET not in said


def test_a_file_swapped_for_a_link_after_it_was_listed_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "private").write_text(SECRET)
    work = folder(
        tmp_path / "work",
        {"launch.py": b"mine", "other.py": b"", "third.py": b"", "fourth.py": b""},
    )
    real = os.open

    def swap_then_open(path: str, flags: int, *args: int, dir_fd: int | None = None) -> int:
        if path == "other.py":
            (work / "other.py").unlink()
            (work / "other.py").symlink_to(tmp_path / "private")
        if path == "fourth.py":
            (work / "fourth.py").unlink()
            (work / "fourth.py").mkdir()
        if path == "third.py":
            (work / "third.py").unlink()
            os.mkfifo(work / "third.py")
        return real(path, flags, *args, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swap_then_open)
    taken = take(work, KNOWN)
    assert taken.files == {"launch.py": b"mine"}
    assert why(taken)["other.py"].startswith("cannot be read")
    assert why(taken)["third.py"] == "not a regular file"
    assert why(taken)["fourth.py"] == "not a regular file"


def test_a_folder_swapped_for_a_link_after_it_was_listed_is_not_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path / "private", {"launch.py": SECRET.encode()})
    work = folder(tmp_path / "work", {"assignment/launch.py": b"mine"})
    real = os.open

    def swap_then_open(path: str, flags: int, *args: int, dir_fd: int | None = None) -> int:
        if path == "assignment" and not (work / "assignment").is_symlink():
            (work / "assignment").rename(tmp_path / "moved")
            (work / "assignment").symlink_to(tmp_path / "private")
        return real(path, flags, *args, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swap_then_open)
    assert "None of the assignment's modules" in refusal(work)


def test_a_folder_that_cannot_be_opened_does_not_stop_the_grading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = folder(tmp_path / "work", {"assignment/launch.py": b"", "hw/launch.py": b"mine"})
    real = os.open

    def closed(path: str, flags: int, *args: int, dir_fd: int | None = None) -> int:
        if path == "assignment":
            raise PermissionError(13, "Permission denied")
        return real(path, flags, *args, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", closed)
    assert "found assignment/, hw/" in refusal(work)
    (work / "launch.py").write_bytes(b"top")
    assert take(work, KNOWN).files == {"launch.py": b"top"}


def test_what_is_not_looked_into_may_be_as_large_as_it_likes(tmp_path: Path) -> None:
    files = {f"assignment/{n}.txt": b"" for n in range(30)} | {"launch.py": b"mine"}
    work = folder(tmp_path / "x", files)
    assert take(work, KNOWN, Limits(entries=10)).files == {"launch.py": b"mine"}


def test_pipes_and_sockets_neither_block_nor_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = folder(tmp_path / "work", {"launch.py": b"mine"})
    os.mkfifo(work / "collectives.py")
    monkeypatch.chdir(work)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind("talk.py")
    taken = take(work, KNOWN)
    assert taken.files == {"launch.py": b"mine"}
    assert why(taken) == dict.fromkeys(["collectives.py", "talk.py"], "not a regular file")


def test_a_pipe_or_device_given_as_the_submission_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe") == "This is neither a folder nor an archive."
    assert refusal(Path("/dev/zero")) == "This is neither a folder nor an archive."


def test_a_huge_sparse_file_is_not_read(tmp_path: Path) -> None:
    work = folder(tmp_path / "work", {"launch.py": b"mine", "big.py": b""})
    os.truncate(work / "big.py", 2**33)
    assert why(take(work, KNOWN)) == {"big.py": "larger than 256 KiB"}
    os.truncate(work / "big.py", 2**33)
    (work / "launch.py").unlink()
    os.truncate(work / "big.py", 2**26)
    assert "larger than 32 MiB" in refusal(work / "big.py")


def test_a_folder_with_too_many_files_is_refused(tmp_path: Path) -> None:
    work = folder(tmp_path / "x", {f"{n}.txt": b"" for n in range(30)} | {"launch.py": b""})
    assert "more than 30 files" in refusal(work, Limits(entries=30))
    assert take(work, KNOWN, Limits(entries=31)).files == {"launch.py": b""}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    work = folder(tmp_path / "x", {"hw/assignment/launch.py": b""})
    before = len(list(Path("/proc/self/fd").iterdir()))
    take(work, KNOWN)
    refusal(folder(tmp_path / "y", {"hw/assignment/x": b""}))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# --- hostile archives --------------------------------------------------------------------------


@each_archive
def test_paths_that_lead_out_are_never_taken(way: str, tmp_path: Path) -> None:
    escaping = [
        "../launch.py",
        "/launch.py",
        "assignment/../../launch.py",
        "C:/launch.py",
        "..\\b.py",
    ]
    files = {"collectives.py": CODE, **dict.fromkeys(escaping, b"evil")}
    taken = given_as(way, tmp_path, files)
    assert taken.files == {"collectives.py": CODE}
    assert {item.why for item in taken.ignored} == {"a path that leads out of the archive"}
    assert len(taken.ignored) == 5
    assert [path.name for path in tmp_path.iterdir()] == [
        path.name for path in tmp_path.glob("work*")
    ]


@each_archive
def test_paths_written_in_other_ways_are_understood(way: str, tmp_path: Path) -> None:
    files = {"./hw\\assignment\\launch.py": b"x", "./hw//assignment/./collectives.py": CODE}
    assert set(given_as(way, tmp_path, files).files) == {"launch.py", "collectives.py"}


def test_folders_that_an_archive_lists_by_themselves_are_folders(tmp_path: Path) -> None:
    names = [
        "./",
        "hw/",
        "hw/assignment/",
        "hw/assignment/empty/",
        "hw/assignment/launch.py",
        "hw/",
    ]
    with (
        zipfile.ZipFile(tmp_path / "x.zip", "w") as zip_archive,
        tarfile.open(tmp_path / "x.tar", "w") as tar_archive,
    ):
        for name in names:
            kind = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            tar_archive.addfile(*member(name, type=kind))
            if name not in zip_archive.namelist():
                zip_archive.writestr(name, b"")
    for path in tmp_path.glob("x.*"):
        taken = take(path, KNOWN)
        assert taken.files == {"launch.py": b""}
        assert why(taken) == {"hw/assignment/empty/": "a folder"}


def test_a_name_that_ends_early_for_some_programs_is_not_taken(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", {"launch.py": CODE, "collectives.pyX.txt": b"evil"})
    path.write_bytes(path.read_bytes().replace(b".pyX.txt", b".py\0.txt"))
    taken = take(path, KNOWN)
    assert taken.files == {"launch.py": CODE}
    assert why(taken) == {"collectives.py\ufffd.txt": "not a possible name of a file"}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("again", ["launch.py", "./launch.py", ".\\launch.py"])
def test_a_name_that_an_archive_holds_twice_is_an_error(again: str, tmp_path: Path) -> None:
    zip_path, tar_path = tmp_path / "x.zip", tmp_path / "x.tar"
    with zipfile.ZipFile(zip_path, "w") as zip_archive, tarfile.open(tar_path, "w") as tar_archive:
        for name, content in (("launch.py", b"good"), (again, b"evil")):
            zip_archive.writestr(name, content)
            tar_archive.addfile(*member(name, content))
    for path in (zip_path, tar_path):
        assert refusal(path).startswith("The archive holds launch.py more than once")


def test_links_and_devices_in_a_zip_are_not_taken(tmp_path: Path) -> None:
    kinds = {"link.py": stat.S_IFLNK, "pipe.py": stat.S_IFIFO, "device.py": stat.S_IFCHR}
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("launch.py", b"mine")
        for name, kind in kinds.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (kind | 0o777) << 16
            archive.writestr(info, "/etc/passwd")
    taken = take(tmp_path / "x.zip", KNOWN)
    assert taken.files == {"launch.py": b"mine"}
    assert why(taken) == {
        "link.py": "a link; links are not followed",
        "pipe.py": "not a regular file",
        "device.py": "not a regular file",
    }


def test_links_and_devices_in_a_tar_are_not_taken(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.addfile(*member("launch.py", b"mine"))
        archive.addfile(*member("soft.py", type=tarfile.SYMTYPE, linkname="/etc/passwd"))
        archive.addfile(*member("hard.py", type=tarfile.LNKTYPE, linkname="launch.py"))
        archive.addfile(*member("pipe.py", type=tarfile.FIFOTYPE))
        archive.addfile(*member("device.py", type=tarfile.CHRTYPE))
        archive.addfile(*member("assignment", type=tarfile.SYMTYPE, linkname="/etc"))
        archive.addfile(*member("assignment/passwd.py", b"x"))
    taken = take(tmp_path / "x.tar", KNOWN)
    assert taken.files == {"launch.py": b"mine"}
    assert why(taken) == {
        "soft.py": "a link; links are not followed",
        "hard.py": "a link; links are not followed",
        "pipe.py": "not a regular file",
        "device.py": "not a regular file",
        "assignment": "a link; links are not followed",
    }


def within(seconds: float, megabytes: float, act: Callable[[], object]) -> None:
    """Runs `act` and sees that it took no more computing time and memory than that."""
    tracemalloc.start()
    started = time.process_time()
    try:
        act()
        assert time.process_time() - started < seconds
        assert tracemalloc.get_traced_memory()[1] < megabytes * 2**20
    finally:
        tracemalloc.stop()


def test_a_zip_bomb_is_refused_by_what_it_declares(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("launch.py", CODE)
        with archive.open("bomb.bin", "w") as bomb:
            for _ in range(20):
                bomb.write(b"\0" * 2**20)
    within(2, 10, lambda: refusal(path))
    assert "100 times its own size" in refusal(path)


@each_archive
def test_an_honest_large_file_beside_the_modules_is_ignored(way: str, tmp_path: Path) -> None:
    files = {"launch.py": CODE, "data.bin": os.urandom(200_000) + bytes(12 * 2**20)}
    assert given_as(way, tmp_path, files).files == {"launch.py": CODE}


def test_a_zip_bomb_that_lies_about_its_size_is_not_unpacked(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", {"launch.py": CODE, "bomb.py": b"\0" * 30_000_000})
    content = bytearray(path.read_bytes())
    for signature, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = content.rindex(signature) + place
        assert content[at : at + 4] == (30_000_000).to_bytes(4, "little")
        content[at : at + 4] = (1000).to_bytes(4, "little")
    path.write_bytes(content)
    within(2, 10, lambda: take(path, KNOWN))
    assert why(take(path, KNOWN)) == {"bomb.py": "damaged in the archive"}


def test_archives_within_an_archive_stay_closed(tmp_path: Path) -> None:
    inner = zipped(tmp_path / "inner.zip", {"launch.py": b"inner", "x": b"\0" * 10_000_000})
    path = zipped(tmp_path / "x.zip", {"launch.py": CODE, "inner.zip": inner.read_bytes()})
    taken = take(path, KNOWN)
    assert taken.files == {"launch.py": CODE}
    assert why(taken) == {"inner.zip": "not a Python module"}


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compression_that_cannot_be_bounded_is_not_unpacked(method: int, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w", method) as archive:
        archive.writestr("launch.py", CODE, zipfile.ZIP_DEFLATED)
        archive.writestr("bomb.py", b"\0" * 200_000)
    assert "ordinary zip" in why(take(tmp_path / "x.zip", KNOWN))["bomb.py"]


def test_a_tar_bomb_is_refused_while_it_unpacks(tmp_path: Path) -> None:
    path = tmp_path / "x.tgz"
    with gzip.open(path, "w") as packed:
        info, _ = member("bomb.bin")
        info.size = 2**40
        packed.write(info.tobuf())
        for _ in range(200):
            packed.write(b"\0" * 2**20)
    within(5, 10, lambda: refusal(path))
    assert "unpacks to more than is allowed" in refusal(path)


def test_a_tar_header_that_asks_for_a_terabyte_gets_none(tmp_path: Path) -> None:
    for kind in (
        tarfile.GNUTYPE_LONGNAME,
        tarfile.XHDTYPE,
        tarfile.GNUTYPE_SPARSE,
        tarfile.REGTYPE,
    ):
        info, _ = member("launch.py", type=kind)
        info.size = 2**40
        (tmp_path / "x.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 2048)
        within(2, 10, lambda: refusal(tmp_path / "x.tar"))


@pytest.mark.parametrize("size", [8 * 1024, 9 * 1024, 512 * 1024])
def test_tar_headers_made_to_be_slow_to_read_are_not(size: int, tmp_path: Path) -> None:
    info, _ = member("x", type=tarfile.XHDTYPE)
    info.size = size
    slow = info.tobuf() + (b"12 " * size)[: size - 1] + b"="
    plain, _ = member("launch.py")
    (tmp_path / "x.tar").write_bytes((slow + plain.tobuf()) * (2**23 // len(slow)))
    within(15, 20, lambda: refusal(tmp_path / "x.tar"))


def test_long_and_foreign_names_in_a_tar_are_read(tmp_path: Path) -> None:
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        with tarfile.open(tmp_path / "x.tar", "w", format=form) as archive:
            for n in range(900):
                archive.addfile(*member(f"{'x' * 300}/é{n}", b""))
            archive.addfile(*member("launch.py", CODE))
        assert take(tmp_path / "x.tar", KNOWN).files == {"launch.py": CODE}


def test_a_tar_header_with_a_negative_size_does_not_loop(tmp_path: Path) -> None:
    info, _ = member("launch.py")
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 8 + (-1024).to_bytes(4, "big", signed=True)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "x.tar").write_bytes(header * 3)
    within(2, 10, lambda: refusal(tmp_path / "x.tar"))


@each_archive
def test_an_archive_of_ten_thousand_entries_is_refused(way: str, tmp_path: Path) -> None:
    path = GIVEN[way](tmp_path, {f"d/{n}": b"" for n in range(10_000)} | {"launch.py": b""})
    assert "more than 1000 files" in refusal(path)


def test_a_million_entries_are_refused_before_they_are_parsed(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", {"launch.py": b""})
    content = path.read_bytes()
    at, end = content.index(b"PK\x01\x02"), content.index(b"PK\x05\x06")
    path.write_bytes(content[:at] + content[at:end] * 300_000 + content[end:])
    within(2, 70, lambda: refusal(path))
    assert "more than 1000 files" in refusal(path)


@each_archive
def test_an_archive_of_a_thousand_entries_is_taken(way: str, tmp_path: Path) -> None:
    path = GIVEN[way](tmp_path, {f"d/{n}": b"" for n in range(999)} | {"launch.py": CODE})
    assert take(path, KNOWN).files == {"launch.py": CODE}


@each_archive
def test_folders_nested_without_end_cost_nothing(way: str, tmp_path: Path) -> None:
    deep = {f"{n}/{'a/' * 2000}x.py": b"" for n in range(200)}
    path = GIVEN[way](tmp_path, {"launch.py": CODE} | deep)
    within(5, 30, lambda: take(path, KNOWN))
    assert why(take(path, KNOWN))["0/"] == "a folder"
