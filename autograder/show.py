"""What a person at the terminal sees: a table that fills in while checks run, then what to mend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from autograder.doctor import Finding
from autograder.grade import Grade, Outcome, ProblemSummary, Row, points_text
from autograder.report import PAGE, RECORD, RESULTS, STAFF_PAGE
from autograder.text import safe, safe_line

_STYLES = {
    Outcome.PASSED: "green",
    Outcome.PARTIAL: "yellow",
    Outcome.NOT_RUN: "dim",
    Outcome.NEEDS_HARDWARE: "dim",
    Outcome.TOO_NOISY: "magenta",
    Outcome.GRADER_FAULT: "magenta",
}
_SHOWN = 10  # rows that are told in full; the reports have them all


class Progress:
    """The table while a grading runs; use as a context manager, call with the grade."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Progress:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def __call__(self, grade: Grade) -> None:
        rows = grade.rows
        done = sum(row.outcome is not Outcome.NOT_RUN for row in rows)
        counter = Text(f"{done} of {len(rows)} checks", style="dim")
        self._live.update(Group(table(grade), counter))


def table(grade: Grade) -> Table:
    """Problem, points, outcome, time; the total at the end."""
    shown = Table(show_footer=True, header_style="bold", footer_style="bold")
    seconds = sum(row.seconds or 0.0 for row in grade.rows)
    total = f"{points_text(grade.earned)} / {points_text(grade.points)}"
    shown.add_column("", Text("Total"))
    shown.add_column("Problem")
    shown.add_column("Points", Text(total), justify="right")
    shown.add_column("Outcome")
    shown.add_column("Time", Text(f"{seconds:.1f} s"), justify="right")
    for line in grade.problem_summary():
        shown.add_row(
            Text(line.number),
            Text(line.title),
            Text(f"{points_text(line.earned)} / {points_text(line.points)}"),
            _outcome(line),
            Text("" if line.seconds is None else f"{line.seconds:.1f} s"),
        )
    return shown


def report(console: Console, grade: Grade, out_dir: Path) -> None:
    """The final table, the rows that did not pass, and where the files are."""
    console.print(table(grade))
    missed = [row for row in grade.rows if row.outcome not in (Outcome.PASSED, Outcome.NOT_RUN)]
    # What stands below the table already need not be said of every row.
    missed = [row for row in missed if row.message not in map(safe, grade.about.notices)]
    told: set[str] = set()
    for row in missed[:_SHOWN]:
        console.print(_row(row, repeated=row.message in told))
        told.add(row.message)
    if len(missed) > _SHOWN:
        console.print(Text(f"and {len(missed) - _SHOWN} more; see {PAGE}", style="dim"))
    for sentence in grade.sentences():
        console.print(Text(sentence))
    for name in (RESULTS, RECORD, PAGE, STAFF_PAGE):
        console.print(Text(safe_line(str(out_dir / name), 1000), style="dim"), soft_wrap=True)


def findings(console: Console, found: Sequence[Finding]) -> None:
    """What `autograder doctor` found, topic by topic."""
    shown = Table(header_style="bold")
    for column in ("", "", "Works"):
        shown.add_column(column)
    shown.add_column("", overflow="fold")
    topic = ""
    for one in found:
        if one.topic != topic and topic:
            shown.add_section()
        works = Text("yes", style="green") if one.good else Text("no", style="yellow")
        shown.add_row(
            Text("" if one.topic == topic else one.topic), Text(one.name), works, Text(one.told)
        )
        topic = one.topic
    console.print(shown)


def _outcome(line: ProblemSummary) -> Text:
    return Text(line.outcome.value, style=_STYLES.get(line.outcome, "red"))


def _row(row: Row, *, repeated: bool) -> Text:
    """One row that did not pass. The texts in it are safe already (see `Grade.record`)."""
    style = _STYLES.get(row.outcome, "red")
    told = Text.assemble(
        (f"{row.number} {row.title}", "bold"),
        "  ",
        (row.outcome.value, style),
        f"  {points_text(row.score)} / {points_text(row.points)}",
    )
    if row.message:
        message = "(as above)" if repeated else row.message
        told.append("\n" + "\n".join("    " + line for line in message.splitlines()))
    for cause in () if repeated else row.causes:
        told.append(f"\n    - {cause}")
    return told
