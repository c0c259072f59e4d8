"""Grades one submission after the other in one process: each line of its input names one.

A line is JSON: `{"path": ..., "out": ..., "mode": ..., "only": [...]}`; the answer is one line,
with the command's exit code, how long it took, what it showed, and the most memory that the grader
has held so far, in bytes.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

from typer.testing import CliRunner

from autograder import cli


def grade(asked: dict[str, Any]) -> dict[str, Any]:
    """Runs `autograder grade` as the line says."""
    options = ["--out", asked["out"], "--isolation", asked["mode"]]
    options += [word for check in asked["only"] for word in ("--only", check)]
    started = time.monotonic()
    ended = CliRunner().invoke(cli.app, ["grade", asked["path"], *options])
    return {
        "code": ended.exit_code,
        "seconds": time.monotonic() - started,
        "shown": ended.output,
        "most_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(grade(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
