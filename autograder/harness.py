"""What a platform runs for one submission: `python -m autograder.harness`, by run_autograder.

It supervises a grading in a process of its own, so that whatever becomes of that one, a valid
result lies there from the first second on and the platform's time is never used up: one that hangs
is ended, one that dies is told of as not the student's fault. It imports neither torch nor any
check.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autograder import manifest as manifests
from autograder import policy
from autograder.atomic import replace_file
from autograder.manifest import Course
from autograder.paths import REFERENCE, SECRET_NAME, private_directory
from autograder.platforms import gradescope

# Of the time that the platform gives: for a start on a slow machine, the last reports and the end
# of all processes; and for what we do after that.
KEPT_FOR_REPORTS, KEPT_FOR_THE_END = 90.0, 30.0


@dataclass(frozen=True)
class Places:
    """Where things lie, as on Gradescope."""

    root: Path

    @property
    def submission(self) -> Path:
        return self.root / "submission"

    @property
    def metadata(self) -> Path:
        return self.root / "submission_metadata.json"

    @property
    def out(self) -> Path:
        return self.root / "results"

    @property
    def results(self) -> Path:
        return self.out / "results.json"


def run(places: Places, options: Sequence[str], seconds: float) -> None:
    """Grades what lies there; its results lie there when it returns, at most `seconds` later.

    options: further ones of `autograder grade`.
    """
    started = time.monotonic()
    _keep_private(places)
    _write(places, gradescope.started())
    handed_in, course = None, _course()
    with contextlib.suppress(gradescope.UnknownMetadata):  # which the grading tells staff of
        handed_in, last = gradescope.read(places.metadata, course)
        decision = policy.apply(course.policy, handed_in)
        if decision.refused:
            _write(places, gradescope.refused(" ".join(decision.reasons), last, handed_in))
            return
    options = [*options, *_without_secret()]
    command = [
        *(sys.executable, *(("-I",) if sys.flags.isolated else ()), "-m", "autograder"),
        *("grade", str(places.submission)),
        *("--out", str(places.out), "--budget", str(seconds - KEPT_FOR_REPORTS)),
        *(("--metadata", str(places.metadata)) if places.metadata.exists() else ()),
        *options,
    ]
    _supervise(command, started + seconds - KEPT_FOR_THE_END)
    found = _found(places)
    if not _is_whole(found):
        _write(places, gradescope.failed(found, handed_in))


def _course() -> Course:
    try:
        return manifests.load(REFERENCE).course
    except manifests.ManifestError:  # which the grading tells of
        return Course("")


def _without_secret() -> Sequence[str]:
    """What to add where the course's secret was not brought along.

    One made here would be gone with this container, and every regrade would draw other inputs.
    """
    if (private_directory() / SECRET_NAME).exists():
        return ()
    print(
        f"There is no course secret in {private_directory()}, so this result is not official: "
        "put the file that `autograder grade` made on your machine there.",
        file=sys.stderr,
    )
    return ("--seed", "0")


def _keep_private(places: Places) -> None:
    """Who handed in what, and the results, are nobody's business that a submission may become."""
    places.out.mkdir(parents=True, exist_ok=True)
    for path, mode in ((places.out, 0o700), (places.submission, 0o700), (places.metadata, 0o600)):
        with contextlib.suppress(OSError):  # not there, or mounted read-only
            path.chmod(mode)


def _write(places: Places, results: dict[str, Any]) -> None:
    replace_file(places.results, json.dumps(results, allow_nan=False, indent=1) + "\n")


def _supervise(command: Sequence[str], deadline: float) -> None:
    """Runs the command, and ends all of its processes when it is over or the deadline passes."""
    process = subprocess.Popen(command, start_new_session=True)
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        print("The grading took too long and was ended.", file=sys.stderr)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _found(places: Places) -> dict[str, Any]:
    try:
        found = json.loads(places.results.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_whole(results: dict[str, Any]) -> bool:
    extra = results.get("extra_data")
    return isinstance(extra, dict) and bool(extra.get("finished"))


def main() -> int:
    """Grades /autograder, or the folder that is laid out like it. All other options are those of
    `autograder grade`. Exit code 0: there are results."""
    parser = argparse.ArgumentParser(description=main.__doc__, allow_abbrev=False)
    parser.add_argument("--root", type=Path, default=Path("/autograder"))
    arguments, options = parser.parse_known_args()
    run(Places(arguments.root), options, 60.0 * _course().platform_minutes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
