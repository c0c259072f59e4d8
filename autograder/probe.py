"""The import probe: before a module's checks, whether it can be imported and has what is asked.

One clear sentence then stands for every check that could not have passed.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from autograder.failure import CheckFailed
from autograder.grade import Outcome
from autograder.judge import Case, Judge
from autograder.manifest import Manifest, load_problems
from autograder.paths import REFERENCE
from autograder.stubs import StubError, stub

_TIMEOUT = 10.0
Parameters = list[tuple[str, str, bool]]  # name, kind, has a default


class Probe:
    """Probes each module of one submission, once."""

    def __init__(
        self,
        new_judge: Callable[[str], Judge],
        manifest: Manifest,
        submission: Mapping[str, bytes],
    ) -> None:
        self._new_judge = new_judge
        self._manifest = manifest
        self._submission = submission
        self._found: dict[str, dict[str, Any] | CheckFailed] = {}

    def require(self, module: str, function: str) -> None:
        """Returns when `module` can be imported and has `function`, with the right parameters.

        Raises:
            CheckFailed: with the sentence for the student.
        """
        if module not in self._found:
            self._found[module] = self._probe(module)
        found = self._found[module]
        if isinstance(found, CheckFailed):
            raise found
        _require_parameters(module, function, found[function], self._asked(module, function))

    def _probe(self, module: str) -> dict[str, Any] | CheckFailed:
        if f"{module}.py" not in self._submission:
            return CheckFailed(
                f"there is no {module}.py in what you handed in", outcome=Outcome.BLOCKED
            )
        names = [
            name for problem in self._manifest.problems_of_module(module) for name in problem.names
        ]
        case = Case("probe", "describe", world_size=1, on_gpu=False)
        judge = self._new_judge("probe")
        try:
            (answer,) = judge.run(case, [[{"module": module, "names": names}]], _TIMEOUT)
            return {name: answer.get(0, name, object) for name in names}
        except CheckFailed as failed:
            if failed.outcome is Outcome.NOT_RUN:
                return failed
            why = {
                Outcome.TIMED_OUT: "it did not finish importing; does it run something at the top?",
                Outcome.CRASHED: "the process died while importing it",
            }.get(failed.outcome, "importing it raised")
            return CheckFailed(
                f"{module}.py cannot be imported: {why}\n{failed.message}", outcome=Outcome.BLOCKED
            )

    def says_unwritten(self, module: str, function: str, message: str) -> bool:
        """Whether `message` is what a function says that is still, to the letter, the stub's.

        Then every other call of it says the same. Where it is only called like that, or says it in
        some branch, it does not follow.
        """
        text = self._stub(module, function)
        known = f'raise NotImplementedError("{message}")'
        return known in text and text.encode() in self._submission.get(f"{module}.py", b"")

    def _stub(self, module: str, function: str) -> str:
        """The function's text as students got it, up to whatever comes after it."""
        source = self._new_judge("probe").reference[f"{module}.py"].decode()
        handed_out = _stub_of(source, f"{module}.py")
        lines = handed_out.splitlines(keepends=True)
        body = ast.parse(handed_out).body
        for place, node in enumerate(body):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == function:
                end = body[place + 1].lineno - 1 if body[place + 1 :] else None
                return "".join(lines[node.lineno - 1 : end])
        return ""

    def _asked(self, module: str, function: str) -> Parameters:
        source = self._new_judge("probe").reference[f"{module}.py"]
        return asked_parameters(source.decode(), function)


@functools.cache
def _stub_of(source: str, file: str) -> str:
    """What students get of a module; "" where none can be made.

    Kept, since each check that fails asks for it, and a long module takes a while.
    """
    try:
        return stub(source, file, load_problems(REFERENCE))
    except StubError:
        return ""


def asked_parameters(source: str, function: str) -> Parameters:
    """The parameters of a top-level function, or of a class's `__init__`, read from its text.

    A class without one, such as an autograd function, asks for none.
    """
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == function:
            found = [f for f in node.body if isinstance(f, ast.FunctionDef)]
            constructors = [f for f in found if f.name == "__init__"]
            return _parameters(constructors[0].args)[1:] if constructors else []
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return _parameters(node.args)
    raise ValueError(f"the reference does not define {function}")


def _parameters(arguments: ast.arguments) -> Parameters:
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD.name
    return [(a.arg, kind, place >= required) for place, a in enumerate(positional)] + [
        (a.arg, inspect.Parameter.KEYWORD_ONLY.name, default is not None)
        for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]


def _require_parameters(module: str, function: str, found: object, asked: Parameters) -> None:
    if found == "missing":
        raise CheckFailed(f"{module}.py does not define {function}")
    if found == "unknown":
        return
    if not isinstance(found, list):
        raise CheckFailed(f"{function} in {module}.py is not a function")
    given: Parameters = []
    for one in found:
        match one:
            case [str(name), str(kind), bool(has_default)]:
                given.append((name, kind, has_default))
    if not _accepts(given, asked):
        wanted = ", ".join(name for name, _, _ in asked)
        has = ", ".join(name for name, _, _ in given)
        raise CheckFailed(
            f"{function} in {module}.py takes ({has}); the assignment calls it with ({wanted}). "
            "Parameters may be added only with a default"
        )


def _accepts(given: Parameters, asked: Parameters) -> bool:
    """Whether every call that `asked` allows, `given` allows too."""
    kinds = {kind for _, kind, _ in given}
    catch_all = "VAR_POSITIONAL" in kinds and "VAR_KEYWORD" in kinds
    if catch_all:
        return True
    plain = [p for p in given if p[1] == "POSITIONAL_OR_KEYWORD"]
    by_name = {name: default for name, _, default in given}
    for place, (name, kind, default) in enumerate(asked):
        in_place = place < len(plain) and plain[place][0] == name
        if kind == "POSITIONAL_OR_KEYWORD" and not in_place:
            return False
        if name not in by_name and "VAR_KEYWORD" not in kinds:
            return False
        if default and not by_name.get(name, True):
            return False
    extra = [p for p in given if p[0] not in {name for name, _, _ in asked}]
    return all(default or kind.startswith("VAR") for _, kind, default in extra)
