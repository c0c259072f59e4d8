"""Runs a function of a file on several ranks: `python -m multirank train.py:main -n 4`.

What a rank prints is shown with its number. A hang, a mismatch or a failure ends the run and is
explained on standard error. `--timeline out.html` draws it, however it ended. The exit status is 0
when every rank finished, 1 when one did not.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

from . import target
from .result import Run
from .timelines.timeline import require_suffix, timeline
from .world import MAX_WORLD_SIZE, World

_STATUS_INTERRUPTED = 130  # as a shell has it


class _Lines:
    """Shows what ranks print, line by line, each with its rank."""

    def __init__(self) -> None:
        self._begun: dict[int, bytes] = {}

    def take(self, rank: int, part: bytes) -> None:
        """Some output of a rank."""
        *lines, rest = (self._begun.pop(rank, b"") + part).split(b"\n")
        if rest:
            self._begun[rank] = rest
        for line in lines:
            sys.stdout.write(f"[rank {rank}] {line.decode(errors='replace')}\n")
        sys.stdout.flush()

    def end(self) -> None:
        """Nothing more comes: shows lines that have no end."""
        for rank in sorted(self._begun):
            self.take(rank, b"\n")


def main(arguments: list[str] | None = None) -> int:
    """Runs what the command line says; the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        source, function = target.split(options.target)
        if options.timeline is not None:
            require_suffix(options.timeline)
            if not options.timeline.parent.is_dir():
                raise ValueError(f"there is no folder {options.timeline.parent}")
    except ValueError as error:
        parser.error(str(error))
    if not 1 <= options.n <= MAX_WORLD_SIZE:
        parser.error(f"-n is {options.n}; it must be from 1 to {MAX_WORLD_SIZE}")
    if not options.timeout > 0:
        parser.error(f"--timeout is {options.timeout}; it must be positive")
    if options.debug is not None and options.debug not in range(options.n):
        parser.error(f"--debug is {options.debug}; the ranks are 0 to {options.n - 1}")

    lines = _Lines()
    try:
        with (
            _terminal_kept(),
            World(
                options.n,
                process_group=not options.bare,
                terminal=options.debug,
                on_output=lines.take,
            ) as world,
        ):
            timeout = math.inf if options.debug is not None else options.timeout
            run = world.call(target.call, source, function, timeout=timeout, check=False)
    except KeyboardInterrupt:
        lines.end()
        print("interrupted", file=sys.stderr)
        return _STATUS_INTERRUPTED
    lines.end()
    _tell(run)
    if options.timeline is not None:
        try:
            timeline(run, titles=[f"{options.target}, {options.n} ranks"]).save(options.timeline)
        except OSError as error:
            print(f"the timeline cannot be written: {error}", file=sys.stderr)
            return 1
    return 0 if run.ok else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m multirank", description=(__doc__ or "").partition("\n\n")[0]
    )
    parser.add_argument("target", metavar="FILE:FUNCTION", help="or MODULE:FUNCTION")
    parser.add_argument("-n", type=int, required=True, metavar="RANKS", help="how many ranks")
    parser.add_argument(
        "--timeout",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="end it after so long (default: %(default)g); a proven hang ends at once",
    )
    parser.add_argument(
        "--debug",
        type=int,
        metavar="RANK",
        help="give this rank the terminal, for print and breakpoint(); the others wait for it",
    )
    parser.add_argument(
        "--timeline",
        type=Path,
        metavar="FILE",
        help="draw the run: .html or .svg, or .json for ui.perfetto.dev",
    )
    parser.add_argument(
        "--bare",
        action="store_true",
        help="the function calls init_process_group itself, as under torchrun",
    )
    return parser


def _tell(run: Run) -> None:
    for rank in run.ranks:
        rank.log = ""  # has been shown
        if rank.result is not None:
            print(f"rank {rank.rank} returned {rank.result!r}")
    sys.stdout.flush()
    if not run.ok or run.warnings:
        print(run.story, file=sys.stderr)


@contextlib.contextmanager
def _terminal_kept() -> Iterator[None]:
    """Gives the terminal back as it was: a debugger that is ended cannot."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


if __name__ == "__main__":
    sys.exit(main())
