"""The zip that Gradescope builds an autograder from, for courses that do not use images.

It holds what the image holds, by an allow-list, with setup.sh and run_autograder where Gradescope
looks for them, and the course's secret, without which a regrade would draw other inputs. So it is
as private as the reference solution is.
"""

from __future__ import annotations

import os
import shlex
import stat
import zipfile
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from autograder.paths import ROOT, SECRET_NAME

ROOMS = ("assignment", "autograder", "image", "multirank", "reference")
FILES = ("constraints.txt", "pyproject.toml")
SCRIPTS = ("run_autograder", "setup.sh")
SETTINGS = "settings.sh"
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip knows: the same content, the same bytes


class Variant(StrEnum):
    """Which torch is installed: see image/install.sh."""

    CPU = "cpu"
    CUDA = "cuda"


def build(out: Path, secret: bytes, variant: Variant, torch_index: str = "") -> None:
    """Writes the zip.

    torch_index: where pip finds torch's wheels for CPUs, if its own configuration does not say.
    """
    settings = f"VARIANT={variant.value}\n"
    if torch_index:
        settings += f"export PIP_EXTRA_INDEX_URL={shlex.quote(torch_index)}\n"
    descriptor = os.open(out, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)  # it may have been there
    with (
        os.fdopen(descriptor, "wb") as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for path in source_files(ROOT):
            _add(archive, str(path.relative_to(ROOT)), path.read_bytes())
        for name in SCRIPTS:
            _add(archive, name, (ROOT / "image" / name).read_bytes(), executable=True)
        _add(archive, SETTINGS, settings.encode())
        _add(archive, SECRET_NAME, secret)


def source_files(root: Path) -> Iterator[Path]:
    """What the grader consists of, in order: no history, no caches, no tests."""
    yield from (root / name for name in FILES)
    for room in ROOMS:
        for path in sorted((root / room).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                yield path


def _add(archive: zipfile.ZipFile, name: str, content: bytes, executable: bool = False) -> None:
    entry = zipfile.ZipInfo(name, _DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
    archive.writestr(entry, content)
