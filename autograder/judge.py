"""The judge of one check: runs cases on the submission, the reference or an oracle.

This is where the trusted side meets the untrusted one. Whoever wrote the implementation, it is
served to fresh ranks as source bytes, as the package `assignment`, behind the same boundary; and
what comes back is bytes, from which `Array`s are built here.
"""

from __future__ import annotations

import contextlib
import os
import re
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

import multirank
from autograder import traffic
from autograder.backend import GLOO, Backend
from autograder.compare import Array
from autograder.confine.boundary import Boundary, boundary
from autograder.confine.counters import Count
from autograder.confine.modes import Confinement, choose
from autograder.failure import CheckFailed
from autograder.grade import Outcome
from autograder.inputs import Seed
from autograder.paths import CASES, ORACLES, ROOT, module_files
from autograder.text import safe_line
from multirank import Ending, Run, Source, Trace

GROUP = "members"  # what the sub-group of a case is called in its world
_MOST_REPLACED = 20  # names that are shown
_PICTURE = 60_000  # bytes of a timeline
RESULT_BYTES = 64 << 20  # of tensors that a rank may return from one call; cases return far less
TIMEOUT = 10.0  # seconds for one call, unless a check says otherwise; right ones take milliseconds

_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class Case:
    """One function of a file in autograder/cases, and the world that it needs.

    members: the global ranks of the sub-group that it is about; None: the default group.
    process_group: False leaves it to the case to make one, or to do without.
    allowed: the operations that may stand in its trace; None: anything may.
    on_gpu: whether it runs on GPUs where they are graded on; False for what is not about them, such
        as virtual time. Without a process group it never does.
    """

    file: str
    function: str
    world_size: int
    members: tuple[int, ...] | None = None
    process_group: bool = True
    allowed: frozenset[str] | None = None
    on_gpu: bool = True


@dataclass(frozen=True)
class Answer:
    """What one call of a case returned, rank by rank ({} for ranks outside the sub-group).

    A submission shares its process with the case, so nothing in here needs to be what the case
    returns.
    """

    outputs: list[Any]
    trace: Trace
    seconds: float = 0.0
    """What the call took, by the grader's own clock."""

    def __post_init__(self) -> None:
        if _has_an_absurd_number(self.outputs):
            raise CheckFailed("an answer holds a number of more than 64 bits")

    def get(self, rank: int, name: str, kind: type[_Kind]) -> _Kind:
        """The output called `name` of a rank.

        Raises:
            CheckFailed: there is none, or it is no `kind`.
        """
        output = self.outputs[rank]
        found = output.get(name) if isinstance(output, dict) else None
        if not isinstance(found, kind):
            raise CheckFailed(f"rank {rank} gave no answer")
        return found

    def plain(self, rank: int, name: str) -> list[Any]:
        """A list in which numbers, texts, lists and dictionaries stand, and no tensor: what does
        not even compare with a number as one would expect.

        Raises:
            CheckFailed: there is none, or a tensor stands in it.
        """
        found = self.get(rank, name, list)
        if any(isinstance(one, torch.Tensor) for one in _within(found)):
            raise CheckFailed(f"rank {rank} gave no answer")
        return found


def _within(value: object) -> Iterator[object]:
    """Everything in it, however deep, itself included."""
    todo = [value]
    while todo:
        one = todo.pop()
        yield one
        if isinstance(one, dict):
            todo += one.values()
        elif isinstance(one, list):
            todo += one


def _has_an_absurd_number(outputs: object) -> bool:
    """Python even refuses to print an integer of many digits."""
    return any(isinstance(one, int) and not -(2**63) <= one < 2**63 for one in _within(outputs))


@dataclass(frozen=True, eq=False)
class LiveWorld:
    """A world that waits, stopped, for its turns: see `Judge.live`.

    Attributes:
        call: runs its case once, with each rank's inputs.
    """

    call: Callable[[Sequence[Mapping[str, Any] | None]], Answer]
    _world: multirank.World

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """It runs while the block does, so that nothing is timed that another world slows down."""
        self._world.release()
        yield
        if self._world.alive:
            self._world.hold()


@dataclass
class Judge:
    """Runs cases for one check.

    Attributes:
        submission, reference: the implementations, as `{file name: bytes}`.
        seed: what the check's inputs come from.
        time_left: seconds that the whole grading may still take.
        facts: what the last call ran with, for the report.
        log: what it printed.
        confinement: the boundary around every world.
        backend: what the worlds communicate with.
        flags: what looked odd while it ran, for the staff.
        leaderboard: what the check measured for the class to compare, by column.
        alone: a block in which no other grading on this machine runs anything.
    """

    submission: Mapping[str, bytes]
    reference: Mapping[str, bytes]
    seed: Seed
    time_left: Callable[[], float]
    facts: dict[str, str] = field(default_factory=dict)
    log: str = ""
    confinement: Confinement = field(default_factory=choose)
    backend: Backend = GLOO
    flags: list[str] = field(default_factory=list)
    leaderboard: dict[str, float] = field(default_factory=dict)
    alone: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    _noted: dict[str, dict[str, None]] = field(default_factory=dict)
    _pictures: dict[str, str] = field(default_factory=dict)

    def run(
        self,
        case: Case,
        calls: Sequence[Sequence[Mapping[str, Any] | None]],
        timeout: float | None = None,
        facts: Sequence[Mapping[str, str]] = (),
    ) -> list[Answer]:
        """Runs a case on the submission, once for each of `calls`, all in one fresh world.

        Args:
            calls: for each call, each rank's inputs; None for a rank outside the sub-group.
            timeout: seconds for each call; None: `TIMEOUT`.
            facts: for each call, what the student is told about it; none: as before.

        Raises:
            CheckFailed: a rank raised, died or timed out, or did what the contract forbids.
        """
        answers = []
        with self._world(case, self.submission) as (world, around):
            for place, inputs in enumerate(calls):
                if facts:
                    self.note(facts[place])
                answers.append(self._answer(world, around, case, inputs, timeout or TIMEOUT))
        return answers

    @contextlib.contextmanager
    def live(self, case: Case, *, of_reference: bool = False) -> Iterator[LiveWorld]:
        """A world of the submission's, or the reference's, for a case that is run many times.

        Its ranks are stopped but for the blocks `with live.running():`, in which alone it may be
        called, so that several such worlds take turns on the machine.

        Raises:
            CheckFailed: as `run`; of the reference's, what goes wrong is the grader's fault.
        """
        with self._world(case, self.reference if of_reference else self.submission) as (
            world,
            around,
        ):

            def call(inputs: Sequence[Mapping[str, Any] | None]) -> Answer:
                if of_reference:
                    run = _call(world, case, inputs, 60.0).check()
                    return Answer(_outputs(run), run.trace, run.seconds)
                return self._answer(world, around, case, inputs, TIMEOUT)

            world.hold()
            yield LiveWorld(call, world)

    def _answer(
        self,
        world: multirank.World,
        around: Boundary,
        case: Case,
        inputs: Sequence[Mapping[str, Any] | None],
        timeout: float,
    ) -> Answer:
        limit = min(timeout, self.time_left())
        if limit <= 0:
            raise _out_of_time()
        before = around.moved(case.world_size)
        run = _call(world, case, inputs, limit)
        self._compare_with_the_kernel(run, case, before, around)
        self.log = "".join(_printed(rank) for rank in run.ranks) or self.log
        self._draw(run)
        self._note_oddities(run, around)
        if not run.ok and around.complaint:
            raise CheckFailed(around.complaint, outcome=Outcome.CRASHED)
        if not run.ok:
            failed = _failure(run)
            if failed.outcome is Outcome.FAILED:
                _refuse_forbidden(run.trace, case.allowed)
            short = failed.outcome is Outcome.TIMED_OUT and limit < timeout
            raise _out_of_time() if short else failed
        _refuse_unrecorded(run.trace)
        _refuse_forbidden(run.trace, case.allowed)
        _refuse_unfinished(run.trace, case.allowed)
        return Answer(_outputs(run), run.trace, run.seconds)

    def _draw(self, run: Run) -> None:
        """At once, so that the run and all its results need not be kept."""
        with contextlib.suppress(ValueError):  # it is too large to be drawn so small
            title = self._told_facts or "What the ranks did"
            # Of ranks that communicated nothing there is nothing to see.
            sent = bool(run.trace.operations)
            drawn = multirank.timeline(run, titles=[title]).svg(_PICTURE) if sent else ""
            self._pictures.pop(self._told_facts, None)
            self._pictures[self._told_facts] = drawn

    def timeline(self) -> str:
        """A picture of the last run with these facts (else of the last), as SVG; "" for none."""
        last = next(reversed(self._pictures.values()), "")
        return self._pictures.get(self._told_facts, last)

    @property
    def _told_facts(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.facts.items())

    def _note_oddities(self, run: Run, around: Boundary) -> None:
        if around.complaint:
            self.flags.append(around.complaint)
        if run.trace.damaged:
            self.flags.append("something wrote into the record of what was communicated")
        for rank in run.ranks if run.ok else ():
            for name in _replaced(rank.result):
                self.flags.append(f"something has put another function in the place of {name}")

    def _compare_with_the_kernel(
        self, run: Run, case: Case, before: Sequence[Count] | None, around: Boundary
    ) -> None:
        """Where all messages must be the submission's own, which alone are recorded in full."""
        after = around.moved(case.world_size) if run.ok and before and case.allowed else None
        if before and after:
            moved = [late - early for early, late in zip(before, after, strict=True)]
            for odd in traffic.disagreements(run.trace, moved):
                self.flags.append(f"{odd} ({self._told_facts})")

    def note(self, facts: Mapping[str, str]) -> None:
        """From now on the check runs with these facts."""
        self.facts = dict(facts)
        for name, value in facts.items():
            self._noted.setdefault(name, {})[value] = None

    @property
    def all_facts(self) -> dict[str, str]:
        """Everything that the check has run with: `{"world size": "2, 4, 3"}`."""
        return {name: ", ".join(values) for name, values in self._noted.items()}

    def run_reference(
        self, case: Case, calls: Sequence[Sequence[Mapping[str, Any] | None]]
    ) -> list[Answer]:
        """The same on the reference; what goes wrong there is the grader's fault."""
        return self._run_trusted(case, calls, self.reference)

    def run_oracle(
        self, case: Case, calls: Sequence[Sequence[Mapping[str, Any] | None]]
    ) -> list[Answer]:
        """The same on torch.distributed's own implementation."""
        return self._run_trusted(case, calls, module_files(ORACLES))

    def _run_trusted(
        self,
        case: Case,
        calls: Sequence[Sequence[Mapping[str, Any] | None]],
        files: Mapping[str, bytes],
    ) -> list[Answer]:
        with self._world(case, files) as (world, _):
            runs = [_call(world, case, inputs, 60.0).check() for inputs in calls]
        return [Answer(_outputs(run), run.trace) for run in runs]

    @contextlib.contextmanager
    def _world(
        self, case: Case, files: Mapping[str, bytes]
    ) -> Iterator[tuple[multirank.World, Boundary]]:
        """A world behind the boundary; when the block ends, nothing of it is left.

        Raises:
            CheckFailed: there are not enough GPUs for it.
        """
        listening = not case.process_group
        backend = self.backend if case.on_gpu and case.process_group else GLOO
        backend.require(case.world_size)
        with (
            boundary(self.confinement, case.world_size, listening, backend.on_gpus) as around,
            multirank.World(
                case.world_size,
                groups={GROUP: case.members} if case.members else {},
                packages={"assignment": files},
                before_ranks=around.before_ranks,
                before_user_code=around.before_user_code,
                import_path=(),
                process_group=case.process_group,
                backend=backend.name.value,
                result_bytes=RESULT_BYTES,
            ) as world,
        ):
            yield world, around


def _source(file: str, function: str, arguments: Mapping[str, Any]) -> Source:
    path = ROOT / "autograder" / file
    return Source(path.read_text(), function, f"<{path.stem}>", arguments)


def _call(
    world: multirank.World,
    case: Case,
    inputs: Sequence[Mapping[str, Any] | None],
    timeout: float,
) -> Run:
    arguments = {
        "case_text": (CASES / f"{case.file}.py").read_text(),
        "case_file": f"<case {case.file}>",
        "case": case.function,
        "group": GROUP if case.members else None,
    }
    drive = _source("cases/drive.py", "drive", arguments)
    return world.call(drive, inputs=multirank.per_rank(inputs), timeout=timeout, check=False)


def _outputs(run: Run) -> list[Any]:
    """What the case returned on each rank, or whatever a submission gave in its place."""
    results = run.results
    return [one.get("outputs") if isinstance(one, dict) else None for one in results]


def _replaced(result: object) -> list[str]:
    """Which functions a rank says are not what they were; it may say anything."""
    names = result.get("replaced") if isinstance(result, dict) else None
    said = names if isinstance(names, list) else ["what looks whether functions were replaced"]
    return [safe_line(name) for name in said[:_MOST_REPLACED] if isinstance(name, str)]


def array(tensor: torch.Tensor) -> Array:
    """A tensor that multirank built from bytes, as numpy values beside its dtype's name.

    Raises:
        CheckFailed: it holds complex numbers, which nothing is asked to return.
    """
    name = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_complex():
        raise CheckFailed(f"a result has dtype {name}")
    values = tensor.float() if tensor.dtype is torch.bfloat16 else tensor
    return Array(name, tuple(tensor.shape), values.numpy())


def tensor(values: Any, dtype: str) -> torch.Tensor:
    """Numpy values as a tensor of the dtype called `dtype`."""
    return torch.from_numpy(values).to(getattr(torch, dtype))


def _printed(rank: multirank.RankRun) -> str:
    return f"[rank {rank.rank}]\n{rank.log}\n" if rank.log.strip() else ""


def _out_of_time() -> CheckFailed:
    return CheckFailed("not run: out of time", outcome=Outcome.NOT_RUN)


def _refuse_unrecorded(trace: Trace) -> None:
    """What was not recorded cannot be judged."""
    if trace.truncated or trace.damaged:
        raise CheckFailed(
            "the record of what it communicated is incomplete, so it cannot be graded: it sends "
            "far too many messages, or something has written into the record"
        )


def _refuse_forbidden(trace: Trace, allowed: frozenset[str] | None) -> None:
    if allowed is None:
        return
    for operation in trace.operations:
        if operation.name not in allowed:
            line = f"{Path(operation.file).name}, line {operation.line}"
            raise CheckFailed(
                f"it uses dist.{operation.name} ({line}). The docstring allows only "
                "dist.send, recv, isend, irecv and batch_isend_irecv here."
            )


def _refuse_unfinished(trace: Trace, allowed: frozenset[str] | None) -> None:
    """Whether the data of such a receive is there in time is luck, and a grade must not be."""
    if allowed is None:
        return
    for operation in trace.operations:
        if operation.name == "recv" and operation.completed is None:
            line = f"{Path(operation.file).name}, line {operation.line}"
            raise CheckFailed(
                f"rank {operation.rank} returned without having waited for a receive ({line}); "
                "the result must be there when the function returns"
            )


def refuse_late(trace: Trace) -> None:
    """In the trace of a call that communicates nothing itself: what was put off until then.

    Raises:
        CheckFailed: there is something.
    """
    for operation in trace.operations:
        raise CheckFailed(
            f"rank {operation.rank} still sends or receives after the call has returned "
            f"({Path(operation.file).name}, line {operation.line}), so its cost does not count"
        )


_OUTCOMES = {
    Ending.DIED: Outcome.CRASHED,
    Ending.RAISED: Outcome.FAILED,
    Ending.TIMED_OUT: Outcome.TIMED_OUT,
}


_REFUSED_HERE = (
    "(While it is graded, a program can make no process groups beside those that it finds, open no "
    "connections, start no other programs, and signal no other processes.)"
)


def _failure(run: Run) -> CheckFailed:
    """Why a run did not finish, for the student."""
    for rank in run.ranks:
        error = rank.exception
        if error is not None and error.type == "NotImplementedError" and error.message:
            return CheckFailed(error.message)
    if run.verdict is not None:  # a proof, or two operations that do not fit: no timeout
        return CheckFailed(without_plumbing(run.story))
    for ending, outcome in _OUTCOMES.items():
        if any(rank.ending is ending for rank in run.ranks):
            story = without_plumbing(run.story)
            if "Operation not permitted" in story:
                story += f"\n{_REFUSED_HERE}"
            return CheckFailed(story, outcome=outcome)
    raise RuntimeError(f"a run failed without any rank having failed: {run.story}")


# Frames that a student has not written and cannot change: of a traceback, with the lines below
# them that are indented more deeply, and of a stack.
_OURS = r"(?:<drive>|<case \w+>|(?:.*/)?torch/utils/_contextlib\.py)"
_PLUMBING = re.compile(
    rf'^( *)File "{_OURS}", line .*\n(?:\1 +.*\n)*|^ *{_OURS}:\d+ in .*\n?', re.MULTILINE
)
_FOLDERS = [sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib", "stdlib")]


def without_plumbing(story: str) -> str:
    """A run's story with the student's own frames only, and without this machine's folders."""
    for folder in _FOLDERS:
        story = story.replace(folder, "")
    return re.sub(r"/proc/self/fd/\d+/", "", _PLUMBING.sub("", story))
