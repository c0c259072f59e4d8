"""Files that are whole whenever somebody looks, and names that are fit to be files'."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path


def replace(path: Path, content: str | bytes) -> None:
    """Puts `content` at `path` at once: a reader finds the old file or the new one.

    Without waiting for the disk, unlike `atomic.replace_file`: for what can be made again.
    """
    data = content.encode() if isinstance(content, str) else content
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def replace_if_other(path: Path, content: str | bytes) -> None:
    """As `replace`, unless the file holds that already."""
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.read_bytes() == data:
            return
    except OSError:
        pass
    replace(path, data)


def rows(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The columns of a CSV file that people write, and its rows, each with its line.

    Raises:
        ValueError: it is no such file; the message is a sentence that names it.
    """
    try:
        reader = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig")))
    except UnicodeDecodeError:
        raise ValueError(
            f"{path.name} is not UTF-8 throughout: save it anew, as what Excel calls CSV UTF-8."
        ) from None
    try:
        return list(reader.fieldnames or ()), [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise ValueError(f"{path.name}, line {reader.line_num + 1}: {error}.") from None


def prune(folder: Path, wanted: Collection[str]) -> None:
    """Takes the folders in it away that are not wanted any more."""
    for stale in folder.iterdir() if folder.is_dir() else ():
        if stale.name not in wanted and stale.is_dir():
            shutil.rmtree(stale)


def as_name(text: str) -> str:
    """`text` as a file's name: itself where it is an ordinary one, else told apart by a hash."""
    plain = re.sub(r"[^\w.@+=,-]", "_", text, flags=re.ASCII)[:80].lstrip(".-") or "_"
    if plain == text:
        return plain
    return f"{plain}-{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
