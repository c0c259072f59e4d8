"""A release works where nothing else is: in an empty folder, with an environment of its own.

What a student types is typed here: the README's first commands, and then all the tests, which must
pass once the solution lies in the stubs' place.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from autograder.paths import REFERENCE
from autograder.release import archive, contents

# Seconds, at most; on two cores, with a warm package cache.
FIRST_ANSWER, ALL, PROVEN = 120.0, 60.0, 120.0
# Ours, which a student's shell does not have.
_OURS = ("PYTHONPATH", "VIRTUAL_ENV", "MULTIRANK_ZYGOTE")


def typed(folder: Path, command: str) -> tuple[int, str, float]:
    """A line of a student's shell: its exit code, what it shows, and its seconds."""
    started = time.monotonic()
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in _OURS and not name.startswith("PYTEST")
    }
    done = subprocess.run(
        ["bash", "-c", f"[ ! -e .venv ] || source .venv/bin/activate; {command}"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout, time.monotonic() - started


def unpack(into: Path, *, solution: bool = False) -> Path:
    """The folder of a release that is made there."""
    with zipfile.ZipFile(io.BytesIO(archive.pack(contents.files(solution=solution)))) as packed:
        packed.extractall(into)
    return into / "distributed-training"


@pytest.mark.slow  # 100 s
def test_unpacked_beside_nothing_the_stub_fails_as_it_should_and_the_solution_passes(
    tmp_path: Path,
) -> None:
    started = time.monotonic()
    folder = unpack(tmp_path)
    readme = (folder / "README.md").read_text()
    install = "pip install -c constraints.txt -e ."
    first = "pytest tests/assignment/test_collectives.py -k broadcast"
    assert f"    {install}\n" in readme
    assert f"    {first}\n" in readme

    begun = time.monotonic()
    code, said, made = typed(folder, f"{sys.executable} -m venv .venv")
    assert code == 0, said
    code, said, installed = typed(folder, f"{install} --quiet")
    assert code == 0, said
    code, said, _ = typed(folder, first)
    answered = time.monotonic() - begun
    assert code == 1, said
    assert "broadcast is not written yet: implement it in assignment/collectives.py" in said
    assert "1.2  broadcast  0 of 6 public tests pass" in said

    for module in REFERENCE.glob("*.py"):
        shutil.copy(module, folder / "assignment")
    code, said, seconds = typed(folder, "pytest tests/assignment -n 2 -q")
    assert code == 0, said
    assert "5.6  run_schedule" in said
    proven = time.monotonic() - started
    print(
        f"environment {made:.0f} s, packages {installed:.0f} s, first answer {answered:.0f} s, "
        f"all public tests {seconds:.0f} s, the release proven {proven:.0f} s"
    )

    unpack(tmp_path, solution=True)  # over what is there: the stubs again
    told = (folder / "README.md").read_text()
    assert "    pytest tests/assignment --implementation solution\n" in told
    assert "    diff assignment/collectives.py solution/collectives.py\n" in told
    one = "pytest tests/assignment/test_accounting.py -q"
    code, said, _ = typed(folder, one)
    assert code == 1, said
    code, said, _ = typed(folder, f"{one} --implementation solution")
    assert code == 0, said
    code, said, _ = typed(folder, "diff assignment/collectives.py solution/collectives.py")
    assert code == 1, said
    assert "NotImplementedError" in said

    shutil.rmtree(folder / ".venv")  # gigabytes
    assert answered <= FIRST_ANSWER
    assert seconds <= ALL
    assert proven <= PROVEN
