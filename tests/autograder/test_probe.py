"""The probe: one clear sentence about a module stands for all the checks that it blocks."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable

import pytest

from autograder.failure import CheckFailed
from autograder.grade import Outcome
from autograder.inputs import Seed, known_secret
from autograder.judge import Judge
from autograder.probe import Probe, _accepts, _require_parameters, asked_parameters

from .submissions import MANIFEST, Files, reference_files

POSITIONAL, KEYWORD = "POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY"


def probe(files: Files, time_left: Callable[[], float] = lambda: 60.0) -> Probe:
    def new_judge(name: str) -> Judge:
        return Judge(files, reference_files(), Seed.of(known_secret(1), name), time_left)

    return Probe(new_judge, MANIFEST, files)


def complaint(files: Files, module: str = "launch", function: str = "setup") -> CheckFailed:
    with pytest.raises(CheckFailed) as caught:
        probe(files).require(module, function)
    return caught.value


def with_launch(text: str) -> Files:
    return reference_files() | {"launch.py": text.encode()}


def test_the_reference_has_what_is_asked() -> None:
    probed = probe(reference_files())
    for problem in MANIFEST.problems:
        for name in problem.names:
            probed.require(problem.module, name)


def test_a_module_is_probed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    probed = probe(reference_files())
    probed.require("launch", "setup")
    monkeypatch.setattr(Judge, "run", None)
    probed.require("launch", "cleanup")


def test_a_missing_module_is_said_to_be_missing() -> None:
    files = reference_files()
    del files["launch.py"]
    failed = complaint(files)
    assert failed.message == "there is no launch.py in what you handed in"
    assert failed.outcome is Outcome.BLOCKED


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("def setup(:\n", ["importing it raised", "launch.py", "SyntaxError"]),
        ("\0", ["importing it raised"]),
        ("# -*- coding: nonsense -*-\n", ["importing it raised", "SyntaxError"]),
        (
            "raise KeyError('at import')\n",
            ["importing it raised", "line 1", "KeyError: 'at import'"],
        ),
        ("import sys\nsys.exit(0)\n", ["importing it raised", "SystemExit"]),
        ("from .nothing import ring\n", ["No module named 'assignment.nothing'"]),
        ("import os\nos._exit(0)\n", ["the process died while importing it", "exit code 0"]),
        ("import os\nos.kill(os.getpid(), 9)\n", ["the process died", "SIGKILL"]),
    ],
)
def test_a_module_that_cannot_be_imported_blocks_its_checks_and_says_why(
    text: str, parts: list[str]
) -> None:
    failed = complaint(with_launch(text))
    assert failed.outcome is Outcome.BLOCKED
    assert failed.message.startswith("launch.py cannot be imported: ")
    for part in parts:
        assert part in failed.message


def test_an_import_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autograder.probe._TIMEOUT", 1.0)
    failed = complaint(with_launch("while True:\n    pass\n"))
    assert failed.outcome is Outcome.BLOCKED
    assert "it did not finish importing; does it run something at the top?" in failed.message
    assert "assignment/launch.py:" in failed.message


def test_an_import_that_the_budget_cuts_short_is_not_held_against_it() -> None:
    files = with_launch("import time\nwhile True:\n    time.sleep(0.01)\n")
    with pytest.raises(CheckFailed) as caught:
        probe(files, time_left=lambda: 0.5).require("launch", "setup")
    assert caught.value.outcome is Outcome.NOT_RUN
    assert caught.value.message == "not run: out of time"


def test_a_missing_function_and_what_is_none_are_named() -> None:
    files = with_launch("setup = 3\n")
    assert complaint(files).message == "setup in launch.py is not a function"
    assert complaint(files, function="cleanup").message == "launch.py does not define cleanup"


def test_a_function_with_other_parameters_is_told_which_are_asked_for() -> None:
    failed = complaint(with_launch("def setup(rank): ...\ndef cleanup(): ...\n"))
    assert failed.message == (
        "setup in launch.py takes (rank); the assignment calls it with (rank, world_size, backend, "
        "address, port, file, timeout). Parameters may be added only with a default"
    )


def test_a_function_without_parameters_is_not_taken_for_one_that_hides_them() -> None:
    with pytest.raises(CheckFailed, match=r"takes \(\); the assignment calls it with \(group\)"):
        _require_parameters("collectives", "barrier", [], [("group", POSITIONAL, True)])


def test_a_callable_that_does_not_tell_its_parameters_may_be_right() -> None:
    _require_parameters("collectives", "barrier", "unknown", [("group", POSITIONAL, True)])


@pytest.mark.parametrize("found", ["rubbish", None, 3, ["rubbish"], [["group"]], [[1, 2, 3]]])
def test_a_forged_answer_of_the_probe_is_a_failure_and_no_fault(found: object) -> None:
    with pytest.raises(CheckFailed):
        _require_parameters("collectives", "barrier", found, [("group", POSITIONAL, True)])


@pytest.mark.parametrize("module", ["launch", "collectives"])
def test_what_is_asked_is_what_python_says_of_the_reference(module: str) -> None:
    source = reference_files()[f"{module}.py"].decode()
    imported = importlib.import_module(f"reference.{module}")
    for problem in MANIFEST.problems_of_module(module):
        for name in problem.names:
            signature = inspect.signature(getattr(imported, name))
            assert asked_parameters(source, name) == [
                (one.name, one.kind.name, one.default is not inspect.Parameter.empty)
                for one in signature.parameters.values()
            ]


def test_a_class_is_asked_for_the_parameters_of_its_init() -> None:
    source = (
        "class DDP:\n    def forward(self, x): ...\n    def __init__(self, module, cap=25): ..."
    )
    assert asked_parameters(source, "DDP") == [
        ("module", POSITIONAL, False),
        ("cap", POSITIONAL, True),
    ]


ASKED = "def f(tensor, op=1, group=None, *, port=2): ..."


@pytest.mark.parametrize(
    ("given", "accepted"),
    [
        ("def f(tensor, op=1, group=None, *, port=2): ...", True),
        ("def f(tensor, op=1, group=None, port=2): ...", True),
        ("def f(tensor, op=1, group=None, port=2, more=3): ...", True),
        ("def f(tensor=0, op=1, group=None, *, port=2): ...", True),
        ("def f(*args, **kwargs): ...", True),
        ("def f(tensor, op=1, group=None, *, port=2, **more): ...", True),
        ("def f(tensor, op, group=None, *, port=2): ...", False),
        ("def f(tensor, group=None, op=1, *, port=2): ...", False),
        ("def f(tensor, op=1, *, group=None, port=2): ...", False),
        ("def f(tensor, op=1, group=None): ...", False),
        ("def f(tensor, op=1, group=None, *, port=2, more): ...", False),
        ("def f(x, op=1, group=None, *, port=2): ...", False),
        ("def f(tensor, op=1, group=None, **kwargs): ...", True),
        ("def f(tensor, /, op=1, group=None, *, port=2): ...", False),
    ],
)
def test_a_signature_is_accepted_if_every_call_that_is_asked_works(
    given: str, accepted: bool
) -> None:
    scope: dict[str, Callable[..., None]] = {}
    exec(given, scope)
    parameters = [
        (one.name, one.kind.name, one.default is not inspect.Parameter.empty)
        for one in inspect.signature(scope["f"]).parameters.values()
    ]
    assert _accepts(parameters, asked_parameters(ASKED, "f")) == accepted
