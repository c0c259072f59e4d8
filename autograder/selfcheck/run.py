"""Tries everything that a plan names, on all cores, and collects what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from multiprocessing import get_context

import multirank
from autograder.digest import grader_digest
from autograder.grade import Outcome
from autograder.manifest import Manifest
from autograder.paths import ASSIGNMENT, REFERENCE, ROOT, module_files
from autograder.report import RECORD
from autograder.selfcheck import plan
from autograder.selfcheck.alternatives import ALTERNATIVES
from autograder.selfcheck.mutants import MUTANTS
from autograder.selfcheck.public import run_public_tests
from autograder.selfcheck.trial import (
    Diagnosis,
    Trial,
    graded,
    judge_reference,
    judge_stub,
    planned_rows,
    try_variant,
)
from autograder.selfcheck.variant import Alternative, Files, Variant

REPETITIONS = 20  # gradings of the reference beside busy cores, in a full run
ACCURACY = Fraction(4, 5)  # of the mutants at least are told their true cause
PUBLIC_SHARE = Fraction(3, 4)  # what passing all public tests earns of a part at least
_BUSY = "while True: pass"
ON_REFERENCE, ON_STUBS = "the reference", "the stubs"


@dataclass
class Result:
    """What a run found.

    trials: of variants, by their names. others: of the reference, the stubs and the public tests.
    problems: complaints that concern no trial of their own.
    """

    tried: Sequence[Variant]
    checks: Sequence[str]
    trials: dict[str, Trial] = field(default_factory=dict)
    others: list[Trial] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def diagnosed(self) -> list[Trial]:
        """The trials of mutants."""
        return [trial for trial in self.trials.values() if trial.diagnosis is not None]

    @property
    def accuracy(self) -> Fraction:
        """The part of the mutants that are told their true cause."""
        named = sum(trial.diagnosis is Diagnosis.NAMED for trial in self.diagnosed)
        return Fraction(named, len(self.diagnosed)) if self.diagnosed else Fraction(1)

    @property
    def all_complaints(self) -> list[tuple[str, str]]:
        """(what it is about, what is wrong)."""
        found = [
            (trial.name, complaint)
            for trial in (*self.others, *self.trials.values())
            for complaint in trial.complaints
        ]
        return found + [("the selfcheck", complaint) for complaint in self.complaints]

    @property
    def good(self) -> bool:
        return not self.all_complaints


def run(manifest: Manifest, *, quick: bool, told: Callable[[Trial, int, int], None]) -> Result:
    """Tries the reference, the stubs, the variants and the public tests of a manifest's problems.

    quick: a selection, and every variant in its own problems alone; else all of them in the whole
        part, the public tests on every alternative, and repetitions beside busy cores.
    told: called after every trial, with how many are done and how many there are.
    """
    started = time.monotonic()
    multirank.start()
    checks = [row.check_id for row in planned_rows(manifest)]
    everything = of_manifest(manifest)
    variants = (
        plan.quick(everything, checks, plan.changed_problems(manifest)) if quick else everything
    )
    result = Result(variants, checks)
    result.complaints += uncovered(checks)
    with ProcessPoolExecutor(os.cpu_count() or 1, get_context("spawn")) as pool:
        others, trials = _submitted(pool, manifest, variants, quick)
        count = len(others) + len(trials) + (0 if quick else REPETITIONS)
        for done, future in enumerate(as_completed([*others, *trials]), 1):
            trial = future.result()
            if future in trials:
                result.trials[trial.name] = trial
            else:
                result.others.append(trial)
            told(trial, done, count)
    if not quick:
        for trial in _repeated(manifest):
            result.others.append(trial)
            told(trial, count - REPETITIONS + len(result.others) - len(others), count)
    if len(variants) == len(everything):
        judge_diagnosis(result)
    result.seconds = time.monotonic() - started
    return result


def of_manifest(manifest: Manifest) -> list[Variant]:
    """The variants of its problems."""
    ids = {problem.id for problem in manifest.problems}
    variants: list[Variant] = [*MUTANTS, *ALTERNATIVES]
    return [one for one in variants if one.problem in ids]


def uncovered(checks: Sequence[str]) -> list[str]:
    """A check that no mutant loses might as well be empty."""
    return [
        f"no mutant loses {id}: nobody knows whether that check can fail"
        for id in checks
        if not any(mutant.must_lose(id) for mutant in MUTANTS)
    ]


def judge_diagnosis(result: Result) -> None:
    """Of all mutants of a part at least; of one problem's a single silent one is a large share."""
    if result.accuracy < ACCURACY:
        silent = [
            trial.name for trial in result.diagnosed if trial.diagnosis is not Diagnosis.NAMED
        ]
        result.complaints.append(
            f"only {float(result.accuracy):.0%} of the mutants are told their true cause, not "
            f"{float(ACCURACY):.0%}; without it are: {'; '.join(silent)}"
        )


Futures = list["Future[Trial]"]


def _submitted(
    pool: ProcessPoolExecutor, manifest: Manifest, variants: Sequence[Variant], quick: bool
) -> tuple[Futures, Futures]:
    """The longest first, so that no core is idle at the end."""
    others = []
    for name, grade in (("reference", _try_reference), ("assignment", _try_stubs)):
        if not (quick and _just_graded(name)):
            others.append(pool.submit(grade, manifest))
    for module in manifest.modules:
        for on, folder in ((ON_REFERENCE, REFERENCE), (ON_STUBS, ASSIGNMENT)):
            others.append(pool.submit(try_public, module, on, module_files(folder)))
    trials = [pool.submit(_try, manifest, one, quick) for one in variants]
    return others, trials


def _try_reference(manifest: Manifest, seed: int = 1) -> Trial:
    started = time.monotonic()
    trial = judge_reference(graded(manifest, module_files(REFERENCE), seed=seed).rows)
    return replace(trial, seconds=time.monotonic() - started)


def _try_stubs(manifest: Manifest) -> Trial:
    started = time.monotonic()
    trial = judge_stub(graded(manifest, module_files(ASSIGNMENT)).rows)
    return replace(trial, seconds=time.monotonic() - started)


def try_public(module: str, on: str, files: Files) -> Trial:
    """The public tests of a module: all must pass on the reference, and fail on the stubs."""
    started = time.monotonic()
    public = run_public_tests(files, module)
    if on == ON_REFERENCE:
        complaints = [f"{name} fails" for name in sorted(public.failed)]
    else:
        complaints = [f"{name} passes" for name in sorted(public.passed)]
    if not public.passed | public.failed:
        complaints.append("there are none")
    name = f"public tests of {module}, on {on}"
    return Trial(name, tuple(complaints), seconds=time.monotonic() - started)


def _try(manifest: Manifest, variant: Variant, quick: bool) -> Trial:
    """A variant; where something is promised of the public tests, those on it too."""
    trial = try_variant(manifest, variant, whole_part=not quick)
    must_pass = isinstance(variant, Alternative) and not quick
    if not must_pass and trial.kept >= PUBLIC_SHARE:
        return trial
    module = manifest.problem(variant.problem).module
    public = run_public_tests(variant.files, module)
    return judge_public(variant, trial, caught=bool(public.failed))


def judge_public(variant: Variant, trial: Trial, *, caught: bool) -> Trial:
    """A student whose public tests all pass was promised most of the points."""
    complaints = list(trial.complaints)
    if isinstance(variant, Alternative) and caught:
        complaints.append("fails a public test, although it is right")
    if not caught and trial.kept < PUBLIC_SHARE:
        complaints.append(
            f"passes all public tests, but keeps only {float(trial.kept):.0%} of the part, not "
            f"{float(PUBLIC_SHARE):.0%}"
        )
    return replace(trial, complaints=tuple(complaints))


def _just_graded(name: str) -> bool:
    """Whether `autograder grade` has found what is right for it, with the grader as it is now."""
    try:
        record = json.loads((ROOT / "graded" / name / RECORD).read_text(encoding="utf-8"))
        right = Outcome.PASSED if name == "reference" else Outcome.FAILED
        return record["grading"]["versions"]["grader"] == grader_digest() and all(
            check["outcome"] in (right.value, Outcome.TOO_NOISY.value) for check in record["checks"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _repeated(manifest: Manifest) -> Iterator[Trial]:
    """The reference again and again, with other inputs each time, while all cores are busy."""
    with _busy_cores():
        for seed in range(REPETITIONS):
            trial = _try_reference(manifest, seed)
            yield replace(trial, name=f"the reference beside busy cores, inputs {seed}")


@contextmanager
def _busy_cores() -> Iterator[None]:
    busy = [
        subprocess.Popen([sys.executable, "-I", "-c", _BUSY]) for _ in range(os.cpu_count() or 1)
    ]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
