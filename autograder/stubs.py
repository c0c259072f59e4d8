"""Makes what students get out of the reference: each marked solution region becomes one `raise`.

    # BEGIN SOLUTION
    total = left + right
    return total
    # END SOLUTION

becomes

    raise NotImplementedError("Problem 1.7, all_reduce: not written yet")

Outside the regions a stub is the reference, byte for byte. A marker that is only nearly right
would give a solution away, so anything that reads like one and is not exact is an error. Packages
inside the reference, such as examples/, hold what is given: students get them as they are.
"""

from __future__ import annotations

import ast
import difflib
import io
import re
import tokenize
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path, PurePath

from autograder.manifest import Manifest, ManifestError, load_problems

BEGIN = "# BEGIN SOLUTION"
END = "# END SOLUTION"
HEADER = "# Problems in this file (points in problems.toml):"
_LINE_LENGTH = 100  # as in pyproject.toml

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class StubError(ValueError):
    """A reference file cannot be turned into a stub; the text says where and what to do."""

    def __init__(self, path: str, line: int | None, sentence: str) -> None:
        super().__init__(f"{path}:{line}: {sentence}" if line else f"{path}: {sentence}")


@dataclass(frozen=True, slots=True)
class Region:
    """A solution region: the lines `begin` to `end` (from 1, both markers included)."""

    begin: int
    end: int
    indent: str
    owner: str  # the top-level function or class that it belongs to
    qualname: str  # the function itself: "all_reduce", or "DistributedDataParallel.forward"


# --- one file ---------------------------------------------------------------------------------


def regions(source: str, path: str) -> list[Region]:
    """The solution regions of a module, in order.

    Raises StubError, naming file and line, where a marker is not exactly right or a region does
    not hold whole statements of one block inside a function.
    """
    if "\r" in source:
        line = source.count("\n", 0, source.index("\r")) + 1
        raise StubError(path, line, "carriage return found; end lines with \\n alone.")
    if "\0" in source:  # of which Python 3.11 says different things
        line = source.count("\n", 0, source.index("\0")) + 1
        raise StubError(path, line, "this is not valid Python: there is a null byte.")
    try:
        ast.parse(source, path)
    except SyntaxError as error:
        raise StubError(path, error.lineno, f"this is not valid Python: {error.msg}.") from error
    return [_region(source, path, *pair) for pair in _pairs(_markers(source, path), path)]


def stub(source: str, path: str, manifest: Manifest) -> str:
    """The source with each region replaced by a `raise` that names its problem.

    Raises StubError also where a region belongs to no problem, a name that problems.toml asks for
    has no region (its solution would be given away), or the stub would not compile.
    """
    module = PurePath(path).stem
    lines = source.split("\n")
    found = regions(source, path)
    for region in reversed(found):
        try:
            problem = manifest.owner_of(module, region.owner)
        except ManifestError as error:
            raise StubError(path, region.begin, f"this region has no problem. {error}") from error
        text = f"Problem {problem.number}, {region.qualname}: not written yet"
        _replace(lines, region.begin, region.end, region.indent, text)
    owners = {region.owner for region in found}
    for problem in manifest.problems_of_module(module):
        for name in problem.names:
            if name not in owners:
                why = f"problem {problem.number} asks for `{name}`, but no solution region is in it"
                raise StubError(path, None, f"{why}; mark what students write.")
    stubbed = "\n".join(lines)
    try:
        compile(stubbed, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        why = f"without its solutions this does not compile: {error.msg}"
        raise StubError(path, None, f"{why} (line {error.lineno} of the stub).") from error
    return stubbed


def header(module: str, manifest: Manifest) -> str:
    """The comment lines that open a module and list its problems; "" where it has none."""
    problems = manifest.problems_of_module(module)
    if not problems:
        return ""
    rows = [(problem.number, problem.id, str(problem.points)) for problem in problems]
    number_width, id_width, points_width = (
        max(map(len, column)) for column in zip(*rows, strict=True)
    )
    lines = [HEADER]
    for number, id, points in rows:
        unit = "point" if points == "1" else "points"
        lines.append(
            f"#   {number:<{number_width}}  {id:<{id_width}}  {points:>{points_width}} {unit}"
        )
    return "\n".join(lines) + "\n"


def with_header(source: str, module: str, manifest: Manifest) -> str:
    """The source with its generated header made, brought up to date or taken away.

    A header is known by its first line, `HEADER`, and by its rows, which begin with "#" and three
    spaces. Raises StubError where one stands anywhere but at the very top.
    """
    lines = source.split("\n")
    first = 0
    if lines[0] == HEADER:
        first = 1
        while first < len(lines) and lines[first].startswith("#   "):
            first += 1
    if HEADER in lines[first:]:
        line = lines.index(HEADER, first) + 1
        raise StubError(f"{module}.py", line, "the list of problems must be the first lines.")
    return header(module, manifest) + "\n".join(lines[first:])


# --- the folder -------------------------------------------------------------------------------


def generate(reference_dir: Path) -> dict[str, bytes]:
    """Every file of assignment/, by name: the stubs of reference_dir/*.py, and problems.toml.

    Packages in there come along as they are, by names such as "examples/train_mlp.py". Files and
    packages whose names begin with a dot or a single underscore stay private, and so does
    course.toml. Raises StubError and ManifestError.
    """
    manifest = load_problems(reference_dir)
    sources = _sources(reference_dir)
    for module in manifest.modules:
        if f"{module}.py" not in sources:
            why = f"problems.toml asks for module `{module}`, but there is no such file"
            raise StubError(f"{_name(reference_dir)}/{module}.py", None, f"{why}.")
    files = {
        name: with_header(
            stub(source, f"{_name(reference_dir)}/{name}", manifest), PurePath(name).stem, manifest
        ).encode()
        for name, source in sources.items()
    }
    for package in _packages(reference_dir):
        for name, source in _sources(package).items():
            label = f"{_name(reference_dir)}/{package.name}/{name}"
            for region in regions(source, label):
                raise StubError(label, region.begin, "a package is given; it has no solutions.")
            files[f"{package.name}/{name}"] = source.encode()
    files["problems.toml"] = (reference_dir / "problems.toml").read_bytes()
    return files


def write(reference_dir: Path, assignment_dir: Path) -> list[Path]:
    """Brings assignment/, and the headers in reference/, up to date. Returns what it changed.

    Python files in assignment/, and in packages there, that nothing in the reference gives are
    removed; other files there that are not generated are left alone. Nothing is written when
    anything is wrong: raises StubError and ManifestError.
    """
    wanted = {assignment_dir / name: data for name, data in generate(reference_dir).items()}
    wanted |= {
        reference_dir / name: new.encode() for name, new in _new_headers(reference_dir).items()
    }
    changed = []
    for path, data in wanted.items():
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            changed.append(path)
    for path in _python_files(assignment_dir):
        if path not in wanted:
            path.unlink()
            changed.append(path)
    return changed


def check(reference_dir: Path, assignment_dir: Path) -> list[str]:
    """What `write` would change, in sentences; empty when all is up to date.

    Raises StubError and ManifestError.
    """
    files = generate(reference_dir)
    here, there = _name(assignment_dir), _name(reference_dir)
    sentences = [
        f"The header of {there}/{name} is not what problems.toml says now."
        for name in _new_headers(reference_dir)
    ]
    for name, data in files.items():
        path = assignment_dir / name
        if not path.exists():
            sentences.append(f"{here}/{name} is missing.")
        elif (line := _first_difference(path.read_bytes(), data)) is not None:
            sentences.append(f"{here}/{name} differs from what {there}/ gives, at line {line}.")
    for path in _python_files(assignment_dir):
        name = path.relative_to(assignment_dir).as_posix()
        if name not in files:
            sentences.append(f"{here}/{name} should not be there: nothing in {there}/ gives it.")
    return sentences


def _packages(folder: Path) -> list[Path]:
    """The public packages inside a folder; not those inside them in turn."""
    found = [path.parent for path in sorted(folder.glob("*/__init__.py"))]
    return [package for package in found if not package.name.startswith((".", "_"))]


def _python_files(assignment_dir: Path) -> list[Path]:
    """Those of the folder and of its packages."""
    folders = [assignment_dir, *_packages(assignment_dir)]
    return [path for folder in folders for path in sorted(folder.glob("*.py"))]


def _sources(folder: Path) -> dict[str, str]:
    """The text of each public Python file of a folder, by name."""
    sources = {}
    for path in sorted(folder.glob("*.py")):
        dunder = path.name.startswith("__")
        if path.name.startswith((".", "_")) and not dunder:
            continue
        try:
            sources[path.name] = path.read_bytes().decode()
        except UnicodeDecodeError as error:
            label = f"{_name(folder)}/{path.name}"
            raise StubError(label, None, f"this is not UTF-8: {error}.") from error
    return sources


def _new_headers(reference_dir: Path) -> dict[str, str]:
    """The reference's files whose header is out of date, with the header as it should be."""
    manifest = load_problems(reference_dir)
    sources = _sources(reference_dir)
    new = {name: with_header(old, PurePath(name).stem, manifest) for name, old in sources.items()}
    return {name: text for name, text in new.items() if text != sources[name]}


def _name(folder: Path) -> str:
    return folder.absolute().name


def _first_difference(old: bytes, new: bytes) -> int | None:
    """The first line, from 1, that is not the same in both; None when the two are equal."""
    for line, (left, right) in enumerate(zip_longest(old.split(b"\n"), new.split(b"\n")), start=1):
        if left != right:
            return line
    return None


# --- markers and regions ----------------------------------------------------------------------

# "begin" or "end" beside "solution" in either order, whatever stands between the words ...
_NEAR = re.compile(
    r"(?<![a-z])(begin|end|start|stop)[^a-z]*solutions?(?![a-z])"
    r"|(?<![a-z])solutions?[^a-z]*(begin|end|start|stop)s?(?![a-z])"
)
# ... and a comment whose letters alone are these, or these with a slip of the keys.
_LETTERS = ("beginsolution", "endsolution", "solutionbegin", "solutionend")


@dataclass(frozen=True, slots=True)
class _Marker:
    text: str
    line: int
    indent: str


def _markers(source: str, path: str) -> list[_Marker]:
    """The markers among the comments, in order; a marker inside a string is only text.

    Raises StubError at a comment that is nearly a marker.
    """
    lines = source.split("\n")
    markers = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, column = token.start
        before = lines[line - 1][:column]
        if token.string in (BEGIN, END):
            if before.strip():
                raise StubError(path, line, f"`{token.string}` must have a line to itself.")
            markers.append(_Marker(token.string, line, before))
        elif _is_nearly_a_marker(token.string):
            why = f"`{token.string}` is nearly a marker; write exactly `{BEGIN}` or `{END}`"
            raise StubError(path, line, f"{why}, or other words.")
    return markers


def _is_nearly_a_marker(comment: str) -> bool:
    text = comment.casefold()
    letters = re.sub(r"[^a-z]", "", text)
    close = difflib.get_close_matches(letters, _LETTERS, n=1, cutoff=0.85)
    return bool(close) or _NEAR.search(text) is not None


def _pairs(markers: list[_Marker], path: str) -> list[tuple[_Marker, _Marker]]:
    """Each BEGIN with its END. Raises StubError where one is missing or regions are nested."""
    pairs = []
    begin: _Marker | None = None
    for marker in markers:
        if marker.text == BEGIN:
            if begin is not None:
                why = f"a region begins inside the one that began at line {begin.line}"
                raise StubError(path, marker.line, f"{why}; end that one first.")
            begin = marker
        elif begin is None:
            raise StubError(path, marker.line, f"`{END}` without a `{BEGIN}` before it.")
        else:
            pairs.append((begin, marker))
            begin = None
    if begin is not None:
        raise StubError(path, begin.line, f"`{BEGIN}` without an `{END}` after it.")
    return pairs


def _region(source: str, path: str, begin: _Marker, end: _Marker) -> Region:
    """The region between two markers. Raises StubError unless it is whole statements of one block.

    What counts is not how the text looks but what is left: the stub's syntax tree must be the
    reference's with the region's statements, and nothing else, replaced by the `raise`.
    """
    lines = source.split("\n")
    tree = ast.parse(source, path)
    found = _statements_between(tree, begin.line, end.line, ())
    if found is None:
        why = f"the region up to line {end.line} holds no statement"
        raise StubError(path, begin.line, f"{why}; there is nothing to write there.")
    scopes, block, inside = found
    if not any(isinstance(scope, _Function) for scope in scopes):
        raise StubError(path, begin.line, "a region must stand inside a function or method.")
    for line in (begin.line, end.line):
        if _indent(lines[line - 1]) != _indent(lines[inside[0].lineno - 1]):
            why = "a marker must have the indentation of the code that its region holds"
            raise StubError(path, line, f"{why}.")
    scope = scopes[-1]
    if inside[0] is scope.body[0] and ast.get_docstring(scope, clean=False) is not None:
        raise StubError(path, begin.line, "a region must not hold the docstring; students need it.")

    first = block.index(inside[0])
    block[first : first + len(inside)] = ast.parse(_raise("", "")).body
    _replace(lines, begin.line, end.line, begin.indent, "")
    try:
        stubbed = ast.dump(ast.parse("\n".join(lines)))
    except SyntaxError:
        stubbed = ""
    if stubbed != ast.dump(tree):
        why = f"the region up to line {end.line} cuts a statement in two"
        raise StubError(path, begin.line, f"{why}; it must hold whole statements of one block.")
    names = [scope.name for scope in scopes]
    return Region(begin.line, end.line, begin.indent, names[0], ".".join(names))


def _statements_between(
    node: ast.AST, begin: int, end: int, scopes: tuple[_Scope, ...]
) -> tuple[tuple[_Scope, ...], list[ast.stmt], list[ast.stmt]] | None:
    """The outermost block with statements wholly between two lines.

    Returns the functions and classes around the block, the block, and those statements; None
    where there are none.
    """
    if isinstance(node, _Scope):
        scopes = (*scopes, node)
    for _, block in ast.iter_fields(node):
        if isinstance(block, list):
            inside = [
                item
                for item in block
                if isinstance(item, ast.stmt)
                and begin < item.lineno
                and (item.end_lineno or item.lineno) < end
            ]
            if inside:
                return scopes, block, inside
    for child in ast.iter_child_nodes(node):
        found = _statements_between(child, begin, end, scopes)
        if found is not None:
            return found
    return None


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _replace(lines: list[str], begin: int, end: int, indent: str, text: str) -> None:
    lines[begin - 1 : end] = [_raise(indent, text)]


def _raise(indent: str, text: str) -> str:
    """The statement in a region's place, laid out as the formatter would."""
    whole = f'{indent}raise NotImplementedError("{text}")'
    if len(whole) <= _LINE_LENGTH:
        return whole
    return f'{indent}raise NotImplementedError(\n{indent}    "{text}"\n{indent})'
