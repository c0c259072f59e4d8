"""Whose grade moves between two gradings of the same work, from, to, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from autograder.batch.people import Entry
from autograder.batch.scoring import Scored, score, standing_grading, total
from autograder.batch.store import Status, Store
from autograder.grade import points_text
from autograder.manifest import Manifest
from autograder.record import NoGrade
from autograder.record import read as read_record
from autograder.report import RECORD

_MOST_CHECKS = 6


class NothingToCompare(ValueError):
    """There are no grades in what was named; the message says where."""


@dataclass(frozen=True)
class Move:
    """One grade that moves. kept: it would, but the newer one is not taken; what that one is."""

    name: str
    before: Fraction
    after: Fraction
    why: str
    kept: str = ""


@dataclass(frozen=True)
class Points:
    """What one grading earned, check by check: outcome and points."""

    digest: str
    checks: Mapping[str, tuple[str, Fraction]]

    @property
    def total(self) -> Fraction:
        return total(points for _, points in self.checks.values())


def points_of(scored: Scored) -> Points:
    """What a submission's grading earns as it counts."""
    checks = {
        one.result.id: (one.override.count if one.override else one.result.outcome.value, one.score)
        for one in scored.checks
    }
    return Points(scored.record.submission.digest if scored.record else "", checks)


def why(before: Points, after: Points) -> str:
    """The checks that make the difference, those that weigh most first."""
    changed = []
    for id in dict.fromkeys([*before.checks, *after.checks]):
        was, earned_then = before.checks.get(id, ("not there", Fraction(0)))
        now, earned_now = after.checks.get(id, ("not there", Fraction(0)))
        if earned_then != earned_now:
            sign = "+" if earned_now > earned_then else "-"
            moved = f"{sign}{points_text(abs(earned_now - earned_then))}"
            changed.append((abs(earned_now - earned_then), f"{id} {was} -> {now} ({moved})"))
    changed.sort(key=lambda pair: -pair[0])
    told = [text for _, text in changed[:_MOST_CHECKS]]
    if before.digest != after.digest:
        told.insert(0, "another submission")
    more = f" and {len(changed) - _MOST_CHECKS} more" if len(changed) > _MOST_CHECKS else ""
    return ", ".join(told) + more


def moves(before: Mapping[str, Points], after: Mapping[str, Points]) -> list[Move]:
    """The grades that differ, by name."""
    return [
        Move(name, before[name].total, now.total, why(before[name], now))
        for name, now in after.items()
        if name in before and before[name].total != now.total
    ]


def of_regrade(before: Iterable[Scored], after: Iterable[Scored], manifest: Manifest) -> list[Move]:
    """What a run of a batch moves, with what it would but for being lower."""
    old = {one.entry.name: one for one in before if one.record}
    found = []
    for one in after:
        earlier = old.get(one.entry.name)
        if earlier is None or one.record is None:
            continue
        if one.place == earlier.place and not one.kept_over:
            continue
        was, now = points_of(earlier), points_of(one)
        if one.kept_over:
            now = points_of(score(one.entry, one.place.beside(one.kept_over), manifest))
            move = Move(one.entry.name, was.total, now.total, why(was, now), one.kept_because)
            found.append(move)
        elif was.total != now.total:
            found.append(Move(one.entry.name, was.total, now.total, why(was, now)))
    return found


# --- autograder diff ------------------------------------------------------------------------------


def read(path: Path, manifest: Manifest) -> dict[str, Points]:
    """The grades in a batch's folder, a grading's, or a grade.json, by name.

    Raises:
        NothingToCompare: there are none.
    """
    if (path / "gradings").is_dir():
        found = _of_batch(Store(path), manifest)
    else:
        file = path / RECORD if path.is_dir() else path
        found = {"this submission": _of_record(file)}
    if not found:
        raise NothingToCompare(f"{path}: nothing has been graded there yet.")
    return found


def _of_record(file: Path) -> Points:
    try:
        record = read_record(file)
    except NoGrade as error:
        raise NothingToCompare(f"{error} Name a batch's folder or a grade.json.") from None
    checks = {one.id: (one.outcome.value, one.score.of) for one in record.checks}
    return Points(record.submission.digest, checks)


def _of_batch(store: Store, manifest: Manifest) -> dict[str, Points]:
    found = {}
    for folder in sorted(store.gradings.iterdir()):
        places = store.of(folder.name)
        done = [place for place in places if place.state().status is Status.DONE]
        if done:
            scored = standing_grading(Entry(folder.name, folder, ()), places, done[-1], manifest)
            found[folder.name] = points_of(scored)
    return found
