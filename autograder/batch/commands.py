"""`autograder batch`, `replay` and `diff`: what they read, what they say, how they end.

Exit code: 0 when all is well; 2 for wrong usage; 3 when something could not be graded or judged
through a fault of the machine or the grader, or is not official although that was asked for; 130
when interrupted.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from autograder import manifest as manifests
from autograder.batch import (
    adjustments,
    conduct,
    files,
    live,
    movement,
    outcome,
    page,
    similarity,
    statistics,
)
from autograder.batch.executor import CannotGradeHere, Executor, NoSlurm, SlurmOptions
from autograder.batch.needs import TooFewGPUs, needs_of
from autograder.batch.people import Entry
from autograder.batch.scoring import (
    ClassGrades,
    Scored,
    Standing,
    grades,
    score,
    standing_grading,
)
from autograder.batch.sources import NoSubmissions, find
from autograder.batch.store import Place, Store
from autograder.digest import grader_digest
from autograder.inputs import SecretError, secret_of
from autograder.machine import ENOUGH_GPUS
from autograder.manifest import Manifest
from autograder.paths import REFERENCE
from autograder.text import safe

DONE, USAGE, FAULT, INTERRUPTED = 0, 2, 3, 130


@dataclass(frozen=True)
class Options:
    """The command line of `autograder batch`."""

    path: Path
    out: Path
    asked: conduct.Asked
    backend: str = "gloo"
    isolation: str = "auto"
    official: bool = False
    seed: int | None = None
    at_once: int = 0
    image: str = ""
    slurm: SlurmOptions | None = None


MakeExecutor = Callable[[Store, conduct.Settings, Options], Executor]


@dataclass(frozen=True)
class Result:
    """What a batch came to. unofficial: grades that are not official, where that was asked for."""

    grades: ClassGrades
    moves: tuple[movement.Move, ...]
    unofficial: tuple[Scored, ...] = ()

    @property
    def code(self) -> int:
        bad = any(one.fault or one.standing is Standing.OPEN for one in self.grades.scored)
        return FAULT if bad or self.unofficial else DONE


def settings_of(options: Options, manifest: Manifest) -> conduct.Settings:
    """How a batch with these options grades.

    Raises:
        SecretError: the course's secret cannot be used.
    """
    on_gpus = options.backend == "nccl"
    return conduct.Settings(
        manifest.on_gpus() if on_gpus else manifest,
        grader_digest(),
        secret_of(options.seed),
        needs_of(manifest.problems, gpus=ENOUGH_GPUS if on_gpus else 0),
        options.backend,
        options.isolation,
        options.official,
        options.image,
        options.seed,
    )


def batch(console: Console, options: Options) -> int:
    """Grades a class; the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        settings = settings_of(options, manifests.load(REFERENCE))
        make = on_slurm if options.slurm else on_this_machine
        return run(console, options, settings, make).code
    except KeyboardInterrupt:
        told = "Interrupted. What was finished is kept; the same command goes on from here."
        console.print(Text(told))
        return INTERRUPTED
    except (NoSubmissions, conduct.UnknownName, adjustments.BadAdjustments) as error:
        return failed(console, USAGE, str(error))
    except (manifests.ManifestError, SecretError, TooFewGPUs, NoSlurm) as error:
        return failed(console, USAGE, str(error))
    except CannotGradeHere as error:
        return failed(console, USAGE, str(error))
    except Exception:
        return failed(console, FAULT, traceback.format_exc())


def diff(console: Console, old: Path, new: Path) -> int:
    """Prints whose grade moves from one to the other; the exit code."""
    try:
        manifest = manifests.load(REFERENCE)
        before, after = movement.read(old, manifest), movement.read(new, manifest)
    except (movement.NothingToCompare, manifests.ManifestError) as error:
        return failed(console, USAGE, str(error))
    moves = movement.moves(before, after)
    live.show_moves(console, moves)
    lower = sum(move.after < move.before for move in moves)
    both = len(before.keys() & after.keys())
    console.print(Text(f"{len(moves)} of {both} grades move; {lower} of them down."))
    for name, told in (
        ("old", before.keys() - after.keys()),
        ("new", after.keys() - before.keys()),
    ):
        if told:
            console.print(Text(f"Only in the {name}: {', '.join(sorted(told))}"))
    return DONE


def failed(console: Console, code: int, said: str) -> int:
    """Says why; the exit code."""
    console.print(safe(said), style="red", markup=False, highlight=False)
    return code


def on_this_machine(store: Store, settings: conduct.Settings, options: Options) -> Executor:
    """The local executor, with as many workers as there is room for."""
    from autograder.batch.here import local_executor  # with torch: only where there is work

    return local_executor(store.out, settings, options.at_once)


def on_slurm(store: Store, settings: conduct.Settings, options: Options) -> Executor:
    """The Slurm executor."""
    from autograder.batch.slurm import SlurmExecutor

    assert options.slurm is not None
    return SlurmExecutor(store.out / "slurm", settings.needs, options.slurm)


def run(
    console: Console,
    options: Options,
    settings: conduct.Settings,
    make_executor: MakeExecutor,
) -> Result:
    """Grades what is left to grade, scores everything, and writes the results."""
    store, manifest = Store(options.out), settings.manifest
    asked = conduct.understood(options.asked, manifest)
    store.make()
    adjustments.read(store.out)  # a mistake in it is told now, not after a night
    found = find(options.path, store.out / "unpacked")
    chosen = conduct.chosen(found, asked)
    others = [entry for entry in found.entries if entry not in chosen]
    places = conduct.plan(store, settings, chosen, asked)
    theirs = conduct.plan(store, settings, others, conduct.Asked())
    standing = _Standing(store, manifest, {**places, **theirs})
    before = standing.of(found.entries)
    if asked.lower:
        conduct.let_lower(places.values())
    todo = [place for place in places.values() if not conduct.is_over(place)]
    if todo:
        entries = {entry.name: entry for entry in chosen}

        def scored(place: Place) -> Scored:
            return score(entries[place.name], place, manifest)

        watch = live.Watch(console, len(places), [one for one in before if one.record], scored)
        with closing(make_executor(store, settings, options)) as executor, watch:
            conduct.run(executor, todo, watch)
    store.request_met()
    with store.results():
        after = standing.of(found.entries)
        decided = grades(after, manifest, adjustments.read(store.out))
        moves = movement.of_regrade(before, after, manifest)
        _log_decisions(store, decided, moves)
        outcome.write(store, decided, manifest)
        fell = statistics.falls(before, after) if todo else []
        files.replace_if_other(store.out / page.NAME, page.render(decided, manifest, fell, found))
        similarity.write(store.out, after)
    unofficial = [one for one in after if one.record and not one.record.official]
    short = tuple(unofficial) if options.official else ()
    live.summary(console, decided, store.out, moves, short)
    return Result(decided, tuple(moves), short)


@dataclass(frozen=True)
class _Standing:
    """The grading of each entry that counts now."""

    store: Store
    manifest: Manifest
    places: Mapping[str, Place]

    def of(self, entries: Iterable[Entry]) -> list[Scored]:
        return [
            standing_grading(
                entry, self.store.of(entry.name), self.places[entry.name], self.manifest
            )
            for entry in entries
        ]


def _log_decisions(store: Store, decided: ClassGrades, moves: Sequence[movement.Move]) -> None:
    """Into log.jsonl: overrides and adjustments when they change, and every grade that moves.

    One that would move, and is kept, is found by every run; it is logged once.
    """
    overrides = {
        one.override.check: one.override
        for scored in decided.scored
        for one in scored.checks
        if one.override
    }
    adjusted = [one for final in decided.finals for one in final.adjustments]
    for what, values in (("overrides", list(overrides.values())), ("adjustments", adjusted)):
        told = [str(value) for value in values]
        if store.noted(what) != told:
            store.log(what, applied=told)
            store.note(what, told)
    kept = store.noted("kept")
    store.note("kept", [str(move) for move in moves if move.kept])
    for move in moves:
        if str(move) not in kept:
            points = {"from": float(move.before), "to": float(move.after), "taken": not move.kept}
            store.log("grade moves", submission=move.name, why=move.why, **points)
