"""The corpus: every file in `samples/CLASS/` is one submission, an attack or an unusual honest one.

Each is the right solution with the file's text at the end of a module of it; most of it puts
another function in the place of `barrier` or `broadcast`. The comment at its top says what it is
and what must happen, by these words (those in brackets need not be there):

    check         what it is graded on: ids of checks, or problems [barrier/sub_group]
    module        what it is added to [collectives]
    begins with   a file of the corpus that comes before it
    earns         nothing, all, or either (what it does may or may not spoil its result) [nothing]
    outcome       of its checks, one of several between | [any that earns so]
    says          to the student, one of several between |
    flagged       what a flag for the staff says, one of several between |
    unconfined    yes: it must hold without isolation, too [no: not stopped there]
    ci            yes: with every commit; the others by night

Where a submission is more than modules, the file makes it itself: `make(at, files)` puts it into
the folder `at`. All is bounded in number, size and time, so that it harms nothing.
"""

from __future__ import annotations

import io
import re
import tarfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autograder.paths import ROOT
from tests.autograder.submissions import reference_files

FOLDER = Path(__file__).parent / "samples"
HONEST = "honest"
_DEFAULTS = {
    "check": "barrier/sub_group",
    "module": "collectives",
    "begins with": "",
    "earns": "nothing",
    "outcome": "",
    "says": "",
    "flagged": "",
    "unconfined": "no",
    "ci": "no",
}


@dataclass(frozen=True)
class Sample:
    """One submission of the corpus.

    kind: its class, the name of its folder. told: what the comment at its top says, by word.
    """

    kind: str
    name: str
    text: str
    told: dict[str, str] = field(repr=False)

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def checks(self) -> list[str]:
        return self.told["check"].split(", ")

    @property
    def honest(self) -> bool:
        return self.kind == HONEST

    @property
    def earns(self) -> str:
        return "all" if self.honest else self.told["earns"]

    @property
    def unconfined(self) -> bool:
        return self.told["unconfined"] == "yes"

    @property
    def in_ci(self) -> bool:
        return self.told["ci"] == "yes"

    def one_of(self, word: str) -> list[str]:
        return [one.strip() for one in self.told[word].split("|") if one.strip()]

    def write(self, at: Path, private: Path, canary: str) -> Path:
        """Puts the submission there, a folder that does not exist yet; what to hand in.

        private: the grader's own directory, which the submission has guessed.
        canary: what is planted where the grader alone may read; in it, it stands in two pieces.
        """
        at.mkdir()
        files = reference_files()
        if "\ndef make(at, files):" in self.text:
            names: dict[str, Any] = {
                "ROOT": ROOT,
                "Path": Path,
                "io": io,
                "tarfile": tarfile,
                "zipfile": zipfile,
            }
            exec(compile(self.text, str(self), "exec"), names)
            made: Path = names["make"](at, files)
            return made
        known = {"root": str(ROOT), "private": str(private), "out": str(at.parent / "out")}
        text = self.text.replace("{canary}", f'{canary[:9]}" + b"{canary[9:]}')
        for name, path in known.items():
            text = text.replace(f"{{{name}}}", path)
        files[f"{self.told['module']}.py"] += f"\n\n{text}".encode()
        for name, content in files.items():
            (at / name).write_bytes(content)
        return at


def load() -> list[Sample]:
    """All of them, by class and name.

    Raises ValueError for a comment that is not as above.
    """
    return [_read(path) for path in sorted(FOLDER.glob("*/*.py"))]


def _read(path: Path) -> Sample:
    text = path.read_text()
    lines = [line.removeprefix("#").strip() for line in _comment(text)]
    told = dict(_DEFAULTS)
    for line in lines[2:]:
        word, _, value = line.partition(": ")
        if word not in _DEFAULTS or not value:
            raise ValueError(f"{path}: {line!r} says nothing that is known")
        told[word] = value
    if told["begins with"]:
        text = (FOLDER / f"{told['begins with']}.py").read_text() + "\n" + text
    return Sample(path.parent.name, path.stem, text, told)


def _comment(text: str) -> list[str]:
    match = re.match(r"(#.*\n)+", text)
    return match[0].splitlines() if match else []


def table() -> str:
    """What holds in which mode, as Markdown: how many of each class, and what is not stopped."""
    samples = load()
    lines = ["| class | attacks | hold without isolation | not stopped without isolation |"]
    lines.append("|---|---|---|---|")
    for kind in sorted({one.kind for one in samples} - {HONEST}):
        mine = [one for one in samples if one.kind == kind]
        free = [one.name.replace("_", " ") for one in mine if not one.unconfined]
        lines.append(f"| {kind} | {len(mine)} | {len(mine) - len(free)} | {', '.join(free)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
