"""One variant, graded; and where the grader did not keep its promise about it."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from autograder.grade import About, Grade, Outcome, Row, points_text
from autograder.grading import Grading
from autograder.inputs import known_secret
from autograder.manifest import Manifest
from autograder.paths import REFERENCE, module_files
from autograder.selfcheck.variant import Alternative, Mutant, Variant


class Diagnosis(StrEnum):
    """What a mutant's failure text makes of the mistake."""

    NAMED = "named"
    SILENT = "silent"
    WRONG = "wrong"


@dataclass(frozen=True)
class Trial:
    """What came of grading one submission.

    complaints: broken promises, in words; empty when all is as it should be.
    lost: ids of the checks without full marks.
    kept: the part of its chapter's points that it earned.
    """

    name: str
    complaints: tuple[str, ...]
    lost: frozenset[str] = frozenset()
    diagnosis: Diagnosis | None = None
    kept: Fraction = Fraction(1)
    seconds: float = 0.0


def graded(
    manifest: Manifest, files: Mapping[str, bytes], only: Sequence[str] = (), seed: int = 1
) -> Grade:
    """Grades in this process (the ranks are processes of their own, as always).

    seed: of the inputs; another one gives other inputs.
    """
    about = About(course=manifest.course.name)
    reference = module_files(REFERENCE)
    return Grading(manifest, files, reference, known_secret(seed), about, only=only).run()


@functools.cache
def planned_rows(manifest: Manifest) -> tuple[Row, ...]:
    """A row for each check, in order, as before anything has run; and nothing is run."""
    about, secret = About(course=manifest.course.name), known_secret(1)
    none = Grading(manifest, {}, {}, secret, about, unusable="only the plan is asked for").run()
    return tuple(
        replace(row, outcome=Outcome.NOT_RUN, message="", seconds=None) for row in none.rows
    )


def try_variant(manifest: Manifest, variant: Variant, *, whole_part: bool) -> Trial:
    """Grades a variant and judges the grade.

    whole_part: all checks of its part; else those of the problems that it is about, without the
        checks of cost, which are slow, where they have nothing to find.
    """
    started = time.monotonic()
    part = manifest.only_part(manifest.problem(variant.problem).part)
    planned = [row for row in planned_rows(part) if whole_part or _concerns(variant, row)]
    only = [row.check_id for row in planned]
    grade = graded(part, variant.files, only)
    rows = [row for row in grade.rows if row.check_id in only]
    if isinstance(variant, Mutant):
        trial = judge_mutant(variant, rows)
    else:
        trial = judge_alternative(variant, rows)
    lost_points = sum((row.points - row.score for row in rows), Fraction(0))
    kept = 1 - lost_points / part.total_points
    return replace(trial, kept=kept, seconds=time.monotonic() - started)


def _concerns(variant: Variant, row: Row) -> bool:
    """Whether a check may say something about a variant that no other says faster."""
    if row.problem_id not in variant.problems:
        return False
    return row.kind != "cost" or isinstance(variant, Alternative) or variant.must_lose(row.check_id)


def judge_mutant(mutant: Mutant, rows: Sequence[Row]) -> Trial:
    """It loses just the checks it must, and is told the true cause or none."""
    lost = {row.check_id: row for row in _scored(rows) if row.outcome is not Outcome.PASSED}
    must = {row.check_id for row in _scored(rows) if mutant.must_lose(row.check_id)}
    complaints = [f"does not lose {id}" for id in sorted(must - set(lost))]
    complaints += [f"loses {_told(lost[id])}" for id in sorted(set(lost) - must)]
    complaints += _faults(rows)
    complaints += [
        f"{pattern}: there is no such check"
        for pattern in mutant.loses
        if not any(replace(mutant, loses=(pattern,)).must_lose(row.check_id) for row in rows)
    ]
    diagnosis, misled = _diagnose(mutant, [lost[id] for id in lost if id in must])
    complaints += misled
    return Trial(mutant.name, tuple(complaints), frozenset(lost), diagnosis)


def judge_alternative(alternative: Alternative, rows: Sequence[Row]) -> Trial:
    """It earns just what the docstrings promise."""
    lost = {row.check_id for row in _scored(rows) if row.outcome is not Outcome.PASSED}
    complaints = _faults(rows)
    for row in _scored(rows):
        most = alternative.but.get(row.check_id, "1")
        least = alternative.least.get(row.check_id, most)
        edges = [Fraction(part) * row.points for part in (least, most)]
        if not edges[0] <= row.score <= edges[1]:
            right = " to ".join(dict.fromkeys(map(points_text, edges)))
            complaints.append(f"{right} points are right for it: {_told(row)}")
    known = {row.check_id for row in rows}
    promised = {*alternative.but, *alternative.least}
    complaints += [f"{id}: there is no such check" for id in promised - known]
    return Trial(alternative.name, tuple(complaints), frozenset(lost))


def judge_reference(rows: Sequence[Row]) -> Trial:
    """Full marks in every row that could be scored."""
    lost = [row for row in _scored(rows) if row.score != row.points]
    complaints = [f"loses {_told(row)}" for row in lost]
    return Trial("the reference", tuple(complaints), frozenset(row.check_id for row in lost))


def judge_stub(rows: Sequence[Row]) -> Trial:
    """Nothing in any row, because nothing is written; and no row errs."""
    complaints = [f"earns something in {_told(row)}" for row in rows if row.score]
    odd = [row for row in _scored(rows) if row.outcome is not Outcome.FAILED and not row.score]
    complaints += [f"is not failed, but {row.outcome.value}, in {_told(row)}" for row in odd]
    return Trial("the stubs", tuple(complaints), frozenset(row.check_id for row in rows))


def _scored(rows: Sequence[Row]) -> list[Row]:
    """Without those of which a noisy machine says nothing, now and about anybody."""
    return [row for row in rows if row.outcome is not Outcome.TOO_NOISY]


def _faults(rows: Iterable[Row]) -> list[str]:
    return [
        f"the grader itself errs in {row.check_id}: {row.staff}"
        for row in rows
        if row.outcome is Outcome.GRADER_FAULT
    ]


def _diagnose(mutant: Mutant, lost: Sequence[Row]) -> tuple[Diagnosis, list[str]]:
    """What the failure texts say of the mistake, and which of it they should not."""
    causes = [cause for row in lost for cause in row.causes]
    known = (*((mutant.told,) if mutant.told else ()), *mutant.also)
    misled = [
        f"is told a wrong cause: {cause}"
        for cause in dict.fromkeys(causes)
        if not any(part in cause for part in known)
    ]
    texts = [text for row in lost for text in (row.message, *row.causes)]
    named = bool(mutant.told) and any(mutant.told in text for text in texts)
    if mutant.told and not named:
        said = "; ".join(dict.fromkeys(_first_line(row.message) for row in lost))
        misled.append(f"is not told {mutant.told!r}, but: {said}")
    if misled:
        return Diagnosis.WRONG if named or not mutant.told else Diagnosis.SILENT, misled
    return Diagnosis.NAMED if named else Diagnosis.SILENT, []


def _told(row: Row) -> str:
    got = f"{row.check_id} ({points_text(row.score)} of {points_text(row.points)})"
    why = "; ".join(text for text in (_first_line(row.message), *row.causes) if text)
    return f"{got}: {why}" if why else got


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
