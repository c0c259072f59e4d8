"""Cases for accounting.py: functions of plain numbers, called with given arguments."""

from __future__ import annotations

from typing import Any


def answers(impl: Any, here: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Makes each of inputs["calls"], and each of inputs["bad"], whose arguments are wrong.

    A call is [function, arguments by name]. "numbers": of each call, the numbers that it returned;
    "raised": of each bad one, the name of the exception, or "nothing".
    """
    return {
        "numbers": [
            _numbers(getattr(impl.accounting, function)(**arguments))
            for function, arguments in inputs["calls"]
        ],
        "raised": [
            _raised(getattr(impl.accounting, function), arguments)
            for function, arguments in inputs["bad"]
        ],
    }


def _numbers(result: Any) -> list[float]:
    """A number, or several, whatever their type; none for anything else."""
    if isinstance(result, (list, tuple)):
        return [number for item in result for number in _numbers(item)]
    return [float(result)] if hasattr(result, "__float__") else []


def _raised(function: Any, arguments: dict[str, Any]) -> str:
    try:
        function(**arguments)
    except Exception as error:
        return type(error).__name__
    return "nothing"
