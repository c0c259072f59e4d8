"""What must not be in a release, looked for in the finished archive.

A solution is found by its tokens: `WINDOW` of them in a row that stand in a solution region, and
nowhere in the text that students get around the regions, are a leak wherever they turn up: in
code, in a comment, in a string, in the words of the handout's page and of its figures, however they
are laid out. That is about one line of substance. A graded check, case or selfcheck program is
found when most of one of its functions, or of its longer texts, is in one shipped file; shorter
likenesses are the two sides' common ways of calling the same functions.

A PDF cannot be searched: its words are numbers of glyphs. So the handout's is let through only
beside the page of the same text, which is; that both are of one build, `handout` sees to.
"""

from __future__ import annotations

import ast
import base64
import functools
import html
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from autograder import stubs
from autograder.paths import REFERENCE, ROOT

CANARY = "dta-canary-5c1e7f0a9d3b"
"""Stands in what must never ship, and there alone; nothing else in the world should hold it."""

WINDOW = 12  # tokens of a solution in a row
_SHORT = 8  # a whole region of so many tokens counts as well
_PRIVATE_WINDOW, _PRIVATE_LENGTH, _PRIVATE_SHARE = 12, 40, 0.5

# What students may see of solutions, because it says nothing: as tokens, with the reason.
HARMLESS = {
    "output: Tensor = self.fc2(self.activation(self.fc1(x))) return output": "an MLP, undivided",
    '("broadcast", "reduce"): return 1.0': "two of the docstring's factors",
    '"zero1", "zero2", "zero3")': "the names, as in the docstring",
    '("F", i) for i in range(': "how an order of forwards is written",
}

_PRIVATE = ("checks", "cases", "oracles", "selfcheck")  # rooms of autograder/
_ALIKE = ("selfcheck",)  # whose programs are the solution, but for what they change
_SUFFIXES = (".py", ".toml", ".md", ".txt", ".json", ".pdf", ".html")
_TOPS = ("assignment", "multirank", "tests", "solution", ".devcontainer")
_HIDDEN = (".gitignore", ".devcontainer")
_WORD = re.compile(r"[^\W\d]\w*|\d[\w.]*|[^\s\w]")
_MARKER = re.compile(r"(begin|end|start|stop)[\W_]*solutions?\b", re.IGNORECASE)
_HOME = re.compile(r"(?<![\w.])(/home/|/Users/|/root/|/tmp/|[A-Za-z]:\\+Users\\+)\w[^\s\"'<>]*")
_GRADER = re.compile(r"^\s*(?:from|import)\s+(autograder|reference)\b", re.MULTILINE)
_FIGURE = re.compile(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)")
_SKIPPED = (
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    tokenize.ENDMARKER,
)

_Words = tuple[str, ...]


@dataclass(frozen=True)
class Leak:
    """Something that must not be in a release: the file, and what of it, in words."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


def leaks(files: Mapping[str, bytes], secret: bytes | None = None) -> list[Leak]:
    """Every leak in the files of an archive, by path below its top folder.

    In `solution/` solutions and their marks are what they should be. secret: the course's.
    """
    found = []
    for name, data in sorted(files.items()):
        found += [Leak(name, why) for why in _misplaced(name)]
        if name.endswith(".pdf") and (name != "handout.pdf" or "handout.html" not in files):
            found.append(Leak(name, "cannot be searched: no page of the same text lies beside it"))
        texts = [*_texts(name, data)]
        reasons = [reason for text in texts for reason in _plainly_wrong(text)]
        if secret is not None and (secret in data or secret.hex().encode() in data):
            reasons.append("holds the course's secret")
        shown = _windows(texts, name)
        in_solution = name.startswith("solution/")
        if not in_solution:
            reasons += [
                f"holds a mark of a solution, {mark[0]!r}"
                for text in texts
                for mark in _MARKER.finditer(text)
            ]
            reasons += _solutions_in(shown)
        reasons += _private_in(shown, _ALIKE if in_solution else ())
        found += [Leak(name, reason) for reason in dict.fromkeys(reasons)]
    return found


# --- names and plain text -------------------------------------------------------------------------


def _misplaced(name: str) -> Iterator[str]:
    """Why a file has no place in a release: history, caches, and whatever nobody asked for."""
    path = PurePosixPath(name)
    top = path.parts[0]
    hidden = [part for part in path.parts if part.startswith(".") and part not in _HIDDEN]
    if hidden or "__pycache__" in path.parts:
        yield "history, a cache or a hidden file has no place in a release"
    elif path.suffix not in _SUFFIXES and name != ".gitignore":
        yield f"no file of a release ends in {path.suffix or path.name!r}"
    elif len(path.parts) > 1 and top not in _TOPS:
        yield f"{top}/ does not ship"
    elif top == "tests" and path.parts[1] != "assignment":
        yield "of the tests, tests/assignment ships alone"


def _texts(name: str, data: bytes) -> Iterator[str]:
    """What can be read in a file: its text; of a page also its words and those of its figures,
    without tags. Of a PDF that is next to nothing: no words, only the names that it gives things.
    """
    text = data.decode("latin-1" if name.endswith(".pdf") else "utf-8", errors="replace")
    yield text
    if name.endswith(".html"):
        figures = [base64.b64decode(figure).decode() for figure in _FIGURE.findall(text)]
        for drawn in (text, *figures):
            yield html.unescape(re.sub(r"<[^>]*>", "", drawn))


def _plainly_wrong(text: str) -> Iterator[str]:
    if CANARY in text:
        yield "holds the canary, which stands in what must not ship"
    if str(ROOT) in text:
        yield f"names a place on this machine, {ROOT}"
    if home := _HOME.search(text.replace(str(ROOT), "")):
        yield f"names a place on somebody's machine, {home[0]}"
    if grader := _GRADER.search(text):
        yield f"imports {grader[1]}, which students do not have"


# --- likeness -------------------------------------------------------------------------------------


def _words(text: str) -> list[str]:
    """Words, numbers and signs; without the sign that makes a comment."""
    return [word for word in _WORD.findall(text) if word != "#"]


def _code(source: str) -> list[str]:
    """The same of a program without its comments; of text that is no program, all words."""
    found: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type not in _SKIPPED:
                found += _words(token.string)
    except (tokenize.TokenError, SyntaxError):
        return _words(source)
    return found


def _grams(words: list[str], length: int) -> list[_Words]:
    return [tuple(words[i : i + length]) for i in range(len(words) - length + 1)]


def _windows(texts: list[str], name: str) -> dict[int, set[_Words]]:
    """What a file shows, by length of window: with its comments, and past them."""
    lengths = {WINDOW, _PRIVATE_WINDOW, *map(len, _short_regions())}
    if name.endswith((".html", ".pdf")):  # less what stands in tags, such as numbers of drawings
        texts = texts[1:]
    streams = [_words(text) for text in texts]
    if name.endswith(".py"):
        streams += [_code(text) for text in texts]
    return {length: {gram for one in streams for gram in _grams(one, length)} for length in lengths}


def _solutions_in(shown: Mapping[int, set[_Words]]) -> Iterator[str]:
    told: dict[str, list[_Words]] = {}
    for gram, where in _solution_windows().items():
        if gram in shown[WINDOW]:
            told.setdefault(where, []).append(gram)
    for gram, where in _short_regions().items():
        if gram in shown[len(gram)]:
            told.setdefault(where, []).append(gram)
    for where, grams in told.items():
        more = f" (and {len(grams) - 1} more places)" if len(grams) > 1 else ""
        yield f"holds the solution of {where}: {' '.join(grams[0])}{more}"


def _private_in(shown: Mapping[int, set[_Words]], alike: Sequence[str]) -> Iterator[str]:
    for (room, where), grams in _private_units().items():
        if room not in alike and len(grams & shown[_PRIVATE_WINDOW]) >= _PRIVATE_SHARE * len(grams):
            yield f"holds {where} of autograder/{room}"


@functools.cache
def _solution_windows() -> dict[_Words, str]:
    """Windows of the solution regions, with where they stand; less what students see anyhow."""
    found = {
        gram: where
        for where, code in _regions()
        for words in (_code(code), _words(code))  # without its comments, and with them
        for gram in _grams(words, WINDOW)
        if not _is_harmless(gram)
    }
    return {gram: where for gram, where in found.items() if gram not in _given(WINDOW)}


@functools.cache
def _short_regions() -> dict[_Words, str]:
    """The regions that have no window, whole."""
    found = {tuple(_code(code)): where for where, code in _regions()}
    return {
        words: where
        for words, where in found.items()
        if _SHORT <= len(words) < WINDOW and words not in _given(len(words))
    }


def _is_harmless(gram: _Words) -> bool:
    return any(_overlap(gram, tuple(_words(text))) for text in HARMLESS)


def _overlap(gram: _Words, text: _Words) -> bool:
    """Whether most of a window is in a text."""
    size = min(len(text), 3 * WINDOW // 4)
    inside = {gram[i : i + size] for i in range(len(gram) - size + 1)}
    return any(text[i : i + size] in inside for i in range(len(text) - size + 1))


@functools.cache
def _regions() -> tuple[tuple[str, str], ...]:
    """Each solution region: "all_reduce in collectives.py", and its code."""
    return tuple(
        (f"{region.qualname} in {name}", "\n".join(lines[region.begin : region.end - 1]))
        for name, lines, found in _reference()
        for region in found
    )


@functools.cache
def _given(length: int) -> frozenset[_Words]:
    """Windows of what students are given around the regions."""
    found: set[_Words] = set()
    for _, lines, regions in _reference():
        rest = lines[:]
        for region in reversed(regions):
            rest[region.begin - 1 : region.end] = [f"{region.indent}pass"]
        text = "\n".join(rest)
        found.update(_grams(_code(text), length), _grams(_words(text), length))
    return frozenset(found)


@functools.cache
def _reference() -> tuple[tuple[str, list[str], list[stubs.Region]], ...]:
    return tuple(
        (path.name, text.split("\n"), stubs.regions(text, path.name))
        for path in sorted(REFERENCE.glob("*.py"))
        for text in [path.read_text(encoding="utf-8")]
    )


@functools.cache
def _private_units() -> dict[tuple[str, str], frozenset[_Words]]:
    """The windows of each function and of each longer text of the private rooms, by room and
    place."""
    found = {}
    for room in _PRIVATE:
        for path in sorted((ROOT / "autograder" / room).rglob("*.py")):
            for name, text in _units(path):
                grams = frozenset(_grams(_code(text), _PRIVATE_WINDOW)) - _given(_PRIVATE_WINDOW)
                if len(grams) >= _PRIVATE_LENGTH:
                    found[room, f"{name} of {path.name}"] = grams
    return found


def _units(path: Path) -> Iterator[tuple[str, str]]:
    source = path.read_text(encoding="utf-8")
    yield "most", source
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            yield node.name, ast.get_source_segment(source, node) or ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield f"line {node.lineno}", node.value
