"""Checks that are given answers nobody computed: right ones, recorded once, with junk put in.

What a rank returns is whatever a submission says, so no check may break over it. The worlds run
once; after that the recorded answers come back as often as one likes, damaged in another way each
time, and the checks, the grade and the reports have to cope.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from autograder.failure import CheckFailed
from autograder.grade import Grade
from autograder.inputs import Seed, known_secret
from autograder.judge import Answer, Case, Judge
from autograder.manifest import Manifest
from multirank import Operation, Trace

from .submissions import graded, reference_files

_MANY = 10**5
_JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 1 << 63, 16**5000, -(16**5000)),
    *(0.0, -0.0, 1e308, 5e-324, float("nan"), float("inf"), -float("inf")),
    *("", "text", "x" * _MANY, "\ud800", "\x00\x1b[2J", "\u202e<script>alert(1)</script>"),
    *([], {}, [[]], [None] * 1000, {"": None}, ["nothing"] * 3),
    *(torch.zeros(()), torch.zeros(0), torch.zeros(2, 0, 3), torch.zeros((1,) * 20)),
    *(torch.full((4,), float("nan")), torch.full((2, 2), float("inf")), torch.arange(5)),
    *(torch.ones(3, dtype=torch.bool), torch.ones(3, dtype=torch.complex64)),
    *(torch.full((3,), 255, dtype=torch.uint8), torch.ones(3, dtype=torch.bfloat16)),
    torch.full((3,), -(1 << 63), dtype=torch.int64),
)
_NAMES = ("send", "recv", "all_reduce", "barrier", "new_group", "broadcast", "a name", "")


Keys = tuple[str | int, ...]
Place = tuple[str, int, int, Keys]
"""Of something in an answer: how and in which call it came, of which rank; keys and indices."""


@dataclass(frozen=True, eq=False)
class _Replayed:
    """In the place of a `LiveWorld`."""

    call: Callable[[Sequence[Mapping[str, Any] | None]], Answer]
    running: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext


class Recorded:
    """The answers of one honest grading, to be given again.

    junk: where damage comes from; None: the answers are right.
    """

    def __init__(self, manifest: Manifest, only: Sequence[str] = ()) -> None:
        self.junk: random.Random | None = None
        self._put_in: dict[tuple[bytes, str, int], tuple[int, Keys, Any]] = {}
        self._manifest, self._only = manifest, only
        self._answers: dict[tuple[bytes, str, int], list[Answer]] = {}
        self._calls: Counter[tuple[bytes, str]] = Counter()
        self.record()

    def record(self) -> None:
        with self._in_the_place_of_worlds(recording=True):
            grade = graded(reference_files(), self._only, manifest=self._manifest)
        assert {row.outcome for row in grade.rows if row.seconds is not None} == {"passed"}
        self._checks = {
            Seed.of(known_secret(1), row.check_id).key: row.check_id for row in grade.rows
        }
        parts = {row.number.partition(".")[0]: row.check_id for row in reversed(grade.rows)}
        self._first_of_parts = list(parts.values())

    def grade(self, seed: int) -> Grade:
        """Everything once, with junk by this number."""
        self.junk = random.Random(seed)
        return self._again(self._only)

    @property
    def most_places(self) -> int:
        """Of the check whose answers have most."""
        return max(map(len, self._places().values()))

    def grade_with(self, thing: Any, number: int) -> Grade:
        """Every check that has such a place once, with this thing in it."""
        self.junk = None
        self._put_in = {
            (key, kind, call): (rank, path, thing)
            for key, places in self._places().items()
            for kind, call, rank, path in places[number : number + 1]
        }
        try:
            keys = {key for key, _, _ in self._put_in}
            checks = [self._checks[key] for key in keys & self._checks.keys()]
            if keys - self._checks.keys():  # what is looked at before any check of a part
                checks += self._first_of_parts
            return self._again(checks)
        finally:
            self._put_in = {}

    def _places(self) -> dict[bytes, list[Place]]:
        """Where there is something of a kind in the answers of a check, for each kind once: what
        stands in a list is of one kind, and so is what the ranks return in all calls."""
        found: dict[bytes, dict[tuple[str, Keys], Place]] = {}
        for (key, kind, call), (*_, answer) in self._answers.items():
            if kind in ("run", "live"):
                for rank, output in enumerate(answer.outputs):
                    for path in _paths(output):
                        of_check = found.setdefault(key, {})
                        of_check.setdefault((kind, path), (kind, call, rank, path))
        return {key: list(of_check.values()) for key, of_check in found.items()}

    def _again(self, only: Sequence[str]) -> Grade:
        self._calls.clear()
        with self._in_the_place_of_worlds(recording=False):
            return graded(reference_files(), only, manifest=self._manifest)

    @contextlib.contextmanager
    def _in_the_place_of_worlds(self, recording: bool) -> Iterator[None]:
        real = {name: getattr(Judge, name) for name in ("run", "run_reference", "run_oracle")}
        real_live = Judge.live

        def place(judge: Judge, kind: str) -> tuple[bytes, str, int]:
            call = self._calls[judge.seed.key, kind]
            self._calls[judge.seed.key, kind] += 1
            return judge.seed.key, kind, call

        def given(judge: Judge, kind: str, facts: Sequence[Mapping[str, str]]) -> list[Answer]:
            where = place(judge, kind)
            answers = self._answers.get(where)
            if answers is None:
                raise CheckFailed("nothing was recorded for this call")
            if facts:
                judge.note(facts[-1])
            if where in self._put_in:
                rank, path, thing = self._put_in[where]
                *others, last = answers
                outputs = list(last.outputs)
                outputs[rank] = _replaced(outputs[rank], path, thing)
                return [*others, replace(last, outputs=outputs)]
            damage = kind in ("run", "live") and self.junk is not None
            return [self._damaged(one) if damage else one for one in answers]

        def stand_in(kind: str) -> Any:
            def run(judge: Judge, *arguments: Any, **more: Any) -> list[Answer]:
                if not recording:
                    facts = more.get("facts", arguments[3] if len(arguments) > 3 else ())
                    return given(judge, kind, facts)
                answers: list[Answer] = real[kind](judge, *arguments, **more)
                self._answers[place(judge, kind)] = answers
                return answers

            return run

        @contextlib.contextmanager
        def live(judge: Judge, case: Case, *, of_reference: bool = False) -> Iterator[Any]:
            kind = "live reference" if of_reference else "live"
            if not recording:
                yield _Replayed(lambda _: given(judge, kind, ())[0])
                return
            with real_live(judge, case, of_reference=of_reference) as world:

                def call(inputs: Sequence[Mapping[str, Any] | None]) -> Answer:
                    answer = world.call(inputs)
                    self._answers[place(judge, kind)] = [answer]
                    return answer

                yield replace(world, call=call)

        with pytest.MonkeyPatch.context() as patch:
            for kind in real:
                patch.setattr(Judge, kind, stand_in(kind))
            patch.setattr(Judge, "live", live)
            yield

    def _damaged(self, answer: Answer) -> Answer:
        junk = self.junk
        assert junk is not None
        outputs = copy.deepcopy(answer.outputs)
        for _ in range(junk.choice((0, 0, 1, 2))):
            rank = junk.randrange(len(outputs))
            outputs[rank] = _damage(junk, outputs[rank])
        trace = answer.trace
        if junk.random() < 0.2:
            trace = replace(trace, operations=_damage_operations(junk, trace))
        return replace(answer, outputs=outputs, trace=trace)


def _paths(value: Any) -> Iterator[Keys]:
    """To everything in a value; of what stands in a list to the first."""
    yield ()
    inner: Mapping[Any, Any] = value if isinstance(value, dict) else {}
    if isinstance(value, list):
        inner = dict(enumerate(value[:1]))
    for key, one in inner.items():
        for path in _paths(one):
            yield (key, *path)


def _replaced(value: Any, path: Keys, thing: Any) -> Any:
    if not path:
        return thing
    changed = copy.copy(value)
    changed[path[0]] = _replaced(value[path[0]], path[1:], thing)
    return changed


def _damage(junk: random.Random, value: Any) -> Any:
    """The same with one thing in it replaced, left out or said twice."""
    if isinstance(value, dict) and value and junk.random() < 0.9:
        key = junk.choice(list(value))
        if junk.random() < 0.1:
            return {name: one for name, one in value.items() if name != key}
        return value | {key: _damage(junk, value[key])}
    if isinstance(value, list) and value and junk.random() < 0.8:
        place = junk.randrange(len(value))
        middle = junk.choice(([], value[place : place + 1] * 2, [_damage(junk, value[place])]))
        return value[:place] + middle + value[place + 1 :]
    if isinstance(value, torch.Tensor) and junk.random() < 0.5:
        return _damage_tensor(junk, value)
    return copy.deepcopy(junk.choice(_JUNK))


def _damage_tensor(junk: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    dtypes = (torch.float64, torch.int8, torch.bool, torch.bfloat16, torch.complex64)
    match junk.randrange(4):
        case 0:
            return tensor.to(junk.choice(dtypes))
        case 1:
            return tensor.reshape(-1)[: junk.randrange(tensor.numel() + 1)]
        case 2:
            return tensor[None]
    changed = tensor.clone()
    if changed.numel() and changed.is_floating_point():
        values = (float("nan"), float("inf"), -float("inf"), 1e30, -0.0)
        changed.view(-1)[junk.randrange(changed.numel())] = junk.choice(values)
    return changed


def _damage_operations(junk: random.Random, trace: Trace) -> list[Operation]:
    """What a rank may record of itself, if it wants to."""
    operations = list(trace.operations)
    for _ in range(junk.randrange(1, 4)):
        if not operations:
            break
        place = junk.randrange(len(operations))
        one = operations[place]
        ranks = max(operation.rank for operation in operations) + 1
        change: dict[str, Any] = junk.choice(
            (
                {"nbytes": junk.choice((0, 1, 1 << 62))},
                {"peer": junk.randrange(ranks)},
                {"name": junk.choice(_NAMES), "file": "\ud800\x1b[2J", "line": 10**30},
                {"completed": None, "waited": None},
                {"completed": 0.0, "dropped": 1e11, "issued": 5e11},
                {"shape": (1 << 62, 1 << 62), "dtype": "no dtype"},
                {"tag": 10**30, "group_name": "x" * _MANY},
            )
        )
        damaged = replace(one, **change)
        if damaged.name == "send" and damaged.peer is None:
            damaged = replace(damaged, peer=0)
        operations[place : place + 1] = junk.choice(([], [damaged], [one, damaged], [damaged]))
    return operations
