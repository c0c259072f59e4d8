"""Gradescope's zip and the image hold the same, and the image installs torch but once."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autograder import cli
from autograder.paths import ROOT, SECRET_NAME
from autograder.platforms import upload
from autograder.platforms.upload import Variant

SECRET = bytes(range(32))


@pytest.fixture
def archive(tmp_path: Path) -> zipfile.ZipFile:
    upload.build(tmp_path / "a.zip", SECRET, Variant.CPU, "https://example.org/it's here")
    return zipfile.ZipFile(tmp_path / "a.zip")


def test_gradescope_finds_its_scripts_at_the_top(archive: zipfile.ZipFile) -> None:
    for name in upload.SCRIPTS:
        assert archive.getinfo(name).external_attr >> 16 & 0o777 == 0o755
        assert archive.read(name).startswith(b"#!/bin/sh\n")


def test_it_holds_the_grader_and_the_secret_and_nothing_else(archive: zipfile.ZipFile) -> None:
    names = archive.namelist()
    assert len(set(names)) == len(names)
    assert {name.split("/")[0] for name in names} == {
        *(*upload.ROOMS, *upload.FILES, *upload.SCRIPTS, upload.SETTINGS, SECRET_NAME)
    }
    assert archive.read(SECRET_NAME) == SECRET
    for name in ("autograder/cli.py", "reference/course.toml", "autograder/report/report.html"):
        assert archive.read(name) == (ROOT / name).read_bytes()
    assert not [name for name in names if "__pycache__" in name or "/." in name]


def test_the_shell_reads_the_settings_as_they_were_asked_for(
    archive: zipfile.ZipFile, tmp_path: Path
) -> None:
    (tmp_path / "settings.sh").write_bytes(archive.read(upload.SETTINGS))
    asked = '. ./settings.sh; printf "%s|%s" "$VARIANT" "$PIP_EXTRA_INDEX_URL"'
    said = subprocess.run(["sh", "-c", asked], cwd=tmp_path, capture_output=True, check=True)
    assert said.stdout == b"cpu|https://example.org/it's here"


def test_the_same_course_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        upload.build(tmp_path / name, SECRET, Variant.CUDA)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    assert (tmp_path / "a.zip").stat().st_mode & 0o777 == 0o600


def test_the_secret_is_readable_by_nobody_else_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, modes = tmp_path / "a.zip", []
    out.touch(0o644)
    add = upload._add

    def looked(*given: Any, **more: Any) -> None:
        modes.append(out.stat().st_mode & 0o777)
        add(*given, **more)

    monkeypatch.setattr(upload, "_add", looked)
    upload.build(out, SECRET, Variant.CPU)
    assert set(modes) == {0o600}


def test_the_command_makes_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOGRADER_PRIVATE", str(tmp_path / "private"))
    out = tmp_path / "a" / "b" / "autograder.zip"
    done = CliRunner().invoke(cli.app, ["gradescope-zip", "--out", str(out)])
    assert done.exit_code == 0
    assert zipfile.is_zipfile(out)


def test_the_command_takes_the_courses_secret_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOGRADER_PRIVATE", str(tmp_path / "private"))
    out = tmp_path / "autograder.zip"
    done = CliRunner().invoke(cli.app, ["gradescope-zip", "--out", str(out)])
    assert done.exit_code == 0
    secret = (tmp_path / "private" / SECRET_NAME).read_bytes()
    assert zipfile.ZipFile(out).read(SECRET_NAME) == secret


def test_the_image_is_built_of_what_the_zip_holds() -> None:
    let_in = (ROOT / ".dockerignore").read_text().splitlines()
    assert [line for line in let_in if not line.startswith("#")] == [
        *("*", "!pyproject.toml", "!constraints.txt"),
        *(f"!{room}" for room in ("image", "assignment", "multirank", "reference", "autograder")),
        *("**/__pycache__", "**/*.pyc"),
    ]
    assert set(upload.ROOMS) == {line[1:] for line in let_in if line.startswith("!")} - {
        *upload.FILES
    }


def test_editing_a_check_does_not_install_torch_again() -> None:
    """Layers are kept up to the first that changes: what installs comes before the source."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    steps = [line for line in lines if line.split(" ")[0] in ("COPY", "RUN")]
    assert steps[0] == "COPY pyproject.toml constraints.txt image/install.sh /autograder/install/"
    assert "install.sh" in steps[1]
    assert steps[2] == "COPY . /autograder/source"


def test_the_scripts_are_shell_that_parses() -> None:
    for script in (*(ROOT / "image").glob("*.sh"), ROOT / "image" / "run_autograder"):
        subprocess.run(["sh", "-n", str(script)], check=True)
