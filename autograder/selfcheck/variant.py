"""Submissions made of the reference: with one mistake in it, or solved another way.

Each is data: a patch of the reference, the story of who writes such a thing, and what the grader
owes it.
"""

from __future__ import annotations

import ast
import functools
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from autograder.manifest import load_problems
from autograder.paths import REFERENCE, module_files
from autograder.stubs import BEGIN, END

Files = dict[str, bytes]
Patch = str | tuple[str, str]
"""A function's new solution region; or text that stands in the function once, and its successor."""


@dataclass(frozen=True)
class Mutant:
    """The reference with a mistake that students make.

    name: what the program does wrong, in a few words; unique.
    story: what the student did or thought.
    problem: the problem that the mistake is made in.
    patches: by function of the problem's module, or method ("Linear.forward").
    loses: ids of the checks that must not get full marks, or patterns (`all_reduce/*`); all others
        of the part must.
    told: what the failure text must say for the student to find the mistake; empty where the
        outside does not show it.
    also: further causes that may be shown, because the numbers bear them out as well.
    """

    name: str
    story: str
    problem: str
    patches: Mapping[str, Patch]
    loses: tuple[str, ...]
    told: str = ""
    also: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems that it loses something in, its own first."""
        others = (pattern.partition("/")[0] for pattern in self.loses)
        return tuple(dict.fromkeys([self.problem, *others]))

    @property
    def files(self) -> Files:
        return patched(_module_of(self.problem), self.patches)

    def must_lose(self, check_id: str) -> bool:
        return any(fnmatchcase(check_id, pattern) for pattern in self.loses)


@dataclass(frozen=True)
class Alternative:
    """A right solution that is not the reference's.

    but: ids of the checks in which it earns less than everything, with the part that it earns.
    least: ids of the checks in which a clock has a say and it stands at a band's edge, with the
        part that it earns at the least.
    modules: further modules of the student's own, as source text by name.
    """

    name: str
    story: str
    problem: str
    patches: Mapping[str, Patch]
    modules: Mapping[str, str] = field(default_factory=dict)
    but: Mapping[str, str] = field(default_factory=dict)
    least: Mapping[str, str] = field(default_factory=dict)

    @property
    def problems(self) -> tuple[str, ...]:
        return (self.problem,)

    @property
    def files(self) -> Files:
        return patched(_module_of(self.problem), self.patches, self.modules)


Variant = Mutant | Alternative


def mutant(
    problem: str,
    name: str,
    story: str,
    patch: Patch | Mapping[str, Patch],
    loses: Sequence[str],
    *,
    function: str = "",
    told: str = "",
    also: Sequence[str] = (),
) -> Mutant:
    """A mutant in short: the patch is of the function named like the problem unless it says more.

    loses: checks of the problem by their short names, or ids that hold a `/`.
    """
    patches = patch if isinstance(patch, Mapping) else {function or problem: patch}
    ids = tuple(name if "/" in name else f"{problem}/{name}" for name in loses)
    return Mutant(name, story, problem, patches, ids, told, tuple(also))


def alternative(
    problem: str,
    name: str,
    story: str,
    patch: Patch | Mapping[str, Patch],
    *,
    modules: Mapping[str, str] | None = None,
    but: Mapping[str, str] | None = None,
    least: Mapping[str, str] | None = None,
) -> Alternative:
    """An alternative in short, as `mutant`; `but` and `least` by the short names of the problem's
    checks."""
    patches = patch if isinstance(patch, Mapping) else {problem: patch}
    parts = [
        {f"{problem}/{name}": part for name, part in (by_name or {}).items()}
        for by_name in (but, least)
    ]
    return Alternative(name, story, problem, patches, modules or {}, *parts)


def patched(
    module: str, patches: Mapping[str, Patch], modules: Mapping[str, str] | None = None
) -> Files:
    """The reference with functions of one module changed, and with further modules.

    Raises ValueError where a patch does not fit the reference, as after a change of it.
    """
    files = module_files(REFERENCE)
    file = f"{module}.py"
    source = files[file].decode()
    for function, patch in patches.items():
        old = function_source(source, function)
        source = source.replace(old, _patched(function, old, patch))
    files[file] = source.encode()
    return files | {f"{name}.py": text.encode() for name, text in (modules or {}).items()}


@functools.cache
def _module_of(problem_id: str) -> str:
    return load_problems(REFERENCE).problem(problem_id).module


def function_source(source: str, name: str) -> str:
    """The text of a top-level function or class, or of a method ("Linear.forward"), up to whatever
    comes after it.

    Raises ValueError when the source has no such thing.
    """
    lines = source.splitlines(keepends=True)
    body, end = ast.parse(source).body, len(lines)
    for part in name.split("."):
        starts = [
            min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
            for node in body
        ]
        places = [place for place, node in enumerate(body) if getattr(node, "name", None) == part]
        if not places:
            raise ValueError(f"there is no {name}")
        place = places[-1]
        begin, end = starts[place], [*starts[1:], end + 1][place] - 1
        body = getattr(body[place], "body", [])
    return "".join(lines[begin - 1 : end])


def _patched(function: str, old: str, patch: Patch) -> str:
    if isinstance(patch, tuple):
        before, after = patch
        if old.count(before) != 1:
            raise ValueError(f"{before!r} stands {old.count(before)} times in {function}, not once")
        return old.replace(before, after)
    if not old.count(BEGIN) == old.count(END) == 1:
        raise ValueError(f"{function} has not one solution region")
    head, _, rest = old.partition(BEGIN)
    head, _, indent = head.rpartition("\n")
    tail = rest.partition(END)[2].removeprefix("\n")
    return f"{head}\n{textwrap.indent(textwrap.dedent(patch).strip(), indent)}\n{tail}"
