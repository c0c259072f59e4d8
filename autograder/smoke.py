"""The smoke kit: submissions to hand in before students do, with the scores that must come out.

The reference, the stubs, five with a mistake and two that are right in another way. What a mistake
costs is found out by grading it here, in the problems that it is about; in all others it is the
reference. So the scores follow every change of the checks, the reference and the course.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from autograder.grade import NOT_JUDGED, Outcome, points_text
from autograder.manifest import Manifest
from autograder.paths import ASSIGNMENT, REFERENCE, module_files
from autograder.selfcheck.alternatives import ALTERNATIVES
from autograder.selfcheck.mutants import MUTANTS
from autograder.selfcheck.trial import graded
from autograder.selfcheck.variant import Variant

# One of each part, in problems that take little time, losing a part of their points or all.
MISTAKES = (
    "broadcast ignores its root",
    "effective_bandwidth leaves out the bus factor",
    "shard_batch drops the remainder",
    "VocabParallelEmbedding does not add the ranks' rows",
    "partition_layers gives the remainder to the last stage",
)
RIGHT = ("broadcast as scatter and all_gather", "the bus factors as a table")
EXPECTED, README = "expected.csv", "README.md"
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Entry:
    """One submission of the kit.

    lost: the checks without full marks.
    """

    name: str
    story: str
    files: Mapping[str, bytes]
    score: Fraction
    points: Fraction
    lost: tuple[str, ...] = ()


class ChecksFail(RuntimeError):
    """The kit cannot be made: the grader does not keep its promises here."""


def entries(manifest: Manifest) -> Iterator[Entry]:
    """The kit of a course; a mistake in a problem that the course leaves out is left out too.

    Raises:
        ChecksFail: a check could not judge one of them.
    """
    total = manifest.total_points
    yield Entry("reference", "The reference solution.", module_files(REFERENCE), total, total)
    stubs = module_files(ASSIGNMENT)
    yield Entry("stub", "What students are given.", stubs, Fraction(0), total, ("all",))
    on = {problem.id for problem in manifest.problems}
    for kind, names, known in (
        ("mistake", MISTAKES, {one.name: one for one in MUTANTS}),
        ("right", RIGHT, {one.name: one for one in ALTERNATIVES}),
    ):
        for place, name in enumerate(names, 1):
            if set(known[name].problems) <= on:
                yield _entry(manifest, f"{kind}-{place}", known[name])


def _entry(manifest: Manifest, name: str, variant: Variant) -> Entry:
    grade = graded(manifest, variant.files, variant.problems)
    rows = [row for problem in variant.problems for row in grade.rows_of(problem)]
    for row in rows:
        if row.outcome in NOT_JUDGED:
            raise ChecksFail(f"{row.check_id} could not judge {variant.name!r}: {row.message}")
    missing = sum((row.points - row.score for row in rows), Fraction(0))
    lost = tuple(row.check_id for row in rows if row.outcome is not Outcome.PASSED)
    story = f"{variant.name}. {variant.story}"
    total = manifest.total_points
    return Entry(name, story, variant.files, total - missing, total, lost)


def write(manifest: Manifest, out: Path, told: Callable[[Entry], None]) -> None:
    """Writes the kit into a folder: a zip for each submission, the scores, and how to use it.

    Raises:
        ChecksFail: a check could not judge one of them.
    """
    out.mkdir(parents=True, exist_ok=True)
    made = []
    for entry in entries(manifest):
        (out / f"{entry.name}.zip").write_bytes(zipped(entry.files))
        told(entry)
        made.append(entry)
    (out / EXPECTED).write_text(_csv(made))
    (out / README).write_text(_README.format(rows="\n".join(map(_row, made))))


def zipped(files: Mapping[str, bytes]) -> bytes:
    """The files as a student would hand them in; the same content gives the same bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _DATE), files[name], zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def _csv(made: list[Entry]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["submission", "score", "out_of", "loses", "what it is"])
    for entry in made:
        scores = [points_text(entry.score), points_text(entry.points)]
        writer.writerow([entry.name, *scores, " ".join(entry.lost), entry.story])
    return text.getvalue()


def _row(entry: Entry) -> str:
    score = f"{points_text(entry.score)} of {points_text(entry.points)}"
    return f"| {entry.name}.zip | {score} | {', '.join(entry.lost)} | {entry.story} |"


_README = """# Before the first student hands in

Hand in each of these zips where your students will, as one of them would, and compare. The scores
were found by grading on the machine that made this kit; `expected.csv` has them for programs. A
score may be lower by what the result itself says was not counted, where the machine was too busy
for a measurement.

Keep this folder to yourself: all but the stub are solutions.

| hand in | must score | loses | what it is |
|---|---|---|---|
{rows}
"""
