"""What is asked, and for how many points: problems.toml as a course.toml changes it.

problems.toml lists every problem once. course.toml is a course's own: its name, the problems it
leaves out, the points it gives instead. Everything that shows or counts points reads them here.
"""

from __future__ import annotations

import keyword
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from autograder.policy import Counts, Lateness, Policy, RateLimit

_File = TypeVar("_File", bound=msgspec.Struct)


class ManifestError(ValueError):
    """problems.toml or course.toml cannot be used; the text says which, where and why."""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A chapter of the assignment, such as "Collectives"."""

    id: str
    number: str
    title: str


class Problem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One problem: the `names` (functions or classes) that a student writes in `module`."""

    id: str
    number: str
    part: str  # the id of its part
    title: str
    points: Fraction
    module: str
    names: tuple[str, ...]


class Override(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A check that turned out to be wrong: it counts in full for everybody, or not at all.

    by, reason: who decided it, and why; students read the reason.
    """

    check: str
    count: Literal["full", "drop"]
    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class Course:
    """The course that gives the assignment.

    gpu_points: what a grading on GPUs is out of.
    due: when work is due, for gradings that no platform tells it.
    overrides: how checks count otherwise than they came out.
    policy: its rules for lateness and for how often one may hand in.
    platform_minutes: after which the platform ends a grading.
    """

    name: str
    gpu_points: Fraction = Fraction(0)
    policy: Policy = field(default_factory=Policy)
    due: datetime | None = None
    overrides: tuple[Override, ...] = ()
    platform_minutes: int = 10


@dataclass(frozen=True, slots=True)
class Manifest:
    """The problems of a course, in the order of problems.toml, with the points they count here."""

    title: str
    parts: tuple[Part, ...]
    problems: tuple[Problem, ...]
    course: Course

    @property
    def total_points(self) -> Fraction:
        """The denominator: the points of all problems that the course has on."""
        return sum((problem.points for problem in self.problems), Fraction(0))

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that hold problems, in the order of problems.toml, without ".py"."""
        return tuple(dict.fromkeys(problem.module for problem in self.problems))

    def on_gpus(self) -> Manifest:
        """The same problems as a grading on GPUs counts them: for `course.gpu_points` in all."""
        part = self.course.gpu_points / self.total_points
        problems = [
            msgspec.structs.replace(problem, points=part * problem.points)
            for problem in self.problems
        ]
        return replace(self, problems=tuple(problems))

    def only_part(self, id: str) -> Manifest:
        """The manifest with the problems of one part. Raises ManifestError where there are none."""
        problems = tuple(problem for problem in self.problems if problem.part == id)
        if not problems:
            known = ", ".join(dict.fromkeys(problem.part for problem in self.problems))
            raise ManifestError(f"There is no part `{id}`; the parts are: {known}.")
        return replace(self, problems=problems)

    def problem(self, id: str) -> Problem:
        """The problem called `id`. Raises ManifestError where the course has none of that name."""
        for problem in self.problems:
            if problem.id == id:
                return problem
        known = ", ".join(problem.id for problem in self.problems)
        raise ManifestError(f"There is no problem `{id}`; the problems are: {known}.")

    def problems_of_module(self, module: str) -> tuple[Problem, ...]:
        """The problems whose names are written in `module` (none: an empty tuple)."""
        return tuple(problem for problem in self.problems if problem.module == module)

    def owner_of(self, module: str, name: str) -> Problem:
        """The problem that asks for `name` in `module`. Raises ManifestError where none does."""
        for problem in self.problems_of_module(module):
            if name in problem.names:
                return problem
        raise ManifestError(f"No problem in problems.toml asks for `{name}` in `{module}`.")


def load(reference_dir: Path) -> Manifest:
    """The problems of reference_dir/problems.toml as reference_dir/course.toml changes them.

    Raises ManifestError, naming the file and what is wrong in it.
    """
    manifest = load_problems(reference_dir)
    path = reference_dir / "course.toml"
    course = _read(path, _CourseFile)
    known = {problem.id for problem in manifest.problems}
    for table, ids in (("problems.off", course.problems.off), ("weights", course.weights)):
        for id in ids:
            _require(id in known, path, f"`{table}` names `{id}`, which is not in problems.toml")
    for id, points in course.weights.items():
        why = "must be above 0 (`problems.off` leaves a problem out)"
        _require(points > 0, path, f"the weight of `{id}` {why}")
    _require(course.gpu.points >= 0, path, "the points of `gpu` must not be below 0")
    problems = tuple(
        msgspec.structs.replace(problem, points=course.weights.get(problem.id, problem.points))
        for problem in manifest.problems
        if problem.id not in course.problems.off
    )
    _require(bool(problems), path, "`problems.off` leaves out every problem")
    _check_policy(path, course)
    _check_overrides(path, course.override, known)
    zone = course.due is None or course.due.tzinfo is not None
    _require(zone, path, "`due` needs its time zone, such as 2026-03-01T23:00:00-07:00")
    policy = Policy(course.lateness, course.rate_limit, course.counts)
    told = Course(
        *(course.name, course.gpu.points, policy, course.due, course.override),
        platform_minutes=course.platform.minutes,
    )
    return replace(manifest, problems=problems, course=told)


def load_problems(reference_dir: Path) -> Manifest:
    """problems.toml alone: every problem with its own points, for a course that changes nothing.

    Raises ManifestError, naming the file and what is wrong in it.
    """
    path = reference_dir / "problems.toml"
    file = _read(path, _ProblemsFile)
    _check_labels(path, "part", file.part)
    _check_labels(path, "problem", file.problem)
    parts = {part.id: part for part in file.part}
    for problem in file.problem:
        _check_problem(path, problem, parts)
    asked = Counter(
        (problem.module, name) for problem in file.problem for name in problem.names
    ).items()
    for (module, name), times in asked:
        _require(times == 1, path, f"`{name}` of module `{module}` is asked for {times} times")
    return Manifest(file.title, file.part, file.problem, Course(file.title))


class _ProblemsFile(msgspec.Struct, forbid_unknown_fields=True):
    title: str
    part: tuple[Part, ...]
    problem: tuple[Problem, ...]


class _Switches(msgspec.Struct, forbid_unknown_fields=True):
    off: tuple[str, ...] = ()


class _GPU(msgspec.Struct, forbid_unknown_fields=True):
    points: Fraction = Fraction(0)


class _Platform(msgspec.Struct, forbid_unknown_fields=True):
    minutes: int = 10


class _CourseFile(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    problems: _Switches = msgspec.field(default_factory=_Switches)
    weights: dict[str, Fraction] = msgspec.field(default_factory=dict)
    gpu: _GPU = msgspec.field(default_factory=_GPU)
    due: datetime | None = None
    counts: Counts = Counts.LAST
    override: tuple[Override, ...] = ()
    lateness: Lateness = Lateness()
    rate_limit: RateLimit = RateLimit()
    platform: _Platform = msgspec.field(default_factory=_Platform)


def _check_overrides(path: Path, overrides: Sequence[Override], known: Collection[str]) -> None:
    """Whether there is such a check is known once a submission is graded; the problem is now."""
    for one in overrides:
        problem, _, check = one.check.partition("/")
        there = problem in known and bool(check)
        _require(there, path, f"`override` names `{one.check}`, not a check such as reduce/sum")
        told = bool(one.reason.strip() and one.by.strip())
        _require(told, path, f"the override of `{one.check}` needs a `reason` and `by`, whose")
    for check, times in Counter(one.check for one in overrides).items():
        _require(times == 1, path, f"`override` names `{check}` {times} times")


def _check_policy(path: Path, course: _CourseFile) -> None:
    late, rate = course.lateness, course.rate_limit
    percent = "`lateness.percent_per_day` must be 0 to 100"
    _require(0 <= late.percent_per_day <= 100, path, percent)
    for name, number in (
        ("lateness.grace_minutes", late.grace_minutes),
        ("lateness.most_days", late.most_days),
        ("rate_limit.submissions", rate.submissions),
    ):
        _require(number >= 0, path, f"`{name}` must not be below 0")
    _require(rate.hours > 0, path, "`rate_limit.hours` must be above 0")
    _require(course.platform.minutes >= 5, path, "`platform.minutes` must be at least 5")


def _check_labels(path: Path, kind: str, items: Iterable[Part | Problem]) -> None:
    """Ids name things on command lines and in code; numbers are printed. Both once only."""
    ids: set[str] = set()
    numbers: set[str] = set()
    for item in items:
        _require(_is_name(item.id), path, f"the {kind} id `{item.id}` is not an identifier")
        plain = re.fullmatch(r"\w+(\.\w+)*", item.number)
        _require(plain is not None, path, f"`{item.number}` is not a number such as 1.7")
        _require(item.id not in ids, path, f"there are two {kind}s with the id `{item.id}`")
        once = item.number not in numbers
        _require(once, path, f"there are two {kind}s with the number {item.number}")
        ids.add(item.id)
        numbers.add(item.number)


def _check_problem(path: Path, problem: Problem, parts: Mapping[str, Part]) -> None:
    def require(holds: bool, sentence: str) -> None:
        _require(holds, path, f"problem `{problem.id}` {sentence}")

    require(problem.part in parts, f"is of part `{problem.part}`, which is not listed")
    prefix = f"{parts[problem.part].number}."
    require(
        problem.number.startswith(prefix),
        f"has number {problem.number}: it must begin with `{prefix}`",
    )
    points = problem.points
    whole = points > 0 and points.denominator == 1
    require(whole, f"has {points} points: it must be a whole number above 0")
    require(_is_name(problem.module), f"has module `{problem.module}`, which is not an identifier")
    require(bool(problem.names), "has no names: list the functions or classes to write")
    for name in problem.names:
        require(_is_name(name), f"has the name `{name}`, which is not an identifier")


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _require(holds: bool, path: Path, sentence: str) -> None:
    if not holds:
        raise ManifestError(f"{_label(path)}: {sentence}.")


def _label(path: Path) -> str:
    """A path as people know it, from the reference's folder on."""
    return f"{path.absolute().parent.name}/{path.name}"


def _read(path: Path, type: type[_File]) -> _File:
    """A TOML file as `type`; what `type` does not know is an error."""
    try:
        raw = tomllib.loads(path.read_bytes().decode(), parse_float=Fraction)
    except FileNotFoundError:
        raise ManifestError(f"{_label(path)}: there is no such file.") from None
    except ValueError as error:  # not UTF-8, not TOML, or a float such as inf
        raise ManifestError(f"{_label(path)}: this is not TOML we can read: {error}.") from error
    try:
        return msgspec.convert(raw, type, dec_hook=_to_fraction)
    except msgspec.ValidationError as error:
        raise ManifestError(f"{_label(path)}: {_in_words(str(error), raw)}.") from error


def _to_fraction(type: type[Any], value: object) -> Fraction:
    if type is Fraction and isinstance(value, (int, Fraction)) and not isinstance(value, bool):
        return Fraction(value)
    raise TypeError(f"Expected a number, got {value!r}")


def _in_words(message: str, raw: Mapping[str, Any]) -> str:
    """msgspec's message in our own words, with a problem's id in place of its index."""
    what, _, where = message.partition(" - at `$")
    what = what.replace("Object contains unknown field", "unknown key")
    what = what.replace("Object missing required field", "missing key")
    where = where.rstrip("`").lstrip(".")
    entry = re.match(r"(part|problem)\[(\d+)\]", where)
    if entry is not None:
        kind, index = entry[1], int(entry[2])
        item = raw[kind][index]
        id = item.get("id") if isinstance(item, dict) else None
        label = f"{kind} `{id}`" if isinstance(id, str) else f"{kind} number {index + 1}"
        key = where[entry.end() :].lstrip(".")
        where = f"{label}, key `{key}`" if key else label
    elif where:
        where = f"`{where}`"
    return f"{what} in {where}" if where else what
