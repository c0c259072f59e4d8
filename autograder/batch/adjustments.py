"""adjustments.csv: what people decided about single students, kept by people alone.

    student,extension_days,points,author,reason
    s1234,2,,A. Person,ill that week
    s5678,,1.5,A. Person,regrade request 17: the message was wrong

The batch reads it whenever it scores and never writes it, so it survives every regrade.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from pathlib import Path

from autograder.batch import files
from autograder.text import safe_line

NAME = "adjustments.csv"
COLUMNS = ("student", "extension_days", "points", "author", "reason")


class BadAdjustments(ValueError):
    """The file cannot be understood; the message names the line."""


@dataclass(frozen=True)
class Adjustment:
    """One line: more time, points added or taken, or both."""

    student: str
    extension: timedelta
    points: Fraction
    author: str
    reason: str


def read(out: Path) -> tuple[Adjustment, ...]:
    """The adjustments of a batch. Where there is no file, one with the columns alone is made.

    Raises:
        BadAdjustments: a line cannot be understood.
    """
    path = out / NAME
    if not path.exists():
        files.replace(path, ",".join(COLUMNS) + "\n")
    try:
        columns, rows = files.rows(path)
    except ValueError as error:
        raise BadAdjustments(str(error)) from None
    if tuple(columns) != COLUMNS:
        raise BadAdjustments(f"{NAME}: the first line must be {','.join(COLUMNS)}.")
    return tuple(_adjustment(row, line) for line, row in _filled(rows))


def _filled(rows: Iterable[tuple[int, dict[str, str]]]) -> Iterable[tuple[int, dict[str, str]]]:
    for line, row in rows:
        if None in row:
            raise BadAdjustments(
                f"{NAME}, line {line}: too many commas; put a reason with commas in double quotes."
            )
        cells = {name: (cell or "").strip() for name, cell in row.items()}
        if any(cells.values()):
            yield line, cells


def _adjustment(cells: dict[str, str], line: int) -> Adjustment:
    for needed in ("student", "author", "reason"):
        if not cells[needed]:
            raise BadAdjustments(f"{NAME}, line {line}: {needed} is missing.")
    days, points = (_number(cells[name], name, line) for name in ("extension_days", "points"))
    if not days and not points:
        raise BadAdjustments(f"{NAME}, line {line}: neither extension_days nor points is given.")
    if not 0 <= days <= 366:
        raise BadAdjustments(f"{NAME}, line {line}: extension_days must be from 0 to 366.")
    return Adjustment(
        cells["student"],
        timedelta(days=float(days)),
        points,
        safe_line(cells["author"]),
        safe_line(cells["reason"], 300),
    )


def _number(cell: str, name: str, line: int) -> Fraction:
    try:
        number = Fraction(cell or 0)
    except (ValueError, ZeroDivisionError):
        number = Fraction(10**9)
    if abs(number) > 10**6:
        raise BadAdjustments(f"{NAME}, line {line}: {name} is {safe_line(cell)!r}, not a number.")
    return number
