"""Generic mutation: which changes there are, what is graded, and what is said of it."""

from __future__ import annotations

import ast
import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autograder import cli, mutation, stubs
from autograder.digest import grader_digest
from autograder.mutation import trials
from autograder.mutation.candidates import Candidate, candidates, equivalents, sample
from autograder.mutation.operators import Patch, patches
from autograder.mutation.table import summary
from autograder.mutation.trials import Memory, Result, judge
from autograder.paths import REFERENCE

from .submissions import MANIFEST


def changes(statement: str) -> set[str]:
    """What becomes of a statement in a function, one change at a time."""
    source = f"def f():\n    for i in x:\n        {statement}\n"
    return {
        patch.applied(source).split("\n", 2)[2].strip()
        for patch in patches(source, first=3, last=3)
    }


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("a = b + c", {"a = (b - c)"}),
        ("a = b // c", {"a = (b * c)"}),
        ("a = b and c", {"a = (b or c)"}),
        ("a = b < c", {"a = (b <= c)", "a = (b >= c)"}),
        ("a = b is not None", {"a = (b is None)"}),
        ("a = not b", {"a = b"}),
        ("a = b if c else d", {"a = b", "a = d"}),
        ("a = True", {"a = False"}),
        ("a = 1", {"a = 2", "a = 0"}),
        ("a = 7", {"a = 8"}),
        ("a = f(b, c)", {"a = f(c, b)"}),
        ("a = f(b, group=c)", {"a = f(b)"}),
        ("f(b)", {"pass"}),
        ("a += b", {"pass", "a -= b"}),
        ("break", {"continue"}),
        ("continue", {"break"}),
        ("return b", {"return None"}),
        ("raise b", {"pass"}),
        ("a = min(b, c)", set()),
        ("a: b | None = c", set()),
        ("a = 'text'", set()),
        ("a = b.c[d]", set()),
        ("a = 'ä' * b", {"a = ('ä' + b)"}),
    ],
)
def test_a_statement_is_changed_in_just_these_ways(statement: str, expected: set[str]) -> None:
    assert changes(statement) == expected


def test_only_what_lies_wholly_in_the_lines_is_changed() -> None:
    source = "a = 1\nb = 2\nc = (3 +\n     4)\n"
    assert {patch.old for patch in patches(source, first=2, last=3)} == {"2", "3"}


def test_every_change_of_the_reference_is_in_a_solution_region_and_has_a_name_of_its_own() -> None:
    found = candidates(MANIFEST, MANIFEST.modules)
    assert len({one.id for one in found}) == len(found) > 500
    assert {one.problem for one in found} == {problem.id for problem in MANIFEST.problems}
    for module in MANIFEST.modules:
        source = (REFERENCE / f"{module}.py").read_text()
        inside = {
            line
            for region in stubs.regions(source, module)
            for line in range(region.begin + 1, region.end)
        }
        for one in found:
            if one.module == module:
                assert one.line in inside, one.id


def test_a_sample_is_the_same_for_the_same_seed_and_in_order() -> None:
    found = candidates(MANIFEST, ["ddp"])
    first = sample(found, 10, seed=3)
    assert first == sample(found, 10, seed=3) != sample(found, 10, seed=4)
    assert [found.index(one) for one in first] == sorted(found.index(one) for one in first)
    assert sample(found, 10_000, seed=1) == found


def test_every_equivalent_change_is_there_and_has_a_reason() -> None:
    ids = {one.id for one in candidates(MANIFEST, MANIFEST.modules)}
    for id, reason in equivalents().items():
        assert id in ids, id
        assert len(reason) > 20, id


def change(function: str, old: str, new: str) -> Candidate:
    found = candidates(MANIFEST, MANIFEST.modules)
    return next(one for one in found if one.name == f"{function}: {old} -> {new}")


def test_a_change_is_graded_until_a_check_notices_it() -> None:
    one = next(one for one in candidates(MANIFEST, ["accounting"]) if "training_flops" in one.name)
    result = judge(MANIFEST, one)
    assert result.by.startswith("training_compute/")


def test_a_change_that_changes_nothing_is_noticed_by_nobody() -> None:
    source = (REFERENCE / "accounting.py").read_text()
    begin = source.index("def training_flops")
    nothing = Patch(begin, begin + 3, "def", "def")
    one = Candidate("accounting", "training_compute", 1, "training_flops: nothing", nothing)
    assert judge(MANIFEST, one).by == ""


# --- running, remembering, telling ----------------------------------------------------------------


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has been graded; every second one is noticed."""
    graded: list[str] = []

    def judge(_: object, one: Candidate) -> Result:
        graded.append(one.id)
        return Result(one.id, "check" if len(graded) % 2 else "", 0.5)

    monkeypatch.setattr(trials, "judge", judge)
    return graded


def test_who_is_interrupted_goes_on_where_they_were(judged: list[str], tmp_path: Path) -> None:
    chosen = candidates(MANIFEST, ["launch"])[:4]
    file = tmp_path / "memory.jsonl"
    stop = iter([0.0, 0.0, 2.0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: next(stop))
        assert not mutation.run(MANIFEST, chosen, Memory(file), lambda *_: None, deadline=1.0)
    assert judged == [one.id for one in chosen[:2]]
    shown: list[int] = []
    remembered = Memory(file)
    assert mutation.run(MANIFEST, chosen, remembered, lambda *a: shown.append(a[2]), 1e12)
    assert judged == [one.id for one in chosen]
    assert shown == [3, 4]
    assert set(Memory(file).results) == set(judged)


def test_results_of_another_state_of_the_grader_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "memory.jsonl"
    Memory(file).add(Result("a", "check", 1.0))
    assert Memory(file).results == {"a": Result("a", "check", 1.0)}
    assert json.loads(file.read_text())["state"] == grader_digest()
    noted = json.loads(file.read_text())
    file.write_text(json.dumps(noted | {"state": "another"}) + "\n")
    assert Memory(file).results == {}


def made(number: int) -> Candidate:
    return Candidate("ddp", "shard_batch", number, f"f: {number} -> 0", Patch(0, 0, "", ""))


def test_nine_in_ten_are_enough_and_survivors_are_named() -> None:
    found = [made(number) for number in range(10)]
    results = {one.id: Result(one.id, "check" if one.line else "", 1.0) for one in found}
    lines, good = summary(found, results, {})
    assert good
    assert lines[0].split() == ["ddp", "9", "of", "10", "noticed,", "90.0%", "(0", "equivalent)"]
    assert "survives: ddp.py:0 f: 0 -> 0" in lines
    results[made(1).id] = Result(made(1).id, "", 1.0)
    assert not summary(found, results, {})[1]


def test_equivalent_ones_do_not_count_but_are_shown_and_mistaken_ones_are_told() -> None:
    found = [made(0), made(1)]
    results = {made(0).id: Result(made(0).id, "", 1), made(1).id: Result(made(1).id, "c", 1)}
    known = {made(0).id: "no matter", made(1).id: "wrong", "ddp.gone": "old"}
    known |= {"launch.other": "of a module that was not asked for"}
    lines, good = summary(found, results, known)
    assert good
    assert "1 of     1 noticed, 100.0%" in lines[0]
    assert "equivalent: ddp.f: 0 -> 0 (no matter)" in lines
    assert "equivalent.toml names what is noticed: ddp.f: 1 -> 0" in lines
    assert "equivalent.toml names what is not there: ddp.gone" in lines
    assert not any("launch.other" in line for line in lines)


def test_the_command_shows_each_change_and_the_sums(judged: list[str], tmp_path: Path) -> None:
    memory = ["--memory", str(tmp_path / "memory.jsonl")]
    done = CliRunner().invoke(cli.app, ["mutate", "--module", "launch", "--sample", "2", *memory])
    assert len(judged) == 2
    assert "1 of 2  launch.py:" in done.output
    assert "noticed by check" in done.output
    assert "SURVIVES" in done.output
    assert done.exit_code == 1
    done = CliRunner().invoke(cli.app, ["mutate", "--module", "nonsense"])
    assert done.exit_code == 2
    assert "the modules are: launch, collectives" in done.output


def test_changed_programs_are_programs() -> None:
    for one in candidates(MANIFEST, ["launch"]):
        ast.parse(one.files["launch.py"])
