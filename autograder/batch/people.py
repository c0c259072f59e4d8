"""Who handed in what, and when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True)
class Student:
    """A student: `id` is what the gradebook knows them by."""

    id: str
    name: str = ""
    email: str = ""


@dataclass(frozen=True)
class Entry:
    """One submission of a class.

    name: fit for a folder, and unique in the class.
    path: where it lies.
    students: one, or a group.
    submitted_at: with its time zone; None where nobody knows.
    """

    name: str
    path: Path
    students: tuple[Student, ...]
    submitted_at: datetime | None = None
