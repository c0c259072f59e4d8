"""The command line: `autograder grade PATH`, `autograder stubs`, `autograder selfcheck`."""

from __future__ import annotations

import functools
import math
import stat
import time
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import multirank
from autograder import backend as backends
from autograder import (
    circumstances,
    doctor,
    exchange,
    mutation,
    policy,
    release,
    report,
    show,
    stubs,
)
from autograder import manifest as manifests
from autograder.backend import Backend, BackendName
from autograder.batch import command_line, replay
from autograder.confine import process
from autograder.confine.modes import (
    CannotConfine,
    Confinement,
    Isolation,
    choose,
)
from autograder.flags import suspicions
from autograder.grade import BUDGET, About, Grade, Outcome
from autograder.grading import GraderFault, Grading, UnfairChecks, UnknownCheck
from autograder.inputs import SecretError, course_secret, secret_of
from autograder.intake import NoSuchSubmission, Submission, UnusableSubmission, take
from autograder.machine import ENOUGH_GPUS
from autograder.mutation import table as mutation_table
from autograder.paths import (
    ASSIGNMENT,
    REFERENCE,
    ROOT,
    SECRET_NAME,
    module_files,
    private_directory,
)
from autograder.platforms import gradescope
from autograder.selfcheck import run as selfcheck
from autograder.selfcheck import table as selfcheck_table
from autograder.text import safe, safe_line
from autograder.turns import Turns

DONE, UNUSABLE, FAULT = 0, 2, 3


app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Grades submissions of the distributed-training assignment.",
)


@app.callback()
def _root() -> None:
    """Grades submissions of the distributed-training assignment."""


command_line.register(app)


@app.command()
def grade(
    path: Annotated[Path, typer.Argument(help="A folder, zip, tar or git checkout.")],
    out: Annotated[
        Path | None, typer.Option(help="Where the results go. Default: graded/ and its name.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="A part (ddp or 3), a problem (all_reduce or 1.7) or a check; may be repeated."
        ),
    ] = None,
    isolation: Annotated[
        Isolation, typer.Option(help="What confines the submission; auto is the strongest here.")
    ] = Isolation.AUTO,
    official: Annotated[
        bool, typer.Option("--official", help="Refuse to grade if the result would not count.")
    ] = False,
    backend: Annotated[
        BackendName,
        typer.Option(
            help="nccl runs the checks on this machine's GPUs, for points of their own; auto does "
            f"where there are {ENOUGH_GPUS} or more."
        ),
    ] = BackendName.GLOO,
    seed: Annotated[
        int | None,
        typer.Option(help="Inputs from this number instead of the secret: not official."),
    ] = None,
    metadata: Annotated[
        Path | None,
        typer.Option(help="Gradescope's submission_metadata.json: when the work was handed in."),
    ] = None,
    budget: Annotated[
        float, typer.Option(min=1, help="Seconds that the checks may take in all.")
    ] = BUDGET,
) -> None:
    """Grade one submission.

    Exit code: 0 when grading completed, whatever the score; 2 when nothing could be graded; 3 when
    the grader itself failed.
    """
    console = Console()
    process.hide()
    multirank.start()
    try:
        confinement = choose(isolation)
        found = backends.find(backend)
        asked = _Asked(path, out, only or [], seed, official, metadata, budget)
        code = _grade(console, asked, confinement, found)
        said = ""
    except (
        *(NoSuchSubmission, UnknownCheck, NoPlaceForResults),
        *(CannotConfine, NotOfficial, backends.NoSuchBackend),
    ) as error:
        code, said = UNUSABLE, str(error)
    except (manifests.ManifestError, SecretError, UnfairChecks, GraderFault) as error:
        code, said = FAULT, str(error)
    except Exception:
        code, said = FAULT, traceback.format_exc()
    if said:
        console.print(safe(said), style="red", markup=False, highlight=False)
    raise typer.Exit(code)


@app.command("stubs")
def regenerate_stubs(
    check: Annotated[
        bool, typer.Option("--check", help="Only say what differs; exit code 1 if anything does.")
    ] = False,
) -> None:
    """Generate assignment/ from reference/."""
    console = Console()
    try:
        if check:
            lines = stubs.check(REFERENCE, ASSIGNMENT)
        else:
            lines = [
                f"wrote {file.relative_to(ROOT)}" for file in stubs.write(REFERENCE, ASSIGNMENT)
            ]
    except (stubs.StubError, manifests.ManifestError) as error:
        console.print(str(error), style="red", markup=False, highlight=False)
        raise typer.Exit(1) from None
    for line in lines:
        console.print(line, markup=False, highlight=False)
    raise typer.Exit(1 if check and lines else DONE)


@app.command("release")
def make_the_release(
    out: Annotated[Path, typer.Option(help="The folder that the archive goes to.")] = Path("build"),
    solution: Annotated[
        bool, typer.Option("--solution", help="With the solution, for after the deadline.")
    ] = False,
) -> None:
    """Make the archive that students get.

    Exit code: 1, and no archive, where anything is in it that must not be.
    """
    console = Console()
    try:
        archive, said = release.make(solution=solution, secret=_secret_here())
    except (release.ReleaseError, stubs.StubError, manifests.ManifestError, SecretError) as error:
        archive, said = None, [str(error)]
    if archive is not None:
        path = out / release.name(solution=solution)
        out.mkdir(parents=True, exist_ok=True)
        path.write_bytes(archive)
        said = [str(path), *said]
    for line in said:
        style = "red" if archive is None else ""
        console.print(safe(line), style=style, markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(DONE if archive is not None else 1)


@app.command("selfcheck")
def check_the_grader(
    quick: Annotated[
        bool, typer.Option("--quick", help="A selection, for a commit: some minutes.")
    ] = False,
    part: Annotated[
        str | None, typer.Option(help="Only this part, such as collectives. Default: all.")
    ] = None,
) -> None:
    """Grade the grader: known mistakes must lose points, other right solutions must not.

    Exit code: 0 when every promise is kept, 1 otherwise.
    """
    console = Console()
    try:
        manifest = manifests.load(REFERENCE)
        manifest = manifest.only_part(part) if part else manifest
    except manifests.ManifestError as error:
        console.print(str(error), style="red", markup=False, highlight=False)
        raise typer.Exit(UNUSABLE) from None
    told = functools.partial(selfcheck_table.told, console)
    result = selfcheck.run(manifest, quick=quick, told=told)
    selfcheck_table.report(console, manifest, result)
    raise typer.Exit(DONE if result.good else 1)


@app.command("replay")
def run_a_check_again(
    path: Annotated[Path, typer.Argument(help="A grade.json, or the folder that it is in.")],
    check: Annotated[str, typer.Option(help="Its id or number, such as 1.7.2.")],
    out: Annotated[
        Path | None, typer.Option(help="Where the explanation goes. Default: beside the grade.")
    ] = None,
    submission: Annotated[
        Path | None, typer.Option(help="What was handed in, where it was not stored.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The one it was graded with, if any.")] = None,
    isolation: Annotated[
        Isolation, typer.Option(help="What confines the submission.")
    ] = Isolation.AUTO,
) -> None:
    """Run one check of a graded submission again, and explain it so that the student may read it.

    Exit code: 0 when it ran, whatever came of it; 2 when it could not; 3 when the grader failed.
    """
    code = replay.command(Console(), path, check, out, submission, seed, isolation)
    raise typer.Exit(code)


@app.command("mutate")
def mutate_the_reference(
    module: Annotated[
        list[str] | None, typer.Option(help="Only this module, such as ddp; may be repeated.")
    ] = None,
    sample: Annotated[
        int | None, typer.Option(help="Only so many changes, drawn at random. Default: all.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Where drawing them begins.")] = 1,
    minutes: Annotated[
        float, typer.Option(help="Stop then; the next call goes on from there.")
    ] = math.inf,
    memory: Annotated[Path, typer.Option(help="Where results are kept.")] = Path(
        ".nightly/mutation.jsonl"
    ),
) -> None:
    """Change the reference in small ways, one at a time: do the checks notice?

    Exit code: 0 when all were tried and nine in ten noticed, 1 otherwise.
    """
    console = Console()
    try:
        manifest = manifests.load(REFERENCE)
        chosen = mutation.candidates(manifest, module or manifest.modules)
    except (manifests.ManifestError, stubs.StubError) as error:
        console.print(str(error), style="red", markup=False, highlight=False)
        raise typer.Exit(UNUSABLE) from None
    if sample is not None:
        chosen = mutation.sample(chosen, sample, seed)
    multirank.start()
    remembered = mutation.Memory(memory)
    told = functools.partial(mutation_table.told, console, len(chosen))
    done = mutation.run(manifest, chosen, remembered, told, time.monotonic() + 60 * minutes)
    good = mutation_table.report(console, chosen, remembered.results)
    raise typer.Exit(DONE if done and good else 1)


@app.command("doctor")
def tell_of_this_machine(
    official: Annotated[
        bool,
        typer.Option("--official", help="Exit code 2 unless official results can be had here."),
    ] = False,
) -> None:
    """Show backends, GPUs, isolation layers and the course's secret on this machine."""
    found = doctor.findings()
    show.findings(Console(), found)
    raise typer.Exit(UNUSABLE if official and not doctor.can_be_official(found) else DONE)


exchange.register(app)


class NotOfficial(ValueError):
    """An official result was asked for, and this one would not be."""


class NoPlaceForResults(ValueError):
    """The results cannot be written where they should go."""


@dataclass(frozen=True)
class _Asked:
    """The arguments of one grading."""

    path: Path
    out: Path | None
    only: list[str]
    seed: int | None
    official: bool
    metadata: Path | None
    budget: float


def _grade(console: Console, asked: _Asked, confinement: Confinement, backend: Backend) -> int:
    manifest = manifests.load(REFERENCE)
    manifest = manifest.on_gpus() if backend.on_gpus else manifest
    path, only = asked.path, asked.only
    secret = secret_of(asked.seed)
    about = circumstances.about(manifest, secret, only, confinement, backend)
    if asked.official and about.unofficial:
        raise NotOfficial(
            f"This would not be official: {'; '.join(about.unofficial)}."
            + (_STRONGER if confinement.mode is Isolation.NONE else "")
        )
    unusable = ""
    try:
        submission = take(path, known=manifest.modules)
    except UnusableSubmission as error:
        submission, unusable = Submission({}, [], safe_line(path.name)), str(error)
        about.notices.append(unusable)
    about.source, about.digest = submission.source, submission.digest
    about.ignored = submission.ignored
    about.flags += suspicions(submission.files, [item.name for item in submission.ignored])
    handed_in = _handed_in(asked.metadata, manifest.course, about)
    if handed_in:
        about.decision = policy.late(manifest.course.policy.lateness, handed_in)
        about.counted = gradescope.in_words(handed_in.earlier)
    out_dir = _made(asked.out or Path("graded") / (path.resolve().name or "submission"))
    turns = Turns()
    grading = Grading(
        manifest,
        submission.files,
        module_files(REFERENCE),
        secret,
        about,
        unusable=unusable,
        only=only,
        budget=asked.budget,
        confinement=confinement,
        backend=backend,
        turns=turns,
    )
    with show.Progress(console) as progress:
        graded = _run(grading, turns, out_dir, progress)
    faults = any(row.outcome is Outcome.GRADER_FAULT for row in graded.rows)
    if handed_in and not faults:
        about.counted = gradescope.in_words([*handed_in.earlier, handed_in.when])
    about.finished = datetime.now(UTC).isoformat(timespec="seconds")
    report.write_all(graded, out_dir)
    show.report(console, graded, out_dir)
    if unusable:
        return UNUSABLE
    return FAULT if faults else DONE


def _run(grading: Grading, turns: Turns, out_dir: Path, progress: show.Progress) -> Grade:
    """Grades, with results.json on disk after every check, whatever happens next."""
    started = time.monotonic()
    latest: list[Grade] = []

    def changed(grade: Grade) -> None:
        if not latest:  # nothing of an earlier grading may lie beside this one's results
            for name in (report.RECORD, report.PAGE, report.STAFF_PAGE):
                (out_dir / name).unlink(missing_ok=True)
        latest[:] = [grade]
        grading.about.seconds = time.monotonic() - started - turns.waited
        report.write_results(grade, out_dir)
        progress(grade)

    grading.changed = changed
    try:
        return grading.run()
    except Exception:
        grading.about.notices.append(_BROKEN_OFF)
        for grade in latest:
            report.write_results(grade, out_dir)
        raise


def _handed_in(
    metadata: Path | None, course: manifests.Course, about: About
) -> policy.HandedIn | None:
    if metadata is None:
        return None
    try:
        return gradescope.read(metadata, course)[0]
    except gradescope.UnknownMetadata as error:
        about.flags.append(f"no rule for lateness was applied: {error}")
        return None


_STRONGER = " Grade as root, with --isolation auto; `autograder doctor` tells what works here."
_BROKEN_OFF = (
    "The grader itself failed before it was done. That is not your fault, and the staff will grade "
    "your work again."
)


def _made(out_dir: Path) -> Path:
    """The directory, in which nobody but us can put, replace or remove a result."""
    try:
        out_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = out_dir.stat().st_mode
        if mode & 0o022 and not mode & stat.S_ISVTX:
            out_dir.chmod(mode & 0o755)
    except OSError as error:
        shown = safe_line(str(out_dir), 1000)
        raise NoPlaceForResults(
            f"The results cannot be written to {shown}: {error.strerror}."
        ) from None
    return out_dir


def _secret_here() -> bytes | None:
    """The course's secret, where this machine has one already."""
    directory = private_directory()
    return course_secret(directory).value if (directory / SECRET_NAME).exists() else None


def main() -> None:
    """The entry point."""
    app()
