"""What a person at the terminal sees while a batch runs, and when it has ended.

On a terminal, lines that are drawn anew; elsewhere, such as in a log file, one line now and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from autograder.batch import conduct, statistics
from autograder.batch.movement import Move
from autograder.batch.page import NAME as PAGE
from autograder.batch.scoring import ClassGrades, Scored, Standing
from autograder.batch.store import Place
from autograder.grade import points_text
from autograder.text import safe_line

_LATEST = 10  # of a batch whose pass rates are compared with those before
_NAMES = 6
_QUIET = 60.0  # seconds between two lines where there is no terminal

Score = Callable[[Place], Scored | None]


class Watch:
    """The display; use as a context manager, call with the progress."""

    def __init__(
        self, console: Console, total: int, before: Sequence[Scored], score: Score
    ) -> None:
        """total: of the class, with what is done already. before: earlier gradings of the same
        submissions, by which a check's pass rate is seen to fall; without them the batch's own.
        """
        self._console = console
        self._before, self._score = before, score
        self._scored: list[Scored] = []
        self._fell: list[statistics.Fall] | None = None
        self._total, self._seen = total, 0
        self._started = self._last = time.monotonic()
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._bar = Progress(
            BarColumn(bar_width=40), MofNCompleteColumn(), TextColumn("{task.description}")
        )
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Watch:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def __call__(self, progress: conduct.Progress) -> None:
        for place in progress.finished[self._seen :]:
            if scored := self._score(place):
                self._scored.append(scored)
        news = len(progress.finished) > self._seen
        self._fell = None if news else self._fell
        self._seen = len(progress.finished)
        if self._console.is_terminal:
            self._live.update(Group(*self._lines(progress)))
        elif news and time.monotonic() - self._last > _QUIET:
            self._last = time.monotonic()
            self._console.print(self._in_a_line(progress), soft_wrap=True)

    def _lines(self, progress: conduct.Progress) -> Iterable[Progress | Text]:
        done = self._total - len(progress.todo) + len(progress.finished)
        self._bar.update(self._task, completed=done, description=self._left(progress))
        yield self._bar
        names = [place.name for place in progress.running]
        shown = ", ".join(names[:_NAMES]) + (" ..." if len(names) > _NAMES else "")
        yield Text(f"running {len(names)}: {shown}" if names else "nothing runs", style="dim")
        yield from (Text(line, style="magenta") for line in self._troubles(progress))

    def _in_a_line(self, progress: conduct.Progress) -> Text:
        done = self._total - len(progress.todo) + len(progress.finished)
        parts = [f"{done} of {self._total} done", self._left(progress), *self._troubles(progress)]
        return Text("; ".join(parts))

    def _left(self, progress: conduct.Progress) -> str:
        done, left = len(progress.finished), len(progress.todo) - len(progress.finished)
        waiting = max(0, left - len(progress.running))
        if not done or not left:
            return f"{waiting} waiting"
        seconds = (time.monotonic() - self._started) / done * left
        return f"{waiting} waiting, about {timedelta(seconds=round(seconds))} left"

    def _troubles(self, progress: conduct.Progress) -> Iterable[str]:
        given_up = sum(one.standing is Standing.FAULT for one in self._scored)
        if progress.retried or given_up:
            yield f"grader faults: {progress.retried} tried again, {given_up} given up"
        if progress.elsewhere:
            yield f"{len(progress.elsewhere)} are being graded by another batch"
        if self._fell is None:
            self._fell = self._falls()
        for fall in self._fell:
            yield f"{fall.check}: {fall.before:.0%} passed before, {fall.after:.0%} now"

    def _falls(self) -> list[statistics.Fall]:
        """The checks that fewer pass than before."""
        if self._before:
            names = {one.entry.name for one in self._scored}
            before = [one for one in self._before if one.entry.name in names]
            return statistics.falls(before, self._scored)
        return statistics.falls(self._scored[:-_LATEST], self._scored[-_LATEST:])


def summary(
    console: Console,
    grades: ClassGrades,
    out: Path,
    moves: Sequence[Move],
    unofficial: Iterable[Scored],
) -> None:
    """What came of it: counts, what needs somebody, where the files are.

    unofficial: grades that ought to be official and are not.
    """
    standings = [one.standing for one in grades.scored]
    counts = [f"{standings.count(one)} {one.value}" for one in Standing if one in standings]
    submissions = f"{len(standings)} submission{'s' if len(standings) != 1 else ''}"
    console.print(Text(f"{submissions}: {', '.join(counts)}."))
    for one in grades.scored:
        if one.fault:
            what = "grading it again" if one.regrade_failed else "the grader"
            last = one.fault.text.strip().splitlines() or [""]
            said = f"  {one.entry.name}: {what} failed: {safe_line(last[-1], 200)}"
            console.print(Text(said, style="magenta"))
    for one in unofficial:
        why = "; ".join(one.record.unofficial_because) if one.record else ""
        console.print(Text(f"  {one.entry.name}: not official: {why}", style="magenta"))
    applied = {one.override: None for scored in grades.scored for one in scored.checks}
    for override in filter(None, applied):
        how = "counts in full" if override.count == "full" else "is dropped"
        console.print(Text(f"  {override.check} {how}: {override.reason} ({override.by})"))
    for check in grades.pointless:
        console.print(Text(f"  There is no check {check.check} to override.", style="yellow"))
    for stranger in grades.strangers:
        said = f"  adjustments.csv: {safe_line(stranger.student)} has handed in nothing."
        console.print(Text(said, style="yellow"))
    show_moves(console, moves)
    for path in (out / "grades.csv", out / PAGE):
        console.print(Text(safe_line(str(path), 1000), style="dim"), soft_wrap=True)


def show_moves(console: Console, moves: Sequence[Move]) -> None:
    """Whose grade moves, from, to and why."""
    if not moves:
        return
    table = Table(header_style="bold")
    for name in ("Submission", "From", "To", "Why"):
        table.add_column(name, overflow="fold")
    for move in moves:
        to = points_text(move.after) + (f" (not taken: {move.kept})" if move.kept else "")
        style = "red" if move.after < move.before else ""
        table.add_row(
            Text(safe_line(move.name)), points_text(move.before), Text(to, style), Text(move.why)
        )
    console.print(table)
