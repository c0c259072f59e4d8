"""Whether a submission's outputs are what scenarios ask for; and if not, what that looks like."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch

from autograder.causes import likely_causes
from autograder.compare import Array, Tolerance, mismatch
from autograder.failure import CheckFailed
from autograder.judge import Answer, Judge, array
from autograder.scenario import AROUND, Drawn, Scenario

_NAMES = {
    "result": "the result",
    "input": "a tensor that may only be read",
}


def require_values(judge: Judge, scenarios: Iterable[Scenario]) -> list[Answer]:
    """Runs the scenarios in order, those that fit one world in one world, and compares all outputs.

    Returns:
        the submission's answers, in the scenarios' order.

    Raises:
        CheckFailed: at the first scenario that is not as it should be.
    """
    rng = judge.seed.generator()
    answers = []
    for _, together in groupby(scenarios, key=lambda s: (s.function, s.world_size, s.members)):
        pairs = [(scenario, scenario.draw(rng)) for scenario in together]
        judge.facts.update(pairs[0][0].facts)
        got = judge.run(pairs[0][1].case, [drawn.inputs for _, drawn in pairs])
        for (scenario, drawn), answer in zip(pairs, got, strict=True):
            compare(judge, scenario, drawn, answer)
        answers += got
    return answers


def compare(judge: Judge, scenario: Scenario, drawn: Drawn, answer: Answer) -> None:
    """Raises CheckFailed where a member's outputs are not the expected ones."""
    outputs = [answer.outputs[rank] for rank in scenario.group]
    for name in ("result", "input"):
        for place, expected in enumerate(drawn.expected):
            if name not in expected:
                continue
            rank = scenario.group[place]
            wrong = difference(outputs[place], name, expected[name])
            if wrong:
                judge.facts.clear()
                judge.facts.update(scenario.facts)
                causes = _causes(outputs, drawn) if name == "result" else []
                raise CheckFailed(
                    f"{scenario}: on rank {rank}, {_NAMES[name]} is not right: {wrong}",
                    causes=causes,
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


def _causes(outputs: Sequence[Any], drawn: Drawn) -> list[str]:
    actual, expected = [], []
    for output, wanted in zip(outputs, drawn.expected, strict=True):
        got, result = output["result"], wanted["result"]
        if isinstance(result, list):
            fits = isinstance(got, list) and len(got) == len(result) and bool(result)
            actual.append(np.concatenate([array(g).values.ravel() for g in got]) if fits else None)
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
