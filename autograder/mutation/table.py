"""What `autograder mutate` shows: a line for each change as it is tried, then the sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console

from autograder.mutation.candidates import Candidate, equivalents
from autograder.mutation.trials import Result

ENOUGH = 0.9  # of the changes that are not equivalent must be noticed


def told(console: Console, count: int, one: Candidate, result: Result, done: int) -> None:
    """One change, and what came of it."""
    what = f"noticed by {result.by}" if result.killed else "SURVIVES"
    line = (
        f"{done} of {count}  {one.module}.py:{one.line} {one.name}  {what}  {result.seconds:.1f} s"
    )
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def report(console: Console, found: Sequence[Candidate], results: Mapping[str, Result]) -> bool:
    """The sums; whether enough were noticed."""
    lines, good = summary(found, results, equivalents())
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return good


def summary(
    found: Iterable[Candidate], results: Mapping[str, Result], known: Mapping[str, str]
) -> tuple[list[str], bool]:
    """Lines, by module and in all, with the survivors; and whether enough were noticed.

    known: the equivalent ones, with reasons.
    """
    found = list(found)
    graded = [one for one in found if one.id in results]
    lines = []
    for module in [*dict.fromkeys(one.module for one in graded), ""]:
        own = [one for one in graded if module in ("", one.module)]
        real = [one for one in own if results[one.id].killed or one.id not in known]
        killed = sum(results[one.id].killed for one in real)
        share = f"{killed / len(real):.1%}" if real else "-"
        lines.append(
            f"{module or 'all':<20} {killed:>5} of {len(real):>5} noticed, {share:>6}"
            f"   ({len(own) - len(real)} equivalent)"
        )
    killed_ids = {id for id, result in results.items() if result.killed}
    survivors = [one for one in graded if one.id not in killed_ids]
    lines += [
        f"survives: {one.module}.py:{one.line} {one.name}"
        for one in survivors
        if one.id not in known
    ]
    lines += [f"equivalent: {one.id} ({known[one.id]})" for one in survivors if one.id in known]
    modules, ids = {one.module for one in found}, {one.id for one in found}
    lines += [
        f"equivalent.toml names what is not there: {id}"
        for id in known
        if id not in ids and id.partition(".")[0] in modules
    ]
    lines += [f"equivalent.toml names what is noticed: {id}" for id in known if id in killed_ids]
    real = [one for one in graded if one.id in killed_ids or one.id not in known]
    killed = len([one for one in real if one.id in killed_ids])
    return lines, bool(real) and killed >= ENOUGH * len(real)
