"""The stubs of this repository and its reference are one text but for the solutions."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from autograder import stubs
from autograder.manifest import load_problems
from autograder.paths import ASSIGNMENT, REFERENCE

MODULES = [path for path in sorted(REFERENCE.glob("*.py")) if stubs.BEGIN in path.read_text()]
RAISE = re.compile(
    r'^ *raise NotImplementedError\(\s*"Problem [\d.]+, [\w.]+: not written yet"\s*\)\n',
    re.MULTILINE,
)


def regions_of(path: Path) -> list[tuple[stubs.Region, str]]:
    """The solution regions, with their text, marks included."""
    source = path.read_text()
    lines = source.splitlines(keepends=True)
    found = stubs.regions(source, path.name)
    return [(one, "".join(lines[one.begin - 1 : one.end])) for one in found]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_stub_with_its_solutions_put_back_is_the_reference_byte_for_byte(path: Path) -> None:
    stub = (ASSIGNMENT / path.name).read_text()
    solutions = iter([text for _, text in regions_of(path)])
    assert RAISE.sub(lambda _: next(solutions), stub).encode() == path.read_bytes()
    assert next(solutions, None) is None


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_stub_compiles_and_every_region_of_it_raises_with_its_problem(path: Path) -> None:
    manifest = load_problems(REFERENCE)
    tree = ast.parse((ASSIGNMENT / path.name).read_bytes())
    compile(tree, path.name, "exec")
    raised = [
        (node.lineno, node.exc.args[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and isinstance(node.exc.func, ast.Name)
        and node.exc.func.id == "NotImplementedError"
        and isinstance(node.exc.args[0], ast.Constant)
    ]
    assert [text for _, text in sorted(raised)] == [
        f"Problem {manifest.owner_of(path.stem, region.owner).number}, {region.qualname}: "
        "not written yet"
        for region, _ in regions_of(path)
    ]


def test_every_module_with_problems_has_solutions() -> None:
    assert {path.stem for path in MODULES} == set(load_problems(REFERENCE).modules)
