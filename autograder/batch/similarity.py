"""A folder ready for a tool that looks for copied work, such as JPlag or MOSS.

similarity/submissions/NAME/   the modules that were handed in
similarity/base/               the stubs, which everybody has: a tool's base code
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from autograder.batch import files
from autograder.batch.scoring import Scored
from autograder.paths import ASSIGNMENT, module_files

_BASE = " ".join(f"-b base/{name}" for name in sorted(module_files(ASSIGNMENT)))
_README = f"""\
Submissions, each in a folder of its own, and the stubs that everybody was given, as base code.

    java -jar jplag.jar -l python3 -bc base -r report submissions
    perl moss.pl -l python -d {_BASE} submissions/*/*.py

What such a tool finds is a reason to look, and no proof.
"""


def write(out: Path, scored: Iterable[Scored]) -> None:
    """Brings the folder up to date."""
    top = out / "similarity"
    wanted = {one.entry.name: one.place for one in scored}
    _folder(top / "base", module_files(ASSIGNMENT))
    files.replace_if_other(top / "README.txt", _README)
    submissions = top / "submissions"
    submissions.mkdir(exist_ok=True)
    files.prune(submissions, wanted)
    for name, place in wanted.items():
        task = place.task()
        mark = submissions / name / ".digest"
        digest = task.digest if task else ""
        if not mark.exists() or mark.read_text() != digest:
            shutil.rmtree(submissions / name, ignore_errors=True)
            handed_in = place.files()
            if handed_in:
                _folder(submissions / name, handed_in)
                mark.write_text(digest)


def _folder(path: Path, content: dict[str, bytes]) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name, data in content.items():
        files.replace_if_other(path / name, data)
