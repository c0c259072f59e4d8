"""Grades one submission after the other in one process: each line of its input names one.

A line is JSON: `{"path": ..., "out": ..., "mode": ..., "only": [...]}`; the answer is one line,
with the command's exit code, how long it took, what it showed, the most memory that the grader has
held so far, in bytes, and what of the submission's user is left: files where everybody may write,
and processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from autograder import cli
from autograder.confine import namespaces
from autograder.turns import Turns
from multirank.processes import connect

USERS = range(20000, 30000)  # that submissions run as, where they do not run as the grader's own

Things = set[tuple[str, int]]
"""Paths, of processes those in /proc, and whose each is."""


def grade(asked: dict[str, Any]) -> dict[str, Any]:
    """Runs `autograder grade` as the line says."""
    options = ["--out", asked["out"], "--isolation", asked["mode"]]
    options += [word for check in asked["only"] for word in ("--only", check)]
    connect.leader().close()  # so that what starts ranks is there before,
    with Turns().beside_others():  # and the folder that graders of one user share
        pass
    before = things()
    started = time.monotonic()
    ended = CliRunner().invoke(cli.app, ["grade", asked["path"], *options])
    seconds = time.monotonic() - started
    return {
        "code": ended.exit_code,
        "seconds": seconds,
        "shown": ended.output,
        "most_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "left": sorted(left(before)),
    }


def things() -> Things:
    """What there is of the users that submissions run as."""
    users = {os.getuid()} if os.getuid() else {*USERS}
    found = set()
    for folder in namespaces.public():
        for path in Path(folder).iterdir():
            with contextlib.suppress(OSError):
                found.add((str(path), path.lstat().st_uid))
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            text = status.read_text()
            if "State:\tZ" not in text:
                owners = text.partition("Uid:")[2].splitlines()[0].split()
                found |= {(str(status.parent), int(owner)) for owner in owners}
    return {(path, owner) for path, owner in found if owner in users}


def left(before: Things) -> Things:
    """What is there besides, and stays: what another grader's world has ends with it."""
    more = things() - before
    for _ in range(3):
        if more:
            time.sleep(0.5)
            more &= things()
    return more


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(grade(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
