"""One check of one graded submission, run again: for whoever answers a regrade request.

It runs on the modules that were stored when the submission was graded, with the same inputs. What
comes of it is told in words that the student may read: the rows of a result, and nothing of inputs,
seeds or the reference.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

import multirank
from autograder import circumstances
from autograder.backend import BackendName, NoSuchBackend, find
from autograder.batch import files, records
from autograder.batch.commands import DONE, FAULT, USAGE, failed
from autograder.batch.outcome import GRADING
from autograder.batch.store import SUBMISSION
from autograder.confine import process
from autograder.confine.modes import CannotConfine, Isolation, choose
from autograder.grade import Outcome, Row, points_text
from autograder.grading import Grading
from autograder.inputs import SecretError, secret_of
from autograder.intake import NoSuchSubmission, UnusableSubmission, take
from autograder.manifest import Manifest, ManifestError, load
from autograder.paths import REFERENCE, module_files
from autograder.record import NoGrade, Record
from autograder.record import read as read_record
from autograder.report import RECORD
from autograder.text import fenced_markdown, safe_line
from autograder.turns import Turns


class CannotReplay(ValueError):
    """The check cannot be run again as it was; the message says why, and what would help."""


@dataclass(frozen=True)
class Replayed:
    """A check as it came out then and now. same_grader: of the same version, both times."""

    before: Row
    now: Row
    same_grader: bool

    @property
    def changed(self) -> bool:
        before, now = self.before, self.now
        # By parts, since the course may give other points now.
        same = before.score * now.points == now.score * before.points
        return before.outcome is not now.outcome or not same


def replay(
    path: Path,
    check: str,
    manifest: Manifest,
    *,
    submission: Path | None = None,
    seed: int | None = None,
    isolation: Isolation = Isolation.AUTO,
) -> Replayed:
    """Runs the check again.

    path: a grade.json, or the folder that it is in; of a batch, a student's among the staff's. What
        was graded counts there, not what an override makes of it. submission: what was handed in,
        where it was not stored. seed: the one that the submission was graded with, if any.

    Raises:
        CannotReplay: there is no such check, or submission, or its inputs would be others.
    """
    file = path / RECORD if path.is_dir() else path
    graded = file.parent / GRADING / RECORD
    file = graded if graded.exists() else file
    try:
        record = read_record(file)
    except NoGrade as error:
        raise CannotReplay(f"{error} Name a grade.json, or the folder that it is in.") from None
    grade = records.grade_of(record)
    rows = {row.check_id: row for row in grade.rows} | {row.number: row for row in grade.rows}
    if check not in rows:
        near = difflib.get_close_matches(check, rows, n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else "."
        raise CannotReplay(f"There is no check {safe_line(check)!r} in this grade{hint}")
    before = rows[check]
    secret = secret_of(seed)
    if secret.fingerprint != record.grading.secret_fingerprint:
        raise CannotReplay(
            "This was graded with another secret, so its inputs would be others. Set "
            "AUTOGRADER_PRIVATE to where that one is kept, or give the --seed that was used."
        )
    backend = find(BackendName(record.grading.backend or "gloo"))
    about = circumstances.about(manifest, secret, [before.check_id], choose(isolation), backend)
    again = Grading(
        manifest.on_gpus() if backend.on_gpus else manifest,
        _files(file, record, manifest, submission),
        module_files(REFERENCE),
        secret,
        about,
        only=[before.check_id],
        confinement=choose(isolation),
        backend=backend,
        turns=Turns(),
    ).run()
    now = next(row for row in again.rows if row.check_id == before.check_id)
    same = about.versions["grader"] == record.grading.versions.get("grader")
    return Replayed(before, now, same)


def _files(
    file: Path, record: Record, manifest: Manifest, submission: Path | None
) -> Mapping[str, bytes]:
    """What was handed in, to the byte."""
    if submission is not None:
        taken = take(submission, known=manifest.modules)
        if taken.digest != record.submission.digest:
            raise CannotReplay(f"{submission} is not the submission that was graded.")
        return taken.files
    folder = file.parent / SUBMISSION
    if folder.is_dir():
        return {one.name: one.read_bytes() for one in sorted(folder.iterdir())}
    raise CannotReplay(
        "The submission does not lie beside this grade, as it does after `autograder batch`. "
        "Name it with --submission."
    )


def explanation(replayed: Replayed) -> str:
    """What came of it, in Markdown; fit for the student."""
    now, before = replayed.now, replayed.before
    parts = [f"# Check {now.number}: {now.title}", _result(replayed)]
    if now.message:
        parts += ["What is wrong:", fenced_markdown(now.message)]
    if now.causes:
        parts.append("\n".join(f"- {safe_line(cause)}" for cause in now.causes))
    if now.facts:
        parts.append("It ran with " + ", ".join(f"{k} {v}" for k, v in now.facts.items()) + ".")
    if now.log:
        parts += ["The end of what the program printed:", fenced_markdown(now.log)]
    if now.advice:
        parts += ["The nearest test on your own machine:", fenced_markdown(now.advice)]
    if replayed.changed and before.message:
        parts += ["What was said when it was graded:", fenced_markdown(before.message)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _result(replayed: Replayed) -> str:
    now, before = replayed.now, replayed.before
    earned = _earned(now)
    again = "This check was run again on the work that was handed in, with the same inputs"
    again += "." if replayed.same_grader else ", by a newer version of the grader."
    if replayed.changed:
        then = _earned(before)
        return f"{again} It came out otherwise: {earned}. When it was graded: {then}."
    return f"{again} It came out the same: {earned}."


def _earned(row: Row) -> str:
    return f"{row.outcome.value}, {points_text(row.score)} of {points_text(row.points)} points"


def command(
    console: Console,
    path: Path,
    check: str,
    out: Path | None,
    submission: Path | None,
    seed: int | None,
    isolation: Isolation,
) -> int:
    """Runs a check again and writes the explanation; the exit code."""
    process.hide()
    multirank.start()
    try:
        replayed = replay(
            path,
            check,
            load(REFERENCE),
            submission=submission,
            seed=seed,
            isolation=isolation,
        )
    except (CannotReplay, SecretError, UnusableSubmission, NoSuchSubmission) as error:
        return failed(console, USAGE, str(error))
    except (ManifestError, CannotConfine, NoSuchBackend) as error:
        return failed(console, USAGE, str(error))
    except Exception:
        return failed(console, FAULT, traceback.format_exc())
    told = explanation(replayed)
    folder = path if path.is_dir() else path.parent
    name = f"replay-{replayed.now.check_id.replace('/', '-')}.md"
    target = out or folder / files.as_name(name)
    files.replace(target, told)
    console.print(Text(told))
    console.print(Text(safe_line(str(target), 1000), style="dim"), soft_wrap=True)
    return FAULT if replayed.now.outcome is Outcome.GRADER_FAULT else DONE
