"""The grader's digest: what a grade depends on is in it, and what has no part in one is not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from autograder import digest
from autograder.paths import ROOT

# They hand each command to its room, and so import all.
COMMAND_LINE = ("autograder/cli.py", "autograder/__main__.py")


def imported(path: Path) -> Iterator[str]:
    """What a file imports of ours, as files or folders; they may not exist."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        for name in names:
            yield name.replace(".", "/")
            yield f"{name.replace('.', '/')}.py"


def test_what_is_left_out_exists_and_nothing_that_counts_imports_it() -> None:
    assert all((ROOT / one).exists() for one in digest.LEFT_OUT)
    counted = [path for path in digest.counted() if path.suffix == ".py"]
    assert len(counted) > 100
    using = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in counted
        if path.relative_to(ROOT).as_posix() not in COMMAND_LINE
        for name in imported(path)
        if any(Path(name).is_relative_to(one) for one in digest.LEFT_OUT)
    }
    assert using == set()


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("autograder/checks/test_scatter_gather.py", True),
        ("autograder/report/report.html", True),
        ("autograder/platforms/gradescope.py", True),
        ("reference/problems.toml", True),
        ("reference/examples/ranks.py", True),
        ("multirank/world.py", True),
        ("reference/course.toml", False),
        ("autograder/batch/commands.py", False),
        ("autograder/merge.py", False),
        ("autograder/mutation/equivalent.toml", False),
        ("autograder/platforms/upload.py", False),
        ("autograder/release/leaks.py", False),
        ("autograder/selfcheck/mutants/gpipe.py", False),
        ("autograder/smoke.py", False),
    ],
)
def test_a_change_there_is_another_grader(
    file: str, counts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (ROOT / file).exists()
    monkeypatch.setattr(digest, "ROOT", tmp_path)
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("One.")
    before = digest.grader_digest()
    (tmp_path / file).write_text("Another.")
    assert (digest.grader_digest() != before) == counts
