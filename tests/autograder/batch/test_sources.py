"""Where submissions come from: who, when, and nothing that is not one."""

from __future__ import annotations

import errno
import os
import subprocess
import zipfile
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from autograder.batch import gradescope_export, sources
from autograder.batch.people import Entry, Student
from autograder.batch.sources import NoSubmissions, find
from autograder.intake import Limits, take

METADATA = """\
---
submission_101:
  :submitters:
  - :name: Anna A
    :sid: 's1'
    :email: anna@example.org
  :created_at: 2026-03-01 12:30:00.5 -08:00
  :score: 3.0
  :status: processed
  :results:
    tests: []
  :history:
  - :id: 100
    :created_at: 2026-02-28 12:00:00 Z
submission_102:
  :submitters:
  - :name: Bert B
    :sid: ''
    :email: bert@example.org
  - :name: Carl C
    :sid: s3
    :email:
  :created_at: !ruby/object:ActiveSupport::TimeWithZone
    utc: &1 2026-03-01 21:00:00.000000000 Z
    zone: !ruby/object:ActiveSupport::TimeZone
      name: America/Los_Angeles
    time: 2026-03-01 13:00:00.000000000 Z
"""


def handed_in(at: Path) -> Path:
    at.mkdir(parents=True)
    (at / "collectives.py").write_text("pass\n")
    return at


def entries(path: Path, tmp_path: Path) -> dict[str, Entry]:
    return {entry.name: entry for entry in find(path, tmp_path / "unpacked").entries}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "class").mkdir()
    return tmp_path / "class"


# --- Folders --------------------------------------------------------------------------------------


def test_folders_and_archives_are_submissions_and_other_files_are_named(
    folder: Path, tmp_path: Path
) -> None:
    handed_in(folder / "anna")
    for name in ("bert.zip", "carl.tar.gz", "dora.7z", "notes.txt", ".DS_Store"):
        (folder / name).write_bytes(b"?")
    handed_in(folder / "__MACOSX")
    found = find(folder, tmp_path / "unpacked")
    assert [entry.name for entry in found.entries] == ["anna", "bert", "carl", "dora"]
    assert found.entries[0].students == (Student("anna"),)
    assert found.left_out == ("notes.txt",)


def test_names_that_are_odd_or_alike_are_told_apart(folder: Path, tmp_path: Path) -> None:
    handed_in(folder / "anna")
    (folder / "anna.zip").write_bytes(b"?")
    handed_in(folder / "Änne Groß; rm -rf")
    found = entries(folder, tmp_path)
    assert len(found) == 3
    assert {"anna", "anna.zip"} < set(found)
    (odd,) = set(found) - {"anna", "anna.zip"}
    assert odd.isascii()
    assert " " not in odd
    assert found[odd].students == (Student("Änne Groß; rm -rf"),)


def test_submissions_csv_says_who_and_when(folder: Path, tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        handed_in(folder / name)
    (folder / "submissions.csv").write_text(
        "submission,student,name,email,submitted_at\n"
        "one,s1,Anna,a@example.org,2026-03-01T10:00:00+01:00\n"
        "two,s1,Anna,a@example.org,2026-03-02T10:00:00+01:00\n"
        "two,s2,Bert,,\n"
    )
    found = entries(folder, tmp_path)
    assert found["one"].submitted_at == datetime(2026, 3, 1, 9, tzinfo=UTC)
    assert [student.id for student in found["two"].students] == ["s1", "s2"]
    assert found["three"].students == (Student("three"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("submission,who\n", "needs the columns submission and student"),
        ("submission,student\nnobody,s1\n", "line 2: there is no submission 'nobody'"),
        ("submission,student\none,\n", "line 2: names no student"),
        ("submission,student,submitted_at\none,s1,yesterday\n", "is not a time with its zone"),
        ("submission,student,submitted_at\none,s1,2026-03-01T10:00:00\n", "not a time with its"),
    ],
)
def test_a_mistake_in_submissions_csv_is_named(
    folder: Path, tmp_path: Path, text: str, said: str
) -> None:
    handed_in(folder / "one")
    (folder / "submissions.csv").write_text(text)
    with pytest.raises(NoSubmissions, match=said):
        entries(folder, tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("one,Zoë\n".encode("cp1252"), "submissions.csv is not UTF-8 .* CSV UTF-8"),
        (b'one,"' + b"s" * 200_000, "line 2: field larger than field limit"),
    ],
    ids=["another encoding", "a quote that does not end"],
)
def test_a_submissions_csv_that_cannot_be_read_is_a_sentence(
    folder: Path, tmp_path: Path, content: bytes, said: str
) -> None:
    handed_in(folder / "one")
    (folder / "submissions.csv").write_bytes(b"submission,student\n" + content)
    with pytest.raises(NoSubmissions, match=said):
        entries(folder, tmp_path)


def test_nothing_to_grade_is_said(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NoSubmissions, match="no folders and no archives"):
        entries(folder, tmp_path)
    with pytest.raises(NoSubmissions, match="neither a folder"):
        entries(folder / "gone", tmp_path)


# --- git ------------------------------------------------------------------------------------------


def git(path: Path, *arguments: str, **environment: str) -> None:
    who = {
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "A"), ("EMAIL", "a@example.org"))
    }
    subprocess.run(
        ["git", "-C", str(path), *arguments],
        env={"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null"} | who | environment,
        check=True,
        capture_output=True,
    )


@pytest.mark.parametrize("packed", [False, True])
def test_a_checkout_was_handed_in_when_it_was_committed(
    folder: Path, tmp_path: Path, packed: bool
) -> None:
    path = handed_in(folder / "anna")
    git(path, "init", "-q")
    git(path, "add", ".")
    date = {"GIT_COMMITTER_DATE": "2026-03-01T10:00:00 -0330"}
    git(path, "commit", "-qm", "done", **date)
    if packed:
        git(path, "gc", "-q")
        git(path, "pack-refs", "--all")
    found = find(folder, tmp_path / "unpacked")
    assert found.kind == "git checkouts"
    zone = timezone(-timedelta(hours=3, minutes=30))
    assert found.entries[0].submitted_at == datetime(2026, 3, 1, 10, tzinfo=zone)


def test_nothing_of_a_checkout_is_obeyed(folder: Path, tmp_path: Path) -> None:
    path = handed_in(folder / "anna")
    git(path, "init", "-q")
    git(path, "commit", "-qm", "done", "--allow-empty")
    trap = tmp_path / "trap"
    for option in ("core.fsmonitor", "core.pager", "gpg.program", "core.sshCommand"):
        git(path, "config", option, f"touch {trap}; true")
    git(path, "config", "log.showSignature", "true")
    assert entries(folder, tmp_path)["anna"].submitted_at is not None
    assert not trap.exists()
    (path / ".git" / "HEAD").write_text("ref: ../../../../etc/passwd\n")
    assert entries(folder, tmp_path)["anna"].submitted_at is None
    (path / ".git" / "HEAD").write_bytes(b"\xff" * 100)
    assert entries(folder, tmp_path)["anna"].submitted_at is None


# --- Gradescope -----------------------------------------------------------------------------------


def export(at: Path, *extra: tuple[str, bytes], metadata: str = METADATA) -> Path:
    with zipfile.ZipFile(at, "w") as archive:
        archive.writestr("assignment_9_export/submission_metadata.yml", metadata)
        for name in ("submission_101", "submission_102"):
            archive.writestr(f"assignment_9_export/{name}/collectives.py", f"# {name}\n")
        for name, content in extra:
            archive.writestr(name, content)
    return at


def test_gradescopes_zip_says_who_and_when(tmp_path: Path) -> None:
    found = entries(export(tmp_path / "export.zip"), tmp_path)
    one, group = found["submission_101"], found["submission_102"]
    assert one.students == (Student("s1", "Anna A", "anna@example.org"),)
    assert one.submitted_at == datetime(2026, 3, 1, 20, 30, 0, 500_000, tzinfo=UTC)
    assert [student.id for student in group.students] == ["bert@example.org", "s3"]
    assert group.submitted_at == datetime(2026, 3, 1, 21, tzinfo=UTC)
    assert (one.path / "collectives.py").read_text() == "# submission_101\n"


def test_gradescopes_export_may_be_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(export(tmp_path / "export.zip")) as archive:
        archive.extractall(tmp_path / "class")
    assert set(entries(tmp_path / "class", tmp_path)) == {"submission_101", "submission_102"}


@pytest.mark.parametrize("packed", [True, False])
def test_the_metadata_of_a_large_class_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    path = export(tmp_path / "export.zip")
    if not packed:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(tmp_path / "class")
        path = tmp_path / "class"
    read, calls = gradescope_export.read, []

    def counted(content: bytes) -> dict[str, gradescope_export.Submitted]:
        calls.append(content)
        return read(content)

    monkeypatch.setattr(gradescope_export, "read", counted)
    first = entries(path, tmp_path)
    assert entries(path, tmp_path) == first
    assert len(calls) == 1
    for kept in (tmp_path / "unpacked").glob("*.json"):
        kept.write_text("{")
    assert entries(path, tmp_path) == first
    assert len(calls) == 2


def test_nothing_in_an_export_gets_out_of_it(tmp_path: Path) -> None:
    top = "assignment_9_export/submission_101"
    path = export(
        tmp_path / "export.zip",
        (f"{top}/../../../escaped.py", b""),
        ("/absolute/escaped.py", b""),
        (f"{top}/collectives.py/below.py", b""),
        ("assignment_9_export/submission_999/collectives.py", b""),
    )
    found = find(path, tmp_path / "deep" / "unpacked")
    assert len(found.entries) == 2
    assert found.left_out == ("submission_999 (not in the metadata)",)
    assert not list(tmp_path.rglob("escaped.py"))


def test_a_batch_that_starts_does_not_disturb_one_that_reads(tmp_path: Path) -> None:
    path = export(tmp_path / "export.zip")
    first = entries(path, tmp_path)["submission_101"].path / "collectives.py"
    with first.open() as reading:
        again = entries(path, tmp_path)["submission_101"].path / "collectives.py"
        assert os.path.sameopenfile(reading.fileno(), again.open().fileno())
    other = export(tmp_path / "export.zip", metadata=METADATA.replace("s1", "s9"))
    assert entries(other, tmp_path)["submission_101"].path != first.parent
    assert first.exists()


def test_an_export_that_could_not_be_unpacked_whole_is_unpacked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = export(tmp_path / "export.zip")
    write, written = sources._write, []

    def full(*given: Any) -> None:
        written.append(given)
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(*given)

    with monkeypatch.context() as patch:
        patch.setattr(sources, "_write", full)
        with pytest.raises(NoSubmissions, match="No space left"):
            entries(path, tmp_path)
    assert [one.name for one in (tmp_path / "unpacked").iterdir() if one.is_dir()] == []
    for entry in entries(path, tmp_path).values():
        assert (entry.path / "collectives.py").read_text() == f"# {entry.name}\n"


def test_large_data_beside_the_modules_costs_no_disk_and_no_points(tmp_path: Path) -> None:
    top, data = "assignment_9_export/submission_101", bytes(65 << 20)
    long = b"#" * (Limits().file_bytes + 1000)
    path = export(
        tmp_path / "export.zip",
        (f"{top}/data.bin", data),
        (f"{top}/folder/weights.pt", data),
        (f"{top}/long.py", long),
    )
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "class")
    packed, unpacked = (
        take(entries(one, tmp_path)["submission_101"].path, known=["collectives"])
        for one in (path, tmp_path / "class")
    )
    assert list(packed.files) == ["collectives.py"]
    assert packed == unpacked
    size = sum(one.stat().st_size for one in (tmp_path / "unpacked").rglob("*"))
    assert size < 2 * Limits().file_bytes


def test_an_export_that_is_damaged_is_refused_and_costs_nobody_anything(tmp_path: Path) -> None:
    path = export(tmp_path / "export.zip")
    content = path.read_bytes()
    path.write_bytes(content.replace(b"# submission_101", b"# submission_999"))
    with pytest.raises(NoSubmissions, match="cannot be unpacked: Bad CRC-32"):
        entries(path, tmp_path)


def test_other_zips_are_refused_with_advice(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("collectives.py", "")
    with pytest.raises(NoSubmissions, match="Unpack other archives into a folder"):
        entries(tmp_path / "a.zip", tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "not YAML"),
        ("- a", "lists no submissions"),
        ("submission_1: 3", "has no list of :submitters"),
        ("submission_1:\n  :submitters: []", "no submitter with a name"),
        ("x: !!python/object/apply:os.system ['true']", "not YAML"),
    ],
)
def test_metadata_that_is_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        gradescope_export.read(text.encode())
