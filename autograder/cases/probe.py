"""Imports one module of the implementation, and tells what it defines."""

from __future__ import annotations

import inspect
from typing import Any


def describe(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """For each of `inputs["names"]`: its parameters as [name, kind, has a default], or a word.

    The words: "missing", "not callable", "unknown" (it is callable and does not say how).
    """
    module = getattr(impl, inputs["module"])
    return {name: _parameters(getattr(module, name, None)) for name in inputs["names"]}


def _parameters(thing: Any) -> list[list[Any]] | str:
    if thing is None:
        return "missing"
    if not callable(thing):
        return "not callable"
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return "unknown"
    return [
        [parameter.name, parameter.kind.name, parameter.default is not inspect.Parameter.empty]
        for parameter in signature.parameters.values()
    ]
