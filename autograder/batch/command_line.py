"""The command line of `autograder batch` and `diff`.

Apart from the others, since those import torch, and a batch that has little left to do is resumed
in less time than that takes.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from autograder.batch import commands, conduct
from autograder.batch.executor import SlurmOptions
from autograder.confine.modes import Isolation

COMMANDS = ("batch", "diff")


class ExecutorName(StrEnum):
    """What does the gradings of a batch."""

    LOCAL = "local"
    SLURM = "slurm"


def register(app: typer.Typer) -> None:
    """Adds the commands to an application."""
    app.command("batch")(grade_a_class)
    app.command("diff")(compare_grades)


def grade_a_class(
    path: Annotated[
        Path,
        typer.Argument(help="A folder of submissions or git checkouts, or Gradescope's export."),
    ],
    out: Annotated[Path, typer.Option(help="Where the results go, and the state of the batch.")],
    only: Annotated[
        list[str] | None, typer.Option(help="A submission or student; may be repeated.")
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Try again what the grader has failed on.")
    ] = False,
    regrade: Annotated[
        list[str] | None,
        typer.Option(help="Run this problem or check again for everybody; may be repeated."),
    ] = None,
    lower: Annotated[
        bool, typer.Option("--lower", help="A new grade counts even if the old one is higher.")
    ] = False,
    executor: Annotated[
        ExecutorName, typer.Option(help="Where the gradings run: here, or on a Slurm cluster.")
    ] = ExecutorName.LOCAL,
    partition: Annotated[str, typer.Option(help="Of Slurm.")] = "",
    slurm_option: Annotated[
        list[str] | None,
        typer.Option(help="Of sbatch, as NAME=VALUE, such as account=cs101; may be repeated."),
    ] = None,
    command: Annotated[
        str,
        typer.Option(
            help="What starts Python in a Slurm job, such as 'apptainer exec --nv --bind {out} "
            "grader.sif python'; {out} stands for the folder of --out."
        ),
    ] = "",
    image: Annotated[
        str, typer.Option(help="The image of --command by name: another one is graded anew.")
    ] = "",
    at_once: Annotated[
        int, typer.Option(min=0, help="Gradings at once at most. Default: as many as fit.")
    ] = 0,
    isolation: Annotated[
        Isolation, typer.Option(help="What confines the submissions.")
    ] = Isolation.AUTO,
    official: Annotated[
        bool,
        typer.Option(
            "--official", help="Grade again what is not official; fail where that cannot be."
        ),
    ] = False,
    backend: Annotated[
        Literal["gloo", "nccl"], typer.Option(help="nccl runs the checks on GPUs.")
    ] = "gloo",
    seed: Annotated[
        int | None,
        typer.Option(help="Inputs from this number instead of the secret: not official."),
    ] = None,
) -> None:
    """Grade a class. Started again, it goes on where it was.

    Exit code: 0 when everybody has a grade; 2 for wrong usage; 3 when something could not be graded
    or judged, through no fault of a student's, or is not official where that was asked for; 130
    when interrupted.
    """
    asked = conduct.Asked(tuple(only or ()), failed, tuple(regrade or ()), lower)
    slurm = None
    if executor is ExecutorName.SLURM:
        extra = dict(option.partition("=")[::2] for option in slurm_option or ())
        slurm = SlurmOptions(partition, command, at_once, extra)
    options = commands.Options(
        path,
        out,
        asked,
        backend,
        isolation.value,
        official,
        seed,
        at_once,
        image or command,
        slurm,
    )
    raise typer.Exit(commands.batch(Console(), options))


def compare_grades(
    old: Annotated[Path, typer.Argument(help="The folder of a batch, or a grade.json.")],
    new: Annotated[Path, typer.Argument(help="Another one.")],
) -> None:
    """Print whose grade moves, from, to and why.

    Exit code: 0, or 2 where there is nothing to compare.
    """
    raise typer.Exit(commands.diff(Console(), old, new))
