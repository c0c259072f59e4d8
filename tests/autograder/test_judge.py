"""The judge: whatever a submission does in its ranks becomes a sentence about the submission."""

from __future__ import annotations

import re
import time

import pytest

from autograder import collective
from autograder.failure import CheckFailed
from autograder.grade import Outcome, Row
from autograder.inputs import Seed, known_secret
from autograder.judge import Answer, Case, Judge, without_plumbing
from autograder.scenario import ALLOWED, Scenario
from multirank import Trace

from .submissions import (
    MANIFEST,
    Files,
    graded,
    patched,
    reference_files,
    rows_of,
    stub_files,
)

ONE_RANK = Scenario("broadcast", 1, (3,))


def judge(files: Files, time_left: float = 60.0) -> Judge:
    seed = Seed.of(known_secret(1), "a test")
    return Judge(files, reference_files(), seed, lambda: time_left)


def failure(body: str, scenario: Scenario = ONE_RANK, timeout: float = 10.0) -> CheckFailed:
    """What comes of a broadcast with this body."""
    judged = judge(patched({"broadcast": body}))
    drawn = scenario.draw(judged.seed.generator())
    with pytest.raises(CheckFailed) as caught:
        judged.run(drawn.case, [drawn.inputs], timeout)
    return caught.value


def first_row(body: str, check: str = "broadcast/from_rank_0") -> Row:
    problem, _, name = check.partition("/")
    return rows_of(graded(patched({problem: body}), [check]), problem)[name]


# --- How ranks end --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "outcome", "part"),
    [
        ("import os\nos._exit(0)", Outcome.CRASHED, "left with exit code 0 before it had answered"),
        ("import os\nos._exit(3)", Outcome.CRASHED, "left with exit code 3"),
        ("import os\nos.kill(os.getpid(), 9)", Outcome.CRASHED, "died of SIGKILL"),
        ("import os\nos.abort()", Outcome.CRASHED, "died of SIGABRT"),
        ("import ctypes\nctypes.string_at(0)", Outcome.CRASHED, "died of SIGSEGV"),
        ("raise SystemExit(0)", Outcome.FAILED, "SystemExit: 0"),
        ("raise KeyboardInterrupt", Outcome.FAILED, "KeyboardInterrupt"),
        ("raise NotImplementedError", Outcome.FAILED, "NotImplementedError"),
        ("raise NotImplementedError('not yet')", Outcome.FAILED, "not yet"),
        ("while True:\n    print('x' * 10000)", Outcome.CRASHED, "printed more than 64 MiB"),
        ("def f(): f()\nf()", Outcome.FAILED, "RecursionError"),
    ],
)
def test_every_end_of_a_rank_has_its_outcome_and_is_told(
    body: str, outcome: Outcome, part: str
) -> None:
    failed = failure(body)
    assert failed.outcome is outcome
    assert part in failed.message


def test_a_rank_that_hangs_is_shown_where_it_hangs() -> None:
    started = time.monotonic()
    failed = failure("import time\nwhile True:\n    time.sleep(0.01)", timeout=0.5)
    assert time.monotonic() - started < 10
    assert failed.outcome is Outcome.TIMED_OUT
    assert re.search(r"assignment/collectives.py:\d+ in broadcast", failed.message)


def test_the_end_of_the_budget_is_not_a_timeout_of_the_submission() -> None:
    judged = judge(patched({"broadcast": "import time\ntime.sleep(60)"}), time_left=0.3)
    drawn = ONE_RANK.draw(judged.seed.generator())
    with pytest.raises(CheckFailed) as caught:
        judged.run(drawn.case, [drawn.inputs])
    assert (caught.value.outcome, caught.value.message) == (
        Outcome.NOT_RUN,
        "not run: out of time",
    )


def test_what_the_reference_does_wrong_is_not_the_submissions_fault() -> None:
    judged = judge(reference_files())
    judged.reference = patched({"broadcast": "raise RuntimeError('broken')"})
    drawn = ONE_RANK.draw(judged.seed.generator())
    with pytest.raises(RuntimeError, match="broken"):
        judged.run_reference(drawn.case, [drawn.inputs])


# --- What it communicates with --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "operation"),
    [
        ("dist.all_reduce(flat, group=group)", "all_reduce"),
        ("dist.broadcast(flat, src, group)", "broadcast"),
        ("dist.barrier(group)", "barrier"),
        ("dist.new_group([0])", "new_group"),
        ("dist.all_gather_object([None] * n, 1, group)", "all_gather"),
        (
            "import torch.distributed._functional_collectives as funcol\n"
            "funcol.all_reduce(flat, 'sum', dist.group.WORLD).sum()",
            "all_reduce",
        ),
        ("dist.all_reduce(flat, group=group)\nraise RuntimeError('later')", "all_reduce"),
    ],
)
def test_an_operation_that_the_docstring_forbids_is_named_with_its_line(
    body: str, operation: str
) -> None:
    source = patched({"broadcast": body})["collectives.py"].decode()
    call = next(line for line in body.splitlines() if "dist." in line or "funcol.all" in line)
    if "funcol" in body:
        call = body.splitlines()[1]
    number = next(
        place for place, line in enumerate(source.splitlines(), 1) if line.strip() == call
    )
    failed = failure(body)
    assert failed.outcome is Outcome.FAILED
    assert failed.message.startswith(
        f"it uses dist.{operation} (collectives.py, line {number}). The docstring allows only "
        "dist.send, recv, isend, irecv and batch_isend_irecv here."
    )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            "import multirank\nfor _ in range(300_000):\n    multirank.mark('x')",
            id="more than is kept of one rank",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "import multirank.inside\nmultirank.inside._recorder._append(b'rubbish\\n')",
            id="what is no record",
        ),
    ],
)
def test_what_was_not_recorded_is_not_graded(body: str) -> None:
    assert "the record of what it communicated is incomplete" in failure(body).message


# --- Forged answers -------------------------------------------------------------------------------

FORGER = """

import functools
import multirank.processes.rank
import torch

tensor = torch.zeros(3, dtype=torch.complex64)
describe = multirank.processes.rank.describe


def forging(function):
    @functools.wraps(function)
    def forge(*args, **kwargs):
        multirank.processes.rank.describe = lambda value, arena: describe({junk}, arena)
        return function(*args, **kwargs)

    return forge


for name in {names}:
    globals()[name] = forging(globals()[name])
"""

JUNK = {
    "a list": "[]",
    "a text": "'text'",
    "nothing": "None",
    "an empty dictionary": "{}",
    "lists of other things": (
        "{name: [1, None, 'x'] for name in "
        "('result', 'input', 'pieces', 'calls', 'raised', 'entered', 'left', 'elements', 'first', "
        "'numbers', 'parts', 'batches', 'held', 'gradients', 'buckets', 'begun', 'parameters')}"
    ),
    "tensors everywhere": (
        "{name: tensor for name in "
        "('result', 'input', 'pieces', 'calls', 'raised', 'entered', 'left', 'elements', 'first', "
        "'numbers', 'parts', 'batches', 'held', 'gradients', 'buckets', 'begun', 'parameters')}"
    ),
    "dictionaries of nothing": (
        "{'calls': [{}] * 4, 'first': 1, 'second': None, 'entered': [0.0], 'left': [0.0], "
        "'result': {}, 'raised': [], 'elements': -1, 'numbers': [[]], 'parts': [[{}]] * 4, "
        "'batches': [{}], 'held': {}, 'gradients': [{}] * 4, 'buckets': [[{}]] * 4, 'begun': {}, "
        "'parameters': {}}"
    ),
}
NAMES = {
    module: [name for problem in MANIFEST.problems_of_module(module) for name in problem.names]
    for module in MANIFEST.modules
}


def forged(junk: str) -> Files:
    files = reference_files()
    for module, names in NAMES.items():
        more = FORGER.replace("{junk}", junk).replace("{names}", repr(names))
        files[f"{module}.py"] += more.encode()
    return files


def assert_failed_by_its_own_fault(junk: str, only: list[str]) -> None:
    grade = graded(forged(junk), only)
    ran = [row for row in grade.rows if row.outcome is not Outcome.NOT_RUN]
    assert {row.check_id: row.staff for row in ran if row.staff} == {}
    assert {row.outcome for row in ran} == {Outcome.FAILED}
    assert grade.earned == 0


@pytest.mark.parametrize("kind", ["nothing", "tensors everywhere", "dictionaries of nothing"])
def test_a_forged_answer_is_a_failure_and_no_fault_of_the_graders(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collective, "LARGE", 1 << 20)
    assert_failed_by_its_own_fault(
        JUNK[kind],
        [
            *("launch/address", "launch/cleanup", "launch/refusals", "barrier/alone_and_often"),
            *("all_reduce/average", "all_reduce/refusals", "all_reduce/traffic"),
            *("scatter_gather/gather_edges", "reduce/others_untouched"),
        ],
    )


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
def test_no_check_takes_a_forged_answer_for_a_fault_of_its_own(
    junk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collective, "LARGE", 1 << 20)
    assert_failed_by_its_own_fault(junk, [])


@pytest.mark.parametrize(
    "number", [2**63, -(2**63) - 1, 10**5000], ids=["a bit more", "a bit less", "no end of digits"]
)
def test_an_answer_with_a_number_of_more_than_64_bits_is_none(number: int) -> None:
    with pytest.raises(CheckFailed, match="more than 64 bits"):
        Answer([{"found": [[1, number]]}], Trace())
    Answer([{"found": [[1, 2**63 - 1, True]]}], Trace())


def test_what_a_case_itself_puts_in_the_place_of_functions_is_not_flagged() -> None:
    assert graded(reference_files(), ["launch/address", "launch/cleanup"]).about.flags == []


# --- Costs that are not what they seem ------------------------------------------------------------


def test_a_rank_is_not_told_how_its_peers_inputs_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or it could work out a large sum without a message, at no cost."""
    calls = []
    run = Judge.run

    def recorded(self: Judge, case: Case, given: list, *args: object, **more: object) -> object:  # type: ignore[type-arg]
        calls.extend(given)
        return run(self, case, given, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Judge, "run", recorded)
    monkeypatch.setattr(collective, "LARGE", 1 << 20)
    graded(reference_files(), ["all_reduce/traffic"])
    large = [call for call in calls if call[0].get("function") == "all_reduce"]
    assert len(large) == 2  # 4 and 8 ranks
    for call in large:
        assert len({inputs["a"] for inputs in call}) == len(call)
        for inputs in call:
            sizes = {"function", "root", "elements", "output_elements"}
            assert set(inputs) == sizes | {"a", "b", "modulus"}  # a and b of its own


def test_a_cost_without_right_values_earns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective, "LARGE", 1 << 20)
    row = first_row("pass", "all_reduce/traffic")
    assert row.score == 0
    assert row.message == (
        "all_reduce of 1 MiB on 4 ranks: rank 0's result is not right, so its cost does not count"
    )


# --- Stories --------------------------------------------------------------------------------------


def test_a_story_keeps_the_students_frames_and_loses_ours() -> None:
    story = """rank 0 of 2 raised:
    Traceback (most recent call last):
      File "<drive>", line 60, in drive
        return function(Implementation(), here, inputs)
               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      File "<case collectives>", line 57, in broadcast
        impl.collectives.broadcast(tensor)
      File "/some/where/torch/utils/_contextlib.py", line 124, in decorate_context
        return func(*args, **kwargs)
      File "assignment/collectives.py", line 93, in broadcast
        raise RuntimeError("boom")
    RuntimeError: boom
rank 1 of 2 had not finished after 10 s
  it was here:
    assignment/collectives.py:93 in broadcast
    torch/utils/_contextlib.py:124 in decorate_context
    <case collectives>:57 in broadcast
    <drive>:60 in drive
"""
    assert (
        without_plumbing(story)
        == """rank 0 of 2 raised:
    Traceback (most recent call last):
      File "assignment/collectives.py", line 93, in broadcast
        raise RuntimeError("boom")
    RuntimeError: boom
rank 1 of 2 had not finished after 10 s
  it was here:
    assignment/collectives.py:93 in broadcast
"""
    )


def test_a_call_with_bad_arguments_that_never_returns_is_told_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = patched(
        {
            "_group_rank": (
                "if root not in ranks:",
                "if root not in ranks:\n        while True: pass\n    if False:",
            )
        }
    )
    row = rows_of(graded(files, ["broadcast/refusals"]), "broadcast")["refusals"]
    assert row.outcome is Outcome.TIMED_OUT
    assert row.message.startswith("a call with bad arguments must raise ValueError")
    assert "broadcast with a root outside the group" in row.facts["arguments"]


def test_a_refusal_after_something_was_sent_comes_too_late() -> None:
    late = """
    if n == 2 and len(flat) == 4:
        peer = ranks[1 - rank]
        handle = dist.isend(flat.clone(), peer, group)
        dist.recv(flat, peer, group)
        handle.wait()
        raise ValueError("too late")
    if rank == root:
        for peer in ranks:
            if peer != src:
                dist.send(flat, peer, group)
    else:
        dist.recv(flat, src, group)
    """
    files = patched({"broadcast": late, "_group_rank": ("return ranks.index(root)", "return 0")})
    text = files["collectives.py"].decode().replace("if root not in ranks:", "if False:")
    files["collectives.py"] = text.encode()
    row = rows_of(graded(files, ["broadcast/refusals"]), "broadcast")["refusals"]
    assert row.outcome is Outcome.FAILED
    assert "refused too late: something had been sent or received already (send" in row.message


def test_case_and_allowed_operations_are_what_the_docstring_says() -> None:
    assert ONE_RANK.draw(judge({}).seed.generator()).case.allowed == ALLOWED == {"send", "recv"}


# --- The picture of what it did -------------------------------------------------------------------

HANGS = """
if dist.get_rank() == 0:
    dist.recv(tensor, 1)
else:
    dist.recv(tensor, 0)
"""


def test_a_hang_can_be_seen_and_its_picture_tells_no_folder_of_this_machine() -> None:
    judged = judge(patched({"broadcast": HANGS}))
    scenario = Scenario("broadcast", 2, (3,))
    drawn = scenario.draw(judged.seed.generator())
    with pytest.raises(CheckFailed):
        judged.run(drawn.case, [drawn.inputs], facts=[scenario.facts])
    picture = judged.timeline()
    assert "blocked for ever" in picture
    assert "recv ← 1 · 12 B · collectives.py:" in picture
    assert "world size 2" in picture
    assert "/" not in re.sub(r"</?\w+|/>|http://www.w3.org/2000/svg", "", picture)
    assert len(picture.encode()) <= 60_000


def test_the_picture_is_of_the_call_that_the_facts_are_about() -> None:
    judged = judge(reference_files())
    assert judged.timeline() == ""
    for size in (2, 3):
        scenario = Scenario("broadcast", size, (3,))
        judged.run(
            scenario.draw(judged.seed.generator()).case,
            [scenario.draw(judged.seed.generator()).inputs],
            facts=[{"size": str(size)}],
        )
    assert "rank 2" in judged.timeline()
    judged.note({"size": "2"})
    assert "rank 2" not in judged.timeline()
    judged.note({"size": "unknown"})
    assert "rank 2" in judged.timeline()


def test_what_is_too_large_to_be_drawn_small_gets_no_picture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("autograder.judge._PICTURE", 100)
    judged = judge(reference_files())
    drawn = Scenario("broadcast", 2, (3,)).draw(judged.seed.generator())
    judged.run(drawn.case, [drawn.inputs])
    assert judged.timeline() == ""


def test_ranks_that_communicate_nothing_get_no_picture() -> None:
    judged = judge(stub_files())
    drawn = Scenario("broadcast", 2, (3,)).draw(judged.seed.generator())
    with pytest.raises(CheckFailed, match="not written yet"):
        judged.run(drawn.case, [drawn.inputs])
    assert judged.timeline() == ""


def test_only_a_row_that_did_not_pass_has_a_picture() -> None:
    grade = graded(patched({"broadcast": HANGS}), ["broadcast/from_rank_0", "barrier"])
    assert "<svg" in rows_of(grade, "broadcast")["from_rank_0"].timeline
    assert not any(row.timeline for row in grade.rows_of("barrier"))
