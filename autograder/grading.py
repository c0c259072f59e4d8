"""Grades one submission: plans the rows, runs the checks under pytest, records what came of them.

The checks are pytest tests and run in this process; student code never does. A plugin of ours
takes the place of pytest's own reporting: it fixes the denominator from the collected checks before
the first one runs, and has the result on disk after each.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from autograder.backend import GLOO, Backend
from autograder.confine.modes import Confinement, choose
from autograder.failure import CheckFailed
from autograder.grade import BUDGET, About, Grade, Outcome, Row
from autograder.inputs import Secret, Seed
from autograder.judge import Judge
from autograder.manifest import Manifest, Problem
from autograder.paths import CHECKS, ROOT
from autograder.probe import Probe
from autograder.problem import Share
from autograder.turns import Turns

# What each kind of check may earn of a problem, at most; values earn at least MIN_VALUES.
FAIR_SHARES = {"cost": Fraction(1, 4), "order": Fraction(1, 4), "edges": Fraction(3, 20)}
MIN_VALUES = Fraction(3, 5)
MAX_TIMEOUTS = 2
MAX_FLAGS = 12  # of one check


# Variables that would have pytest leave out checks, reorder them or load code of other people's.
MEDDLING = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")


class UnknownCheck(ValueError):
    """`Grading.only` names something that is not there."""


class UnfairChecks(ValueError):
    """The checks of a problem do not add up, or weigh its kinds otherwise than promised."""


@dataclass
class Grading:
    """One grading.

    Attributes:
        submission, reference: implementations as `{file name: bytes}`.
        unusable: why nothing in the submission can be graded; every row then says so.
        budget: seconds that it may take in all.
        only: ids or numbers of parts, problems or checks, or modules; the others are not run.
        judged: ids of checks that have a result from before: with `only`, what is not among them
            is run as well. None: there is no such result, and `only` alone is run.
        confinement: the boundary around what runs the submission.
        backend: what the submission communicates with.
        changed: called with the grade once it is planned, and after every check.
        until_lost: whether nothing more is run once a check has lost something.
        turns: where other gradings run on this machine, so that what is measured is not disturbed.
    """

    manifest: Manifest
    submission: Mapping[str, bytes]
    reference: Mapping[str, bytes]
    secret: Secret
    about: About
    unusable: str = ""
    budget: float = BUDGET
    only: Sequence[str] = ()
    judged: Collection[str] | None = None
    confinement: Confinement = field(default_factory=choose)
    backend: Backend = GLOO
    changed: Callable[[Grade], None] = field(default=lambda _: None)
    turns: Turns | None = None
    until_lost: bool = False

    def run(self) -> Grade:
        """Runs everything.

        Raises:
            UnknownCheck: `only` names what is not there.
            UnfairChecks: the checks themselves are not in order.
            GraderFault: the checks could not be run at all.
        """
        plugin = _Plugin(self, time.monotonic() + self.budget)
        with without_variables(MEDDLING):
            code = pytest.main(
                [
                    str(CHECKS),
                    f"--rootdir={ROOT}",
                    "--confcutdir=" + str(CHECKS),
                    "-c=/dev/null",
                    "--import-mode=importlib",
                    "--noconftest",
                    "--disable-plugin-autoload",
                    *("-p", "no:terminal", "-p", "no:cacheprovider", "-p", "no:faulthandler"),
                    *("-p", "no:capture", "-p", "no:logging"),
                    *("-p", "no:unraisableexception", "-p", "no:threadexception"),
                ],
                plugins=[plugin],
            )
        if plugin.fault is not None:
            raise plugin.fault
        if plugin.grade is not None and code is pytest.ExitCode.INTERRUPTED:
            raise KeyboardInterrupt
        if plugin.grade is None or code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            raise GraderFault(f"the checks could not be run (pytest ended with {code!r})")
        return plugin.grade


class GraderFault(RuntimeError):
    """Something of the grader's own broke; nobody's submission is to blame."""


@contextlib.contextmanager
def without_variables(names: Sequence[str]) -> Iterator[None]:
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


class Credit:
    """Partial credit of the check that asked for it: `credit(Fraction(3, 4), "why not all")`."""

    def __init__(self) -> None:
        self.fraction: Fraction | None = None
        self.message = ""

    def __call__(self, fraction: Fraction, message: str) -> None:
        self.fraction, self.message = fraction, message


class _Plugin:
    """What pytest calls."""

    def __init__(self, grading: Grading, deadline: float) -> None:
        self.grade: Grade | None = None
        self.fault: Exception | None = None
        self._grading = grading
        self._deadline = deadline
        self._judge: Judge | None = None
        self._credit = Credit()
        self._probe = Probe(self._new_judge, grading.manifest, grading.submission)
        self._timeouts: Counter[str] = Counter()
        self._unwritten: dict[tuple[str, str], str] = {}

    @pytest.fixture
    def judge(self) -> Judge:
        assert self._judge is not None
        return self._judge

    @pytest.fixture
    def credit(self) -> Credit:
        return self._credit

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        try:
            items[:] = self._in_order(items)
            grade = plan(self._grading.manifest, items, self._grading.about)
            _require_known(self._grading.only, grade.rows, self._grading.manifest)
        except Exception as error:
            self.fault = error
            items.clear()
            return
        self.grade = grade
        self._grading.changed(grade)
        if only := self._grading.only:
            manifest = self._grading.manifest
            wanted = {row.check_id for row in grade.rows if _wanted(row, only, manifest)}
            if (judged := self._grading.judged) is not None:
                wanted |= {row.check_id for row in grade.rows} - set(judged)
            items[:] = [item for item in items if check_id(item) in wanted]

    def _in_order(self, items: list[pytest.Item]) -> list[pytest.Item]:
        order = [problem.id for problem in self._grading.manifest.problems]
        on = [item for item in items if share_of(item).problem_id in order]
        return sorted(on, key=lambda item: order.index(share_of(item).problem_id))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        started = time.monotonic() - self._waited
        self._judge, self._credit = self._new_judge(check_id(item)), Credit()
        turns = self._grading.turns
        with turns.beside_others() if turns else contextlib.nullcontext():
            result = self._why_not_run(item) or self._run(item)
        assert self.grade is not None
        passed = result["outcome"] is Outcome.PASSED
        self.grade.record(
            check_id(item),
            **result,
            facts=self._judge.all_facts if passed else self._judge.facts,
            log=self._judge.log,
            timeline="" if passed else self._judge.timeline(),
            leaderboard=self._judge.leaderboard,
            seconds=time.monotonic() - self._waited - started,
        )
        self._grading.about.flags += _some_flags(check_id(item), self._judge.flags)
        if result["outcome"] is Outcome.TIMED_OUT:
            self._timeouts[share_of(item).problem_id] += 1
        self._grading.changed(self.grade)
        return True

    def _why_not_run(self, item: pytest.Item) -> dict[str, Any] | None:
        share = share_of(item)
        if self._grading.unusable:
            return {"outcome": Outcome.BLOCKED, "message": self._grading.unusable}
        if self._time_left() <= 0:
            return {"outcome": Outcome.NOT_RUN, "message": "not run: out of time"}
        lost = self.grade is not None and any(row.has_lost for row in self.grade.rows)
        if self._grading.until_lost and lost:
            return {"outcome": Outcome.NOT_RUN, "message": "not run: something is lost already"}
        if self._timeouts[share.problem_id] >= MAX_TIMEOUTS:
            return {"outcome": Outcome.NOT_RUN, "message": "not run after two timeouts"}
        module = self._grading.manifest.problem(share.problem_id).module
        try:
            self._probe.require(module, share.function)
        except CheckFailed as failed:
            return {"outcome": failed.outcome, "message": failed.message}
        except Exception:
            return _fault()
        if message := self._unwritten.get((module, share.function)):
            return {"outcome": Outcome.FAILED, "message": message}
        return None

    def _run(self, item: pytest.Item) -> dict[str, Any]:
        raised: list[BaseException] = []
        item.stash[_RAISED] = raised
        runtestprotocol(item, log=False, nextitem=None)  # the next one may not be run
        if raised and isinstance(raised[0], CheckFailed):
            failed = raised[0]
            self._note_unwritten(share_of(item), failed.message)
            return {
                "outcome": failed.outcome,
                "message": failed.message,
                "causes": failed.causes,
            }
        if raised:
            return _fault(raised[0])
        points = share_of(item).fraction * self._points(item)
        if self._credit.fraction is not None:
            return {
                "outcome": Outcome.PARTIAL,
                "score": self._credit.fraction * points,
                "message": self._credit.message,
            }
        return {"outcome": Outcome.PASSED}

    def _note_unwritten(self, share: Share, message: str) -> None:
        """An untouched stub need not be run again to hear the same."""
        module = self._grading.manifest.problem(share.problem_id).module
        if self._probe.says_unwritten(module, share.function, message):
            self._unwritten[module, share.function] = message

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        if call.excinfo is not None:
            item.stash[_RAISED].append(call.excinfo.value)
        return (yield)

    def _points(self, item: pytest.Item) -> Fraction:
        return self._grading.manifest.problem(share_of(item).problem_id).points

    def _time_left(self) -> float:
        return self._deadline + self._waited - time.monotonic()

    @property
    def _waited(self) -> float:
        return self._grading.turns.waited if self._grading.turns else 0.0

    def _new_judge(self, name: str) -> Judge:
        return Judge(
            self._grading.submission,
            self._grading.reference,
            Seed.of(self._grading.secret, name),
            self._time_left,
            confinement=self._grading.confinement,
            backend=self._grading.backend,
            alone=self._grading.turns.alone if self._grading.turns else contextlib.nullcontext,
        )


def _some_flags(check: str, flags: Sequence[str]) -> list[str]:
    different = list(dict.fromkeys(flags))
    more = [f"{check}: and {len(different) - MAX_FLAGS} more"] if different[MAX_FLAGS:] else []
    return [f"{check}: {flag}" for flag in different[:MAX_FLAGS]] + more


_RAISED = pytest.StashKey[list[BaseException]]()


def _fault(error: BaseException | None = None) -> dict[str, Any]:
    text = "".join(traceback.format_exception(error)) if error else traceback.format_exc()
    return {
        "outcome": Outcome.GRADER_FAULT,
        "message": "the grader itself failed here; this is not your fault, and not counted",
        "staff": text,
    }


def check_id(item: pytest.Item) -> str:
    """The name of a check: its problem's and its own."""
    return f"{share_of(item).problem_id}/{item.name.removeprefix('test_')}"


def share_of(item: pytest.Item) -> Share:
    """What the `@problem` decorator noted."""
    share = getattr(getattr(item, "function", None), "share", None)
    if not isinstance(share, Share):
        raise UnfairChecks(f"check {item.nodeid} has no @problem(...)")
    return share


def plan(manifest: Manifest, items: Sequence[pytest.Item], about: About) -> Grade:
    """The grade's rows, all not run, from the collected checks.

    Raises:
        UnfairChecks: shares do not sum to 1 in some problem, or a kind has too large a share.
    """
    rows = []
    for problem in manifest.problems:
        checks = [item for item in items if share_of(item).problem_id == problem.id]
        _require_fair(problem, [share_of(item) for item in checks])
        for place, item in enumerate(checks, 1):
            share = share_of(item)
            rows.append(
                Row(
                    check_id(item),
                    problem.id,
                    problem.number,
                    f"{problem.number}.{place}",
                    share.title,
                    share.kind,
                    share.fraction * problem.points,
                    rerun=_public_tests(manifest, problem, share.function),
                )
            )
    return Grade(manifest.problems, rows, about)


def _public_tests(manifest: Manifest, problem: Problem, function: str) -> str:
    """The command that runs the public tests of a function, and not those of its namesakes."""
    names = [name for other in manifest.problems_of_module(problem.module) for name in other.names]
    others = [name for name in names if function in name and name != function]
    wanted = " and not ".join([function, *others])
    return f"pytest tests/assignment/test_{problem.module}.py -k " + (
        f"'{wanted}'" if others else wanted
    )


def _require_fair(problem: Problem, shares: Sequence[Share]) -> None:
    total = sum((share.fraction for share in shares), Fraction(0))
    if total != 1:
        raise UnfairChecks(f"the checks of {problem.id} have shares that sum to {total}, not to 1")
    for kind, most in FAIR_SHARES.items():
        if (part := _part(shares, kind)) > most:
            raise UnfairChecks(f"{kind} checks of {problem.id} have {part} of it; {most} is most")
    if (part := _part(shares, "values")) < MIN_VALUES:
        raise UnfairChecks(f"value checks of {problem.id} have {part} of it, below {MIN_VALUES}")


def _part(shares: Sequence[Share], kind: str) -> Fraction:
    return sum((share.fraction for share in shares if share.kind == kind), Fraction(0))


def _require_known(only: Sequence[str], rows: Sequence[Row], manifest: Manifest) -> None:
    problems = list(dict.fromkeys(row.problem_id for row in rows))
    checks = [row.check_id for row in rows]
    parts = list(dict.fromkeys(problem.part for problem in manifest.problems))
    for name in only:
        if not any(_wanted(row, [name], manifest) for row in rows):
            near = difflib.get_close_matches(name, [*parts, *problems, *checks], n=3)
            hint = f"did you mean {', '.join(near)}?" if near else f"parts are {', '.join(parts)}"
            raise UnknownCheck(f"There is no part, problem or check {name!r}; {hint}")


def _wanted(row: Row, only: Sequence[str], manifest: Manifest) -> bool:
    """Whether it, its problem or its part is named, by id or number; or its module."""
    problem = manifest.problem(row.problem_id)
    part = next(one for one in manifest.parts if one.id == problem.part)
    names = (row.check_id, row.number, problem.id, problem.number, part.id, part.number)
    return any(name in only for name in (*names, problem.module))
