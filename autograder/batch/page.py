"""class.html: one page for the staff about the whole class. Nothing to load; it sorts and searches.

What students wrote stands in it, escaped; the page runs our one script, by its hash, and no other.
"""

from __future__ import annotations

import base64
import hashlib
import statistics as mean_and_median
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from markupsafe import Markup

from autograder.batch import statistics
from autograder.batch.files import as_name
from autograder.batch.outcome import STAFF
from autograder.batch.scoring import ClassGrades, Final, Scored, Standing
from autograder.batch.sources import Class
from autograder.batch.statistics import Fall, OfCheck
from autograder.batch.store import RETRIES
from autograder.grade import Outcome, points_text
from autograder.manifest import Manifest
from autograder.report import STAFF_PAGE
from autograder.report.template import template

NAME = "class.html"
_SCRIPT = Path(__file__).with_name("class.js")
_SLOWEST, _BAR, _HEIGHT = 20, 40, 150
_TONES = {
    Standing.FINAL: "good",
    Standing.OPEN: "middling",
    Standing.FAULT: "bad",
    Standing.UNUSABLE: "bad",
}


def render(grades: ClassGrades, manifest: Manifest, fell: Sequence[Fall], found: Class) -> str:
    """The page as HTML."""
    script = _SCRIPT.read_text()
    checks = statistics.of_checks(grades.scored)
    finals = grades.finals
    return template("class.html", "autograder.batch").render(
        course=manifest.course.name,
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        cards=_cards(grades),
        bars=_bars(finals),
        tries=RETRIES + 1,
        faults=_faults([one for one in grades.scored if not one.regrade_failed]),
        regrades=_faults([one for one in grades.scored if one.regrade_failed]),
        open=[_open(one) for one in grades.scored if one.standing is Standing.OPEN],
        unusable=[one for one in grades.scored if one.standing is Standing.UNUSABLE],
        kept=[one for one in grades.scored if one.kept_over],
        fell=[
            {"check": one.check, "before": f"{one.before:.0%}", "after": f"{one.after:.0%}"}
            for one in fell
        ],
        overrides=manifest.course.overrides,
        pointless=[one.check for one in grades.pointless],
        strangers=[one.student for one in grades.strangers],
        left_out=found.left_out,
        flagged=[
            {"name": one.entry.name, "flags": one.record.flags}
            for one in grades.scored
            if one.record and one.record.flags
        ],
        finals=[_student(final) for final in finals],
        problems=[_problem(one) for one in statistics.of_problems(grades.scored)],
        checks=[_check(one) for one in checks.values()],
        causes=statistics.causes(checks),
        slowest=_slowest(grades.scored),
        facts=_facts(grades.scored),
    )


def _cards(grades: ClassGrades) -> list[tuple[str, str]]:
    known = [float(one.final) for one in grades.finals if one.final is not None]
    standings = [one.standing for one in grades.scored]
    out_of = max((one.out_of for one in grades.scored), default=Fraction(0))
    cards = [
        ("Submissions", str(len(standings))),
        ("Graded", str(standings.count(Standing.FINAL))),
        ("Unusable", str(standings.count(Standing.UNUSABLE))),
        ("Not all judged", str(standings.count(Standing.OPEN))),
        ("Grader faults", str(standings.count(Standing.FAULT))),
        ("Not graded yet", str(standings.count(Standing.WAITING))),
    ]
    if known:
        cards += [
            ("Mean", f"{mean_and_median.mean(known):.1f}"),
            ("Median", f"{mean_and_median.median(known):.1f}"),
            ("Out of", points_text(out_of)),
        ]
    return cards


def _bars(finals: Sequence[Final]) -> dict[str, Any] | None:
    counts, most = statistics.histogram(finals)
    if not most:
        return None
    top, step = max(counts), float(most) / len(counts)
    bars = []
    for place, count in enumerate(counts):
        height = round(_HEIGHT * count / top, 1)
        told = f"{place * step:g} to {(place + 1) * step:g} points: {count}"
        bars.append(
            {
                "x": place * _BAR,
                "y": 14 + _HEIGHT - height,
                "height": height,
                "count": count,
                "told": told,
            }
        )
    width = len(counts) * _BAR
    ticks = [
        {
            "x": round(width * part / 4),
            "text": points_text(most * part / 4),
            "anchor": {0: "start", 4: "end"}.get(part, "middle"),
        }
        for part in range(5)
    ]
    in_words = "; ".join(str(bar["told"]) for bar in bars if bar["count"])
    return {
        "bars": bars,
        "bar": _BAR - 4,
        "width": width,
        "height": _HEIGHT,
        "ticks": ticks,
        "in_words": in_words,
    }


def _faults(scored: Iterable[Scored]) -> list[dict[str, str]]:
    return [
        {"name": one.entry.name, "host": last.host, "at": last.at, "text": last.text}
        for one in scored
        if (last := one.fault)
    ]


def _open(scored: Scored) -> dict[str, str]:
    checks = [one.result.id for one in scored.checks if not one.judged and one.points]
    return {
        "name": scored.entry.name,
        "points": points_text(scored.open),
        "checks": ", ".join(checks),
    }


def _student(final: Final) -> dict[str, Any]:
    scored = final.chosen.scored
    record = scored.record
    seconds = record.grading.seconds if record else 0.0
    name = as_name(final.student.id)
    lost = 1 - final.chosen.decision.factor
    return {
        "student": final.student.id,
        "page": f"{STAFF}/{name}/{STAFF_PAGE}" if record else "",
        "name": final.student.name,
        "final": "" if final.final is None else points_text(final.final),
        "raw": points_text(scored.raw) if record else "",
        "standing": final.standing.value,
        "tone": _TONES.get(final.standing, "neutral"),
        "late": f"-{float(lost):.0%}" if lost else "",
        "adjusted": points_text(final.added) if final.added else "",
        "flags": len(record.flags) if record and record.flags else "",
        "seconds": seconds,
        "time": f"{seconds:.0f} s" if record else "",
        "submission": scored.entry.name,
        "strip": [
            (
                "a" if earned == of else "s" if earned else "n",
                f"{id}: {points_text(earned)} of {points_text(of)}",
            )
            for id, (earned, of) in scored.by_problem.items()
        ],
    }


def _problem(one: statistics.OfProblem) -> dict[str, Any]:
    return {
        "number": one.number,
        "title": one.title,
        "points": points_text(one.points),
        "mean": f"{one.mean:.0%}",
        "full": one.full,
        "none": one.none,
        "time": _seconds(one.median_seconds),
    }


def _check(one: OfCheck) -> dict[str, Any]:
    shown = (Outcome.PASSED, Outcome.PARTIAL, Outcome.FAILED)
    others = {outcome: n for outcome, n in one.outcomes.items() if outcome not in shown}
    remarks = [one.remark, f"override: {one.overridden}" if one.overridden else ""]
    return {
        "number": one.result.number,
        "id": one.result.id,
        "title": one.result.title,
        "kind": one.result.kind,
        "points": points_text(one.points),
        "passed": "" if one.pass_rate is None else f"{one.pass_rate:.0%}",
        "partial": one.outcomes[Outcome.PARTIAL] or "",
        "failed": one.outcomes[Outcome.FAILED] or "",
        "other": sum(others.values()) or "",
        "others": ", ".join(f"{outcome}: {n}" for outcome, n in others.items()),
        "median": _seconds(one.median_seconds),
        "longest": _seconds(max(one.seconds, default=None)),
        "remark": ", ".join(filter(None, remarks)),
    }


def _slowest(scored: Sequence[Scored]) -> list[dict[str, Any]]:
    graded = [(one.record.grading.seconds, one) for one in scored if one.record]
    found = []
    for seconds, one in sorted(graded, key=lambda pair: -pair[0])[:_SLOWEST]:
        longest = sorted(one.checks, key=lambda check: -(check.result.seconds or 0))[:3]
        told = [f"{check.result.id} {_seconds(check.result.seconds)}" for check in longest]
        found.append(
            {
                "name": one.entry.name,
                "seconds": seconds,
                "time": f"{seconds:.0f} s",
                "checks": ", ".join(told),
            }
        )
    return found


def _facts(scored: Sequence[Scored]) -> list[tuple[str, str]]:
    """What all gradings have in common, and where they do not, what there is."""
    found: dict[str, dict[str, None]] = {}
    for one in scored:
        if one.record:
            for name, version in one.record.grading.versions.items():
                found.setdefault(name, {})[version] = None
            official = "yes" if one.record.official else "no"
            found.setdefault("official", {})[official] = None
    return [(name, " and ".join(values)) for name, values in found.items()]


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f} s"
