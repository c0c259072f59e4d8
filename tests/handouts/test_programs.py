"""Every Python program of the handout runs, and prints what the handout says."""

from __future__ import annotations

import ast
import json
import sys

import pytest

from handouts.build import marked, write_data

from .conftest import Folder

write_data()
PROGRAMS = [one["value"] for one in marked("handout", "<code>")]
# One process for all of them: to import torch takes longer than any.
DRIVER = """
import contextlib, io, json, runpy, sys, traceback
told = []
for name in sys.argv[1:]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            runpy.run_path(name, run_name="__main__")
        except BaseException:
            traceback.print_exc(file=out)
    told.append(out.getvalue())
print(json.dumps(told))
"""


def test_the_handout_has_programs_and_all_can_be_parsed() -> None:
    assert len(PROGRAMS) >= 6
    for program in PROGRAMS:
        ast.parse(program["program"])


@pytest.fixture(scope="module")
def outputs(folder: Folder) -> list[str]:
    """What each prints."""
    names = [f"program_{place}.py" for place in range(len(PROGRAMS))]
    for name, program in zip(names, PROGRAMS, strict=True):
        (folder.path / name).write_text(program["program"] + "\n", encoding="utf-8")
    done = folder.run([sys.executable, "-c", DRIVER, *names])
    assert done.returncode == 0, done.stderr
    printed: list[str] = json.loads(done.stdout)
    return printed


@pytest.mark.slow  # 10 s for all
@pytest.mark.parametrize("place", range(len(PROGRAMS)))
def test_a_program_runs_and_prints_what_is_promised(place: int, outputs: list[str]) -> None:
    assert "Traceback" not in outputs[place], outputs[place]
    for promised in PROGRAMS[place]["prints"]:
        assert promised in outputs[place]
