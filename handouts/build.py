"""Builds the handout and the staff guide, as PDF, and the handout as one HTML page.

    python -m handouts.build                     # handout.pdf, handout.html, staff.pdf, here
    python -m handouts.build --keep-figures      # only the text: the figures are there already
    python -m handouts.build --measure           # first measures anew what figures/measured/ holds

First what Typst reads: data.json (the problems with their points, and all numbers that are
computed) and the figures, of which several are runs of the reference. What shows measured times is
kept with the sources, so that the same sources give the same bytes. A release looks at the seal,
which says what these sources were.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import json
import os
import pkgutil
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import typst

from autograder.manifest import load
from autograder.paths import REFERENCE, ROOT
from autograder.release import handout
from handouts import figures
from handouts.numbers import numbers
from multirank.gallery import GALLERY

HERE = Path(__file__).parent
FONTS = HERE / "fonts"
OUT = ROOT / "build" / "handout"  # lib.typ reads from there
_INCOMPLETE = "html export is under active development and incomplete"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m handouts.build", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--keep-figures", action="store_true", help="use the figures of last time")
    parser.add_argument("--measure", action="store_true", help="measure on this machine anew")
    asked = parser.parse_args(arguments)
    if asked.measure:
        measure()
    built_from = handout.sources()
    write_data()
    if not asked.keep_figures:
        draw_figures()
    for name in ("handout", "staff"):
        pdf = HERE / f"{name}.pdf"
        pdf.write_bytes(compiled(name, "pdf"))
        print(pdf.relative_to(ROOT))
    page = HERE / "handout.html"
    page.write_text(styled(compiled("handout", "html").decode()), encoding="utf-8")
    print(page.relative_to(ROOT))
    if not asked.keep_figures:  # else they may be of other sources
        handout.seal(built_from)


def write_data() -> None:
    """data.json: the manifest as the course changes it, and the numbers."""
    manifest = load(REFERENCE)
    parts = []
    for part in manifest.parts:
        problems = [problem for problem in manifest.problems if problem.part == part.id]
        parts.append(
            {
                "id": part.id,
                "number": part.number,
                "title": part.title,
                "points": _plain(sum(problem.points for problem in problems)),
                "problems": [
                    {
                        "number": problem.number,
                        "title": problem.title,
                        "points": _plain(problem.points),
                        "module": problem.module,
                    }
                    for problem in problems
                ],
            }
        )
    data = {
        "title": manifest.title,
        "course": manifest.course.name,
        "total": _plain(manifest.total_points),
        "problems": len(manifest.problems),
        "parts": parts,
        "numbers": numbers(),
        "gallery": [
            {"name": one.__name__, "told": (one.__doc__ or "").strip().replace("`", "")}
            for one in GALLERY
        ],
    }
    OUT.mkdir(parents=True, exist_ok=True)
    new = OUT / f"data-{os.getpid()}.json"  # there may be several of us, who find the same
    new.write_text(json.dumps(data, indent=1), encoding="utf-8")
    new.replace(OUT / "data.json")


def _plain(points: Fraction | int) -> int | float:
    return int(points) if points == int(points) else float(points)


def measure() -> None:
    """Every module of handouts/figures that has a ``measure`` gives what it measured, by file."""
    for name, text in _given_by("measure"):
        (figures.MEASURED / name).write_text(text, encoding="utf-8")


def draw_figures() -> None:
    """Every module of handouts/figures that has a ``draw`` gives its SVGs by name."""
    folder = OUT / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    for name, svg in _given_by("draw"):
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")


def _given_by(function: str) -> Iterator[tuple[str, str]]:
    for found in pkgutil.iter_modules(figures.__path__):
        module = importlib.import_module(f"handouts.figures.{found.name}")
        if hasattr(module, function):
            yield from getattr(module, function)().items()


def compiled(name: str, target: Literal["pdf", "html"], with_figures: bool = True) -> bytes:
    """handouts/NAME.typ as "pdf" or "html".

    Raises:
        SystemExit: Typst warns of something, such as a font that is missing.
    """
    made, warnings = typst.compile_with_warnings(
        str(HERE / f"{name}.typ"),
        root=str(ROOT),
        format=target,
        font_paths=[str(FONTS)],
        ignore_system_fonts=True,  # the same pages on every machine
        sys_inputs={"target": target, "figures": "yes" if with_figures else "no"},
    )
    told = [warning.message for warning in warnings if _INCOMPLETE not in warning.message]
    if told or not isinstance(made, bytes):
        raise SystemExit(f"{name}.typ, as {target}: " + "; ".join(told))
    return made


def marked(name: str, selector: str) -> list[dict[str, Any]]:
    """What stands in handouts/NAME.typ under a label such as "<run>", or all such as "raw"."""
    found = typst.query(
        str(HERE / f"{name}.typ"),
        selector,
        root=str(ROOT),
        font_paths=[str(FONTS)],
        ignore_system_fonts=True,
        sys_inputs={"figures": "no"},
    )
    elements: list[dict[str, Any]] = json.loads(found)
    return elements


def styled(page: str) -> str:
    """The page with its style sheet and its Chinese font in it, so that it is one file."""
    font = base64.b64encode((FONTS / "HandoutSans-Regular.otf").read_bytes()).decode()
    style = (HERE / "web.css").read_text(encoding="utf-8").replace("FONT", font)
    return page.replace("</head>", f"<style>\n{style}</style></head>", 1)


if __name__ == "__main__":
    main()
