"""What the handout says is so: names exist, points and numbers are not typed, and all is marked."""

from __future__ import annotations

import builtins
import functools
import html
import json
import keyword
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.nn  # so that its names can be looked up
import typer

import multirank
from autograder import cli
from autograder.manifest import load
from autograder.paths import REFERENCE, ROOT
from handouts import build
from handouts.build import HERE, compiled, marked, write_data
from handouts.numbers import numbers
from multirank.gallery import GALLERY

BOOKS = ("handout", "staff")
SOURCES = [*sorted((HERE / "chapters").glob("*.typ")), HERE / "staff.typ"]
ENVIRONMENT = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
WORDS = {"nccl", "gloo", "make", "lo", "src=2", ".venv", "GLOO_SOCKET_IFNAME=lo0", "torchrun"}
# What a program makes, and a name that stands for any.
MADE = {"training/ddp.html", "assignment.NAME", "submission.zip"}

write_data()


def _text(path: Path) -> str:
    """A source without comments."""
    return re.sub(r"(?m)^\s*//.*$", "", path.read_text(encoding="utf-8"))


# --- Nothing slips through ------------------------------------------------------------------------


@pytest.mark.parametrize("book", BOOKS)
def test_every_block_of_code_is_marked_as_a_command_or_a_program(book: str) -> None:
    tested = {one["value"]["commands"] for one in marked(book, "<run>")}
    tested |= {one["value"]["program"] for one in marked(book, "<code>")}
    tested |= {one["value"]["piece"] for one in marked(book, "<sample>")}
    blocks = {one["text"] for one in marked(book, "raw") if one["block"]}
    assert blocks == tested


def _names() -> set[str]:
    """Every name of the assignment's, multirank's and torch.distributed's that can be used."""
    found = {*dir(multirank), *dir(dist), *dir(builtins), *keyword.kwlist, *dir(torch.Tensor)}
    found |= {*dir(dist.Work)}
    found |= {function.__name__ for function in GALLERY} | {"multirank", "assignment"}
    for path in [*REFERENCE.glob("*.py"), *(REFERENCE / "examples").glob("*.py")]:
        found |= {path.stem, path.name}
        found |= set(re.findall(r"\b[A-Za-z_]\w*\b", path.read_text(encoding="utf-8")))
    return found | set(dir(dist.ReduceOp))


@functools.cache
def _grader() -> str:
    """What staff see: the grader's sources, and the two files that a course may change."""
    files = [*(ROOT / "autograder").rglob("*.py"), *REFERENCE.glob("*.toml"), ROOT / "Makefile"]
    commands: dict[str, Any] = vars(typer.main.get_command(cli.app))["commands"]
    options = [option for one in commands.values() for each in one.params for option in each.opts]
    return "\n".join([*options, *(path.read_text(encoding="utf-8") for path in files)])


def _exists(name: str, names: set[str]) -> bool:
    """Whether it is a name that is known, a path that is there, or one that leads to something."""
    if name in names or name in ENVIRONMENT | WORDS | MADE or (ROOT / name).exists():
        return True
    roots: dict[str, Any] = {"torch": torch, "dist": dist, "multirank": multirank}
    roots |= {"nn": torch.nn, "p": torch.nn.Parameter(torch.ones(1))}
    first, *rest = name.split(".")
    if first in roots and rest:
        thing = roots[first]
        for one in rest:
            if not hasattr(thing, one):
                return False
            thing = getattr(thing, one)
        return True
    return False


def _expressions(text: str) -> Iterator[str]:
    """The names in an expression such as x + mlp(x)."""
    yield from re.findall(r"[A-Za-z_]\w*", text)


@pytest.mark.parametrize("book", BOOKS)
def test_every_name_that_is_printed_as_code_exists(book: str) -> None:
    names = _names()
    unknown = []
    for text in sorted({one["text"] for one in marked(book, "raw") if not one["block"]}):
        whole = text.removesuffix("()")
        expression = re.search(r"[(+]", text) and all(one in names for one in _expressions(text))
        staffs = book == "staff" and whole.removeprefix("make ") in _grader()
        if not (_exists(whole, names) or expression or staffs):
            unknown.append(text)
    assert not unknown


def test_a_name_that_does_not_exist_is_found() -> None:
    names = _names()
    assert _exists("torch.tensor_split", names)
    assert not _exists("torch.tensor_splits", names)
    assert not _exists("all_reduced", names)


# --- Points ---------------------------------------------------------------------------------------


COURSES = {
    "as it is": None,
    "of other points": 'name = "Ours"\n[problems]\noff = ["launch"]\n[weights]\nall_reduce = 8',
    "without a part": 'name = "Ours"\n[problems]\noff = PIPELINE',
}


@pytest.mark.parametrize("course", COURSES.values(), ids=COURSES)
def test_the_point_boxes_are_those_of_the_manifest_as_the_course_changes_it(
    course: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = REFERENCE
    if course is not None:
        pipeline = [one.id for one in load(REFERENCE).problems if one.part == "pipeline"]
        reference = tmp_path / "reference"
        shutil.copytree(REFERENCE, reference)
        (reference / "course.toml").write_text(course.replace("PIPELINE", json.dumps(pipeline)))
    monkeypatch.setattr(build, "REFERENCE", reference)
    write_data()
    try:
        page = compiled("handout", "html", with_figures=False).decode()
    finally:
        monkeypatch.undo()
        write_data()
    manifest = load(reference)
    boxes = re.findall(r'<section class="panel points">(.*?)</section>', page, re.DOTALL)
    told = [
        [html.unescape(re.sub(r"<[^>]+>", "", cell)) for cell in re.findall(r"<td.*?</td>", box)]
        for box in boxes
    ]
    assert [cell for box in told for cell in box] == [
        cell
        for one in manifest.problems
        for cell in (one.number, one.title, f"{one.module}.py", f"{float(one.points):g}")
    ]
    for part, box in zip(manifest.parts, boxes, strict=True):
        points = sum(one.points for one in manifest.problems if one.part == part.id)
        assert f"{html.escape(part.title)}: {float(points):g} point" in box
    assert f"{float(manifest.total_points):g} points" in page


def test_a_problem_that_is_mentioned_by_number_exists() -> None:
    known = {problem.number for problem in load(REFERENCE).problems}
    for path in SOURCES:
        assert set(re.findall(r"[Pp]roblem (\d\.\d)", _text(path))) <= known, path.name


# --- Numbers --------------------------------------------------------------------------------------

_UNIT = re.compile(
    r"(?<![\w.#/\u2212-])\d[\d,.]*(?:\s|~)?"
    r"(?:TB|GB|MB|kB|KiB|MiB|GiB|Gb|TFLOP|years|days|hours|s|ms|µs|times)\b(?:/s)?"
)
_MARKED = re.compile(r"#(?:fact|given)\[[^\]]*\]|#num\(\"[^\"]*\"\)")


def test_every_number_with_a_unit_is_computed_or_marked_as_a_fact_or_as_given() -> None:
    typed = []
    for path in SOURCES:
        text = _text(path)
        for pattern in (
            r'#(?:run|code)\(".*?"[,)]',
            r'"import .*?",\n',
            _MARKED.pattern,
            r"\$[^$]*\$",
        ):
            text = re.sub(pattern, "", text, flags=re.DOTALL)
        typed += [f"{path.name}: {match}" for match in _UNIT.findall(text)]
    assert not typed


def test_a_typed_number_is_found() -> None:
    text = "it needs 112 GB of memory, 32 ms, and 2.4 times the bytes: n\u22121 times, n/2 times"
    assert _UNIT.findall(text) == ["112 GB", "32 ms", "2.4 times"]
    assert not _UNIT.findall(_MARKED.sub("", 'it needs #num("zero-ddp"), #fact[80 GB]'))


def test_every_number_that_is_computed_is_used() -> None:
    texts = "".join(map(_text, SOURCES))
    used = set(re.findall(r'num\("([\w-]+)"\)', texts)) | set(re.findall(r'at\("([\w-]+)"', texts))
    assert set(numbers()) == used


# --- The rest -------------------------------------------------------------------------------------


def test_every_character_is_in_the_font() -> None:
    known = (HERE / "fonts" / "characters.txt").read_text(encoding="utf-8")
    for path in SOURCES:
        chinese = set(re.findall(r"[\u2e80-\uffff]", path.read_text(encoding="utf-8")))
        assert chinese <= set(known), f"{path.name}: run handouts/fonts/subset.py again"


def test_every_source_is_cited_and_every_question_has_an_answer() -> None:
    sources = json.loads((HERE / "sources.json").read_text(encoding="utf-8"))
    cited = {one["value"] for one in marked("handout", "<cited>")}
    assert cited == set(sources)
    answers = [one["value"] for one in marked("handout", "<answer>")]
    assert len(answers) >= 30
    assert all(answer["answer"] for answer in answers)


def test_the_handout_holds_no_line_of_the_solutions() -> None:
    shown = "\n".join(one["value"]["program"] for one in marked("handout", "<code>"))
    for path in REFERENCE.glob("*.py"):
        for region in re.findall(
            r"# BEGIN SOLUTION\n(.*?)# END SOLUTION", path.read_text(encoding="utf-8"), re.DOTALL
        ):
            for line in map(str.strip, region.splitlines()):
                if len(line) > 30 and not line.startswith("#"):
                    assert line not in shown
