"""Puts the result from a CPU machine and that from a GPU machine together, for each submission.

Only results of the same code, graded by the same grader with the same inputs, belong together. What
the GPU machine found counts out of a total of its own (see `[gpu]` in course.toml); lateness
and what people added are what the CPU result says.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from autograder import record
from autograder.grade import points_text
from autograder.report import RECORD, RESULTS
from autograder.text import cell

COLUMNS = (
    *("submission", "points", "out_of", "gpu_points", "gpu_out_of", "adjustment", "total"),
    *("official", "digest", "note"),
)


class CannotMerge(ValueError):
    """Results do not belong together, or there are none."""


@dataclass(frozen=True)
class Half:
    """One result, from a grade.json or a results.json.

    versions: what must be the same in both; a value that a file does not tell is missing.
    """

    where: str
    on_gpus: bool
    digest: str
    versions: dict[str, str]
    earned: Fraction
    factor: Fraction
    added: Fraction
    points: Fraction
    not_counted: Fraction
    official: bool


@dataclass(frozen=True)
class Merged:
    """One submission: what it has on the CPU, and on GPUs where that was graded.

    note: why there is no total, or what to look at.
    """

    name: str
    cpu: Half | None
    gpu: Half | None
    note: str = ""
    good: bool = True

    @property
    def total(self) -> Fraction | None:
        """What counts, of both; None where that cannot be told."""
        if not self.good or self.cpu is None:
            return None
        on_gpus = self.gpu.earned if self.gpu else Fraction(0)
        counting = self.cpu.factor * (self.cpu.earned + on_gpus)
        return max(counting + self.cpu.added, Fraction(0))


def merge(places: Sequence[Path]) -> list[Merged]:
    """Every submission that results are found of, by name.

    places: result files; folders that hold one; or folders of such folders, in which the same name
        is the same submission.

    Raises:
        CannotMerge: there is nothing that can be read as a result in one of them.
    """
    found: dict[str, list[Half]] = {}
    for place in places:
        for name, path in _results(place):
            found.setdefault(name, []).append(read(path))
    return [_together(name, halves) for name, halves in sorted(found.items())]


def _results(place: Path) -> list[tuple[str, Path]]:
    """The results in a place. One that is named itself goes without a name."""
    if place.is_file():
        return [("", place)]
    if path := _result_in(place):
        return [("", path)]
    inside = sorted(place.iterdir()) if place.is_dir() else []
    results = [(folder.name, path) for folder in inside if (path := _result_in(folder))]
    if not results:
        raise CannotMerge(f"{place}: there is no {RECORD} and no {RESULTS} in there.")
    return results


def _result_in(folder: Path) -> Path | None:
    for name in (RECORD, RESULTS):
        if (folder / name).is_file():
            return folder / name
    return None


def read(path: Path) -> Half:
    """A grade.json of ours, or a results.json as a platform gives it back.

    Raises:
        CannotMerge: it is neither.
    """
    try:
        raw = json.loads(path.read_bytes())
        return _from_record(path) if "grading" in raw else _from_results(path, raw)
    except OSError as error:
        raise CannotMerge(f"{path} cannot be read: {error.strerror}.") from None
    except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError):
        raise CannotMerge(f"{path} is no finished result of this grader.") from None


def _from_record(path: Path) -> Half:
    found = record.read(path)
    grading = found.grading
    return Half(
        str(path),
        grading.backend == "nccl",
        found.submission.digest,
        {**_versions(grading.versions), "inputs": grading.secret_fingerprint},
        found.earned.of,
        Fraction(found.factor),
        Fraction(found.added),
        found.points.of,
        found.not_counted.of,
        found.official,
    )


def _from_results(path: Path, raw: dict[str, Any]) -> Half:
    extra = raw["extra_data"]
    if not extra["finished"]:
        raise ValueError("not finished")
    return Half(
        str(path),
        extra["backend"] == "nccl",
        str(extra["submission"]),
        _versions(extra["versions"]),
        _decimal(extra["earned"]),
        Fraction(extra["factor"]),
        Fraction(extra["added"]),
        _decimal(extra["points"]),
        _decimal(extra["not_counted"]),
        bool(extra["official"]),
    )


def _versions(told: dict[str, str]) -> dict[str, str]:
    """What must not differ. The builds of one torch, for CPUs and for GPUs, may."""
    return {"grader": told["grader"], "torch": told["torch"].partition("+")[0]}


def _decimal(number: float) -> Fraction:
    return Fraction(str(number))


def _together(name: str, halves: Sequence[Half]) -> Merged:
    cpus = [half for half in halves if not half.on_gpus]
    gpus = [half for half in halves if half.on_gpus]
    cpu, gpu = (some[0] if some else None for some in (cpus, gpus))
    if len(cpus) > 1 or len(gpus) > 1:
        twice = cpus if len(cpus) > 1 else gpus
        said = f"there are two results of one kind: {twice[0].where} and {twice[1].where}"
        return Merged(name, cpu, gpu, said, good=False)
    if cpu is None:
        return Merged(name, cpu, gpu, "there is no result of a CPU machine", good=False)
    if gpu and (reason := _why_not(cpu, gpu)):
        return Merged(name, cpu, gpu, reason, good=False)
    notes = [] if gpu else ["there is no result of a GPU machine"]
    lacking = sum((half.not_counted for half in (cpu, gpu) if half), Fraction(0))
    notes += [f"{points_text(lacking)} points could not be judged yet"] if lacking else []
    if gpu and gpu.added:
        notes.append(
            f"{points_text(gpu.added)} points of adjustments lie with the result of the GPU "
            "machine and do not count: write them into adjustments.csv beside that of the CPU "
            "machine"
        )
    return Merged(name, cpu, gpu, "; ".join(notes))


def _why_not(cpu: Half, gpu: Half) -> str:
    if cpu.digest != gpu.digest:
        return "they are results of different submissions"
    for what in cpu.versions.keys() & gpu.versions.keys():
        one, other = cpu.versions[what], gpu.versions[what]
        if one != other:
            return f"they were graded with different versions of {what}: {one} and {other}"
    return ""


# --- As files -------------------------------------------------------------------------------------


def as_csv(merged: Iterable[Merged]) -> str:
    """A row for each submission, for a gradebook."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_row(one) for one in merged)
    return text.getvalue()


def as_json(merged: Iterable[Merged]) -> str:
    """The same, for programs."""
    return json.dumps([_row(one) for one in merged], indent=1) + "\n"


def _row(one: Merged) -> dict[str, str]:
    halves = [half for half in (one.cpu, one.gpu) if half]
    return {
        "submission": cell(one.name),
        "points": _points(one.cpu.factor * one.cpu.earned if one.cpu else None),
        "out_of": _points(one.cpu.points if one.cpu else None),
        "gpu_points": _points(one.gpu.earned if one.gpu else None),
        "gpu_out_of": _points(one.gpu.points if one.gpu else None),
        "adjustment": _points(one.cpu.added if one.cpu and one.cpu.added else None),
        "total": _points(one.total),
        "official": "yes" if halves and all(half.official for half in halves) else "no",
        "digest": halves[0].digest if halves else "",
        "note": cell(one.note),
    }


def _points(points: Fraction | None) -> str:
    return "" if points is None else points_text(points)
