"""What a person sees of a selfcheck."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autograder.manifest import Manifest
from autograder.selfcheck.run import Result
from autograder.selfcheck.trial import Diagnosis, Trial
from autograder.selfcheck.variant import Alternative, Mutant, Variant
from autograder.text import safe

_SHOWN = 40  # complaints that are told


def told(console: Console, trial: Trial, done: int, count: int) -> None:
    """One line as soon as a trial is done."""
    style = "red" if trial.complaints else "green"
    line = Text(f"{done:>4}/{count}  ", style="dim")
    line.append("wrong" if trial.complaints else "as it should be", style=style)
    line.append(f"  {trial.name}")
    line.append(f"  {trial.seconds:.1f} s", style="dim")
    console.print(line, soft_wrap=True)


def report(console: Console, manifest: Manifest, result: Result) -> None:
    """The table, the sums, and every broken promise."""
    console.print(_table(manifest, result))
    console.print(Text(_diagnosis(result)))
    complaints = result.all_complaints
    for about, complaint in complaints[:_SHOWN]:
        console.print(Text.assemble((about, "bold red"), f": {safe(complaint)}"))
    if len(complaints) > _SHOWN:
        console.print(Text(f"and {len(complaints) - _SHOWN} more"))
    verdict = "All as it should be" if result.good else f"{len(complaints)} promises are broken"
    style = "bold green" if result.good else "bold red"
    console.print(Text(f"{verdict} ({result.seconds:.0f} s).", style=style))


def _table(manifest: Manifest, result: Result) -> Table:
    shown = Table(header_style="bold", footer_style="bold", show_footer=True)
    mutants = [one for one in result.tried if isinstance(one, Mutant)]
    alternatives = [one for one in result.tried if isinstance(one, Alternative)]
    shown.add_column("", Text("Total"))
    shown.add_column("Problem")
    shown.add_column("Checks", Text(str(len(result.checks))), justify="right")
    shown.add_column("Mutants\nlose", _share(result, mutants), justify="right")
    shown.add_column("Cause\nnamed", _named(result, mutants), justify="right")
    shown.add_column("Alternatives\nkeep", _share(result, alternatives), justify="right")
    for problem in manifest.problems:
        own = [one for one in mutants if one.problem == problem.id]
        other = [one for one in alternatives if one.problem == problem.id]
        if not own and not other:
            continue  # not concerned, in a quick run
        checks = sum(id.startswith(f"{problem.id}/") for id in result.checks)
        shown.add_row(
            Text(problem.number),
            Text(problem.title),
            Text(str(checks)),
            _share(result, own),
            _named(result, own),
            _share(result, other),
        )
    return shown


def _share(result: Result, some: Sequence[Variant]) -> Text:
    """How many of the variants the grader was right about."""
    right = sum(not result.trials[one.name].complaints for one in some)
    return Text(f"{right} of {len(some)}", style="" if right == len(some) else "red")


def _named(result: Result, mutants: Sequence[Mutant]) -> Text:
    trials = [result.trials[mutant.name] for mutant in mutants]
    named = sum(trial.diagnosis is Diagnosis.NAMED for trial in trials)
    wrong = sum(trial.diagnosis is Diagnosis.WRONG for trial in trials)
    return Text(f"{named} of {len(trials)}" + (f", {wrong} wrong" if wrong else ""))


def _diagnosis(result: Result) -> str:
    wrong = sum(trial.diagnosis is Diagnosis.WRONG for trial in result.diagnosed)
    return (
        f"{float(result.accuracy):.0%} of {len(result.diagnosed)} mutants are told their true "
        f"cause, {wrong} a wrong one."
    )
