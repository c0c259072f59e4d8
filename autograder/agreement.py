"""Whether a submission's outputs are what scenarios ask for; and if not, what that looks like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import torch

from autograder import traffic
from autograder.compare import Array, Tolerance, mismatch
from autograder.failure import CheckFailed
from autograder.judge import Answer, Judge, array
from autograder.scenario import AROUND, IN_PLACE, REDUCING, ROOTED, Drawn, Scenario, Values
from multirank import Facts, explain


def require_values(judge: Judge, scenarios: Iterable[Scenario]) -> list[Answer]:
    """Runs the scenarios in order, those that fit one world in one; all results must be right.

    Returns:
        the submission's answers, in the scenarios' order.

    Raises:
        CheckFailed: at the first scenario that is not as it should be.
    """
    return [answer for _, _, answer in _right_answers(judge, scenarios)]


def require_untouched(judge: Judge, scenarios: Iterable[Scenario]) -> None:
    """As `require_values`; and what may only be read must be as it was.

    Apart from the values, so that a function with right results that spoils its input loses the
    check of this and no other.

    Raises:
        CheckFailed: at the first scenario that is not as it should be.
    """
    for scenario, drawn, answer in _right_answers(judge, scenarios):
        for rank, expected in zip(scenario.group, drawn.expected, strict=True):
            if "input" not in expected:
                continue
            if wrong := difference(answer.outputs[rank], "input", expected["input"]):
                judge.note(scenario.facts)
                raise CheckFailed(
                    f"{scenario}: rank {rank} has changed a tensor that it may only read: {wrong}"
                )


def _right_answers(
    judge: Judge, scenarios: Iterable[Scenario]
) -> Iterator[tuple[Scenario, Drawn, Answer]]:
    rng = judge.seed.generator()
    for _, group in groupby(scenarios, key=lambda s: (s.function, s.world_size, s.members)):
        together = list(group)
        drawn = [scenario.draw(rng) for scenario in together]
        answers = judge.run(
            drawn[0].case,
            [one.inputs for one in drawn],
            facts=[scenario.facts for scenario in together],
        )
        for call, (scenario, one, answer) in enumerate(zip(together, drawn, answers, strict=True)):
            compare(judge, scenario, one, answer, drawn[:call])
            yield scenario, one, answer


def compare(
    judge: Judge, scenario: Scenario, drawn: Drawn, answer: Answer, previous: Sequence[Drawn] = ()
) -> None:
    """Raises CheckFailed where a member's result is not the expected one.

    previous: of the calls before in the same processes, whose results were right.
    """
    outputs = [answer.outputs[rank] for rank in scenario.group]
    for rank, output, expected in zip(scenario.group, outputs, drawn.expected, strict=True):
        if "result" not in expected:
            continue
        if wrong := difference(output, "result", expected["result"]):
            judge.note(scenario.facts)
            raise CheckFailed(
                f"{scenario}: on rank {rank}, the result is not right: {wrong}",
                causes=likely_causes(scenario, drawn, answer, previous),
            )
    _require_untouched_neighbours(scenario, outputs)
    elements = sum(one.size for one in drawn.contributions if one is not None)
    for odd in traffic.silent(answer.trace, len(scenario.group), elements):
        judge.flags.append(f"{odd} ({scenario})")


def difference(
    output: Any, name: str, expected: Array | list[Array], tolerance: Tolerance | None = None
) -> str:
    """What is wrong with the output called `name`, in words; empty when nothing is."""
    got = output.get(name) if isinstance(output, dict) else None
    if isinstance(expected, list):
        if not isinstance(got, list) or len(got) != len(expected):
            return f"{len(expected)} tensors were asked for"
        told = (difference({name: g}, name, e) for g, e in zip(got, expected, strict=True))
        return next((f"tensor {i}: {wrong}" for i, wrong in enumerate(told) if wrong), "")
    if not isinstance(got, torch.Tensor):
        return "there is no tensor"
    found = mismatch(array(got), expected, tolerance)
    return "" if found is None else str(found)


def likely_causes(
    scenario: Scenario, drawn: Drawn, answer: Answer, previous: Sequence[Drawn] = ()
) -> list[str]:
    """What wrong results are consistent with, in at most two sentences without any value."""
    outputs = [answer.outputs[rank] for rank in scenario.group]
    expected = [_wanted(one, "result") for one in drawn.expected]
    actual = [
        None if wanted is None else _held(output, "result", wanted)
        for output, wanted in zip(outputs, expected, strict=True)
    ]
    read_only = [_wanted(one, "input") for one in drawn.expected]
    facts = Facts(
        function=scenario.function,
        op=scenario.op.upper() if scenario.function in REDUCING else None,
        ranks=scenario.group,
        world_size=scenario.world_size,
        root=scenario.root if scenario.function in ROOTED else None,
        dtype=scenario.dtype,
        before=drawn.contributions if scenario.function in IN_PLACE else AROUND,
        bystanders=[
            None if wanted is None else _held(output, "input", wanted)
            for output, wanted in zip(outputs, read_only, strict=True)
        ],
        previous=[[_wanted(one, "result") for one in earlier.expected] for earlier in previous],
        splits=scenario.splits,
        received=[
            any(operation.name != "send" for operation in answer.trace.of_rank(rank))
            for rank in scenario.group
        ],
        contiguous=scenario.layout == "plain",
    )
    return explain(actual, expected, drawn.contributions, facts).causes


_Numbers = Values | list[Values]  # of one tensor, or of several


def _wanted(expected: dict[str, Array | list[Array]], name: str) -> _Numbers | None:
    wanted = expected.get(name)
    if isinstance(wanted, list):
        return [one.values for one in wanted]
    return None if wanted is None else wanted.values


def _held(output: Any, name: str, wanted: _Numbers) -> _Numbers | None:
    """The output called `name` as numbers, if it is of the kind that is wanted."""
    got = output.get(name) if isinstance(output, dict) else None
    if not isinstance(wanted, list):
        return array(got).values if isinstance(got, torch.Tensor) else None
    if not isinstance(got, list) or len(got) != len(wanted):
        return None
    return [array(one).values for one in got if isinstance(one, torch.Tensor)]


def _require_untouched_neighbours(scenario: Scenario, outputs: Sequence[Any]) -> None:
    for rank, output in zip(scenario.group, outputs, strict=True):
        around = output.get("around") if isinstance(output, dict) else None
        if isinstance(around, torch.Tensor) and not bool((around == AROUND).all()):
            raise CheckFailed(
                f"{scenario}: on rank {rank}, memory between the elements of the strided tensor "
                "was overwritten"
            )
