"""Every Python program of the handout runs, and prints what the handout says."""

from __future__ import annotations

import ast
import sys

import pytest

from handouts.build import marked, write_data

from .conftest import Folder

write_data()
PROGRAMS = [one["value"] for one in marked("handout", "<code>")]


def test_the_handout_has_programs_and_all_can_be_parsed() -> None:
    assert len(PROGRAMS) >= 6
    for program in PROGRAMS:
        ast.parse(program["program"])


@pytest.mark.slow  # 3 s each
@pytest.mark.parametrize("place", range(len(PROGRAMS)))
def test_a_program_runs_and_prints_what_is_promised(place: int, folder: Folder) -> None:
    program = PROGRAMS[place]
    file = folder.path / f"program_{place}.py"
    file.write_text(program["program"] + "\n", encoding="utf-8")
    done = folder.run([sys.executable, file.name])
    assert done.returncode == 0, done.stderr
    for promised in program["prints"]:
        assert promised in done.stdout
