"""Whether a submission's outputs are what scenarios ask for; and if not, what that looks like."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch

from autograder.causes import likely_causes
from autograder.compare import Array, Tolerance, mismatch
from autograder.failure import CheckFailed
from autograder.judge import Answer, Judge, array
from autograder.scenario import AROUND, Drawn, Scenario, Values


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
        for scenario, one, answer in zip(together, drawn, answers, strict=True):
            compare(judge, scenario, one, answer)
            yield scenario, one, answer


def compare(judge: Judge, scenario: Scenario, drawn: Drawn, answer: Answer) -> None:
    """Raises CheckFailed where a member's result is not the expected one."""
    outputs = [answer.outputs[rank] for rank in scenario.group]
    for rank, output, expected in zip(scenario.group, outputs, drawn.expected, strict=True):
        if "result" not in expected:
            continue
        if wrong := difference(output, "result", expected["result"]):
            judge.note(scenario.facts)
            raise CheckFailed(
                f"{scenario}: on rank {rank}, the result is not right: {wrong}",
                causes=_causes(scenario, drawn, answer),
            )
    _require_untouched_neighbours(scenario, outputs)


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


def _causes(scenario: Scenario, drawn: Drawn, answer: Answer) -> list[str]:
    """Likely causes of wrong results, with the ranks as the student knows them."""
    outputs = [answer.outputs[rank] for rank in scenario.group]
    found = [
        re.sub(r"\brank (\d+)", lambda place: f"rank {scenario.group[int(place[1])]}", cause)
        for cause in _causes_by_place(outputs, drawn)
    ]
    if answer.trace.operations and any(_NOTHING_SENT in cause for cause in found):
        return [_LEFT_IN_A_COPY]
    return found


_NOTHING_SENT = "nothing having been communicated"
_LEFT_IN_A_COPY = (
    "each wrong rank holds just what it put in, although messages were sent: consistent with a "
    "result that stayed in a copy of the tensor"
)


def _causes_by_place(outputs: Sequence[Any], drawn: Drawn) -> list[str]:
    actual: list[Values | None] = []
    expected: list[Values | None] = []
    for output, wanted in zip(outputs, drawn.expected, strict=True):
        got = output.get("result") if isinstance(output, dict) else None
        result = wanted.get("result")
        if result is None:
            actual.append(None)
            expected.append(None)
        elif isinstance(result, list):
            parts = got if isinstance(got, list) and len(got) == len(result) else []
            fits = bool(parts) and all(isinstance(part, torch.Tensor) for part in parts)
            actual.append(
                np.concatenate([array(g).values.ravel() for g in parts]) if fits else None
            )
            expected.append(np.concatenate([r.values.ravel() for r in result]) if fits else None)
        else:
            actual.append(array(got).values if isinstance(got, torch.Tensor) else None)
            expected.append(result.values)
    return likely_causes(actual, expected, drawn.contributions, AROUND)


def _require_untouched_neighbours(scenario: Scenario, outputs: Sequence[Any]) -> None:
    for rank, output in zip(scenario.group, outputs, strict=True):
        around = output.get("around") if isinstance(output, dict) else None
        if isinstance(around, torch.Tensor) and not bool((around == AROUND).all()):
            raise CheckFailed(
                f"{scenario}: on rank {rank}, memory between the elements of the strided tensor "
                "was overwritten"
            )
