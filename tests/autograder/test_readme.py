"""The README's table of problems is what problems.toml says."""

from __future__ import annotations

from autograder.manifest import load_problems
from autograder.paths import REFERENCE, ROOT


def test_the_readme_lists_every_problem_with_its_points_and_file_and_no_other() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    start = lines.index("| problem | points | file |") + 2
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
    assert lines[start:end] == [
        f"| {problem.number} {problem.title} | {problem.points} | {problem.module}.py |"
        for problem in load_problems(REFERENCE).problems
    ]
