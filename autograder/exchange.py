"""The commands that deal with platforms: `convert`, `merge`, `gradescope-zip`, `smoke`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import multirank
from autograder import manifest as manifests
from autograder import merge as merging
from autograder import smoke
from autograder.atomic import replace_file
from autograder.grade import points_text
from autograder.inputs import SecretError, course_secret
from autograder.paths import REFERENCE, private_directory
from autograder.platforms import upload
from autograder.platforms.classroom50 import NotOnClassroom50
from autograder.platforms.convert import Platform
from autograder.platforms.convert import convert as converted
from autograder.record import NoGrade
from autograder.record import read as read_record

UNUSABLE = 2


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for name, command in _COMMANDS.items():
        app.command(name)(command)


def convert(
    grade: Annotated[Path, typer.Argument(help="A grade.json.")],
    to: Annotated[Platform, typer.Option(help="The platform that will read it.")],
    out: Annotated[Path | None, typer.Option(help="The file to write. Default: print it.")] = None,
) -> None:
    """Write a grade as another platform reads it."""
    try:
        text = converted(read_record(grade), to, os.environ)
    except (NoGrade, NotOnClassroom50) as error:
        raise _refusal(error) from None
    _put(text, out)


def merge(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="Results (grade.json or results.json), folders that hold one, or folders of such "
            "folders, in which the same name is the same submission."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file to write: .csv or .json.")],
) -> None:
    """Put results of CPU and GPU machines together, for each submission.

    Exit code 2 where some do not belong together; those have no total, and a note that says why.
    """
    write = {".csv": merging.as_csv, ".json": merging.as_json}.get(out.suffix)
    if write is None:
        raise _refusal(ValueError(f"{out}: name a file that ends in .csv or .json."))
    try:
        merged = merging.merge(results)
    except merging.CannotMerge as error:
        raise _refusal(error) from None
    _put(write(merged), out)
    for one in merged:
        if one.note:
            name = f"{one.name}: " if one.name else ""
            _print(f"{name}{one.note}", "yellow" if one.good else "red")
    _print(f"{len(merged)} submissions, {sum(one.good for one in merged)} of them merged: {out}")
    raise typer.Exit(0 if all(one.good for one in merged) else UNUSABLE)


def gradescope_zip(
    out: Annotated[Path, typer.Option(help="The zip to write.")],
    variant: Annotated[
        upload.Variant, typer.Option(help="Which torch: cpu is a third of cuda's size.")
    ] = upload.Variant.CPU,
    torch_index: Annotated[
        str, typer.Option(help="Where pip finds torch's wheels for CPUs (see pytorch.org).")
    ] = "",
) -> None:
    """Write the zip that Gradescope builds an autograder from. It holds the course's secret."""
    try:
        secret = course_secret(private_directory())
    except SecretError as error:
        raise _refusal(error) from None
    out.parent.mkdir(parents=True, exist_ok=True)
    upload.build(out, secret.value, variant, torch_index)
    _print(f"{out}: {out.stat().st_size / 2**20:.1f} MiB. Keep it private: it holds the solution.")


def smoke_kit(
    out: Annotated[Path, typer.Option(help="The folder to write.")],
) -> None:
    """Write submissions to try a platform with, and the scores that it must show."""
    multirank.start()
    try:
        smoke.write(manifests.load(REFERENCE), out, _told)
    except (manifests.ManifestError, smoke.ChecksFail) as error:
        raise _refusal(error) from None
    _print(f"{out / smoke.README} says what to do with them.")


def _told(entry: smoke.Entry) -> None:
    _print(f"{entry.name}: {points_text(entry.score)} of {points_text(entry.points)}")


def _put(text: str, out: Path | None) -> None:
    if out is None:
        typer.echo(text, nl=False)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, text)


def _print(text: str, style: str = "") -> None:
    Console().print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _refusal(error: Exception) -> typer.Exit:
    _print(str(error), "red")
    return typer.Exit(UNUSABLE)


_COMMANDS: dict[str, Callable[..., None]] = {
    "convert": convert,
    "merge": merge,
    "gradescope-zip": gradescope_zip,
    "smoke": smoke_kit,
}
