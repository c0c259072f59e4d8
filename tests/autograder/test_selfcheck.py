"""The selfcheck: it must notice a grader that has gone blind, strict, confused or unsteady."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autograder import cli
from autograder.grade import Outcome, Row
from autograder.manifest import Manifest, load
from autograder.paths import REFERENCE, module_files
from autograder.selfcheck import plan, run
from autograder.selfcheck.alternatives import ALTERNATIVES
from autograder.selfcheck.mutants import MUTANTS
from autograder.selfcheck.public import PublicRun, run_public_tests
from autograder.selfcheck.run import Result, judge_public
from autograder.selfcheck.trial import (
    Diagnosis,
    Trial,
    judge_alternative,
    judge_mutant,
    judge_reference,
    judge_stub,
    planned_rows,
    try_variant,
)
from autograder.selfcheck.variant import (
    Mutant,
    Variant,
    _patched,
    alternative,
    function_source,
    mutant,
    patched,
)

from .submissions import SMALL

MANIFEST = load(REFERENCE)
CHECKS = [row.check_id for row in planned_rows(MANIFEST)]
VARIANTS: tuple[Variant, ...] = (*MUTANTS, *ALTERNATIVES)


def row(
    name: str,
    outcome: Outcome = Outcome.PASSED,
    *,
    part: str = "1",
    message: str = "",
    causes: Sequence[str] = (),
) -> Row:
    """A row of 2 points, with `part` of them earned where it is passed or partial."""
    earned = Fraction(part) * 2 if outcome in (Outcome.PASSED, Outcome.PARTIAL) else Fraction(0)
    return Row(
        f"barrier/{name}",
        "barrier",
        "1.9",
        "1.9.1",
        name,
        "values",
        Fraction(2),
        outcome=outcome,
        score=earned,
        message=message,
        causes=tuple(causes),
    )


FORGETFUL = mutant("barrier", "forgetful", "It forgets.", "pass", ["waits"], told="left too early")
OTHER = alternative("barrier", "other", "It goes round.", "pass", but={"cost": "1/2"})


# --- The data -------------------------------------------------------------------------------------


def test_every_variant_has_a_name_of_its_own() -> None:
    names = Counter(variant.name for variant in VARIANTS)
    assert [name for name, times in names.items() if times > 1] == []


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_every_variant_fits_the_reference_and_is_python(variant: Variant) -> None:
    files = variant.files
    assert files != module_files(REFERENCE)
    for source in files.values():
        ast.parse(source)


@pytest.mark.parametrize("problem", [p for p in MANIFEST.problems if p.points >= 2], ids=str)
def test_every_problem_of_two_points_has_six_mutants(problem: object) -> None:
    own = [one.name for one in MUTANTS if one.problem == problem.id]  # type: ignore[attr-defined]
    assert len(own) >= 6


def test_the_small_manifest_has_one_problem_of_each_part() -> None:
    assert [problem.part for problem in SMALL.problems] == [part.id for part in MANIFEST.parts]


def test_the_collectives_have_ten_alternatives() -> None:
    assert len(ALTERNATIVES) >= 10


@pytest.mark.parametrize("check", CHECKS)
def test_every_check_is_lost_by_some_mutant(check: str) -> None:
    assert any(one.must_lose(check) for one in MUTANTS)


def test_every_variant_tells_its_story_in_a_sentence() -> None:
    assert [one.name for one in VARIANTS if not one.story.endswith(".")] == []


def test_a_patch_that_no_longer_fits_says_where() -> None:
    with pytest.raises(ValueError, match="stands 0 times in barrier"):
        patched("collectives", {"barrier": ("no such text", "")})
    with pytest.raises(ValueError, match="no barriers"):
        patched("collectives", {"barriers": "pass"})
    with pytest.raises(ValueError, match="_members has not one solution region"):
        patched("collectives", {"_members": "pass"})


# --- Judging a mutant -----------------------------------------------------------------------------


def test_a_mutant_that_loses_just_its_checks_is_as_it_should_be() -> None:
    trial = judge_mutant(
        FORGETFUL, [row("waits", Outcome.FAILED, message="rank 1 left too early"), row("often")]
    )
    assert trial.complaints == ()
    assert trial.diagnosis is Diagnosis.NAMED
    assert trial.lost == {"barrier/waits"}


def test_a_blind_check_is_noticed() -> None:
    trial = judge_mutant(FORGETFUL, [row("waits"), row("often")])
    assert "does not lose barrier/waits" in trial.complaints


def test_a_check_that_fails_for_another_reason_is_noticed() -> None:
    rows = [row("waits", Outcome.FAILED, message="left too early"), row("often", Outcome.CRASHED)]
    (complaint,) = judge_mutant(FORGETFUL, rows).complaints
    assert complaint.startswith("loses barrier/often (0 of 2)")


def test_partial_credit_is_a_loss() -> None:
    rows = [row("waits", Outcome.PARTIAL, part="1/2", message="left too early"), row("often")]
    assert judge_mutant(FORGETFUL, rows).complaints == ()


def test_a_fault_of_the_graders_is_noticed_even_where_a_loss_is_due() -> None:
    rows = [row("waits", Outcome.GRADER_FAULT, message="left too early")]
    complaints = judge_mutant(FORGETFUL, rows).complaints
    assert any(one.startswith("the grader itself errs in barrier/waits") for one in complaints)


def test_what_a_noisy_machine_could_not_tell_is_no_broken_promise() -> None:
    rows = [row("waits", Outcome.TOO_NOISY)]
    tried = mutant("barrier", "leaves early", "", "", ["waits"])
    assert judge_mutant(tried, rows).complaints == ()
    assert judge_reference(rows).complaints == judge_stub(rows).complaints == ()


def test_a_check_that_is_there_no_more_is_noticed() -> None:
    complaints = judge_mutant(FORGETFUL, [row("often")]).complaints
    assert "barrier/waits: there is no such check" in complaints


def test_a_mutant_that_is_not_told_its_cause_is_noticed() -> None:
    trial = judge_mutant(FORGETFUL, [row("waits", Outcome.FAILED, message="it is wrong")])
    assert trial.complaints == ("is not told 'left too early', but: it is wrong",)
    assert trial.diagnosis is Diagnosis.SILENT


def test_a_mutant_that_is_told_a_wrong_cause_is_noticed() -> None:
    rows = [row("waits", Outcome.FAILED, message="left too early", causes=["consistent with x"])]
    trial = judge_mutant(FORGETFUL, rows)
    assert trial.complaints == ("is told a wrong cause: consistent with x",)
    assert trial.diagnosis is Diagnosis.WRONG
    assert judge_mutant(replace(FORGETFUL, also=("with x",)), rows).diagnosis is Diagnosis.NAMED


def test_a_mutant_without_a_cause_that_shows_may_be_told_none() -> None:
    trial = judge_mutant(replace(FORGETFUL, told=""), [row("waits", Outcome.FAILED)])
    assert (trial.complaints, trial.diagnosis) == ((), Diagnosis.SILENT)


# --- Judging right solutions and stubs ------------------------------------------------------------


def test_an_alternative_earns_what_it_is_promised_and_neither_more_nor_less() -> None:
    def complaints(part: str) -> tuple[str, ...]:
        outcome = Outcome.PASSED if part == "1" else Outcome.PARTIAL
        return judge_alternative(OTHER, [row("waits"), row("cost", outcome, part=part)]).complaints

    assert complaints("1/2") == ()
    for part in ("1", "3/4", "1/4"):
        (complaint,) = complaints(part)
        assert complaint.startswith("1 points are right for it: barrier/cost")


def test_an_alternative_at_the_edge_of_a_band_earns_what_it_must_at_least() -> None:
    on_edge = replace(OTHER, but={}, least={"barrier/cost": "3/4"})

    def complaints(part: str) -> tuple[str, ...]:
        outcome = Outcome.PASSED if part == "1" else Outcome.PARTIAL
        rows = [row("waits"), row("cost", outcome, part=part)]
        return judge_alternative(on_edge, rows).complaints

    assert complaints("1") == complaints("3/4") == ()
    (complaint,) = complaints("1/2")
    assert complaint.startswith("1.5 to 2 points are right for it: barrier/cost")


def test_an_alternative_that_loses_values_is_noticed() -> None:
    rows = [row("waits", Outcome.FAILED), row("cost", Outcome.PARTIAL, part="1/2")]
    (complaint,) = judge_alternative(OTHER, rows).complaints
    assert complaint.startswith("2 points are right for it: barrier/waits (0 of 2)")


def test_a_reference_short_of_full_marks_is_noticed() -> None:
    assert judge_reference([row("waits"), row("often")]).complaints == ()
    (complaint,) = judge_reference([row("waits"), row("often", Outcome.TIMED_OUT)]).complaints
    assert complaint.startswith("loses barrier/often")


def test_a_stub_that_earns_something_or_errs_is_noticed() -> None:
    assert judge_stub([row("waits", Outcome.FAILED)]).complaints == ()
    rows = [row("waits"), row("often", Outcome.TIMED_OUT), row("cost", Outcome.GRADER_FAULT)]
    first, second, third = judge_stub(rows).complaints
    assert first.startswith("earns something in barrier/waits")
    assert second.startswith("is not failed, but timed out, in barrier/often")
    assert third.startswith("is not failed, but grader fault, in barrier/cost")


# --- Judging what the public tests promise --------------------------------------------------------


def test_whoever_passes_all_public_tests_keeps_three_quarters() -> None:
    trial = Trial("forgetful", (), diagnosis=Diagnosis.NAMED, kept=Fraction(7, 10))
    (complaint,) = judge_public(FORGETFUL, trial, caught=False).complaints
    assert "passes all public tests, but keeps only 70%" in complaint
    assert judge_public(FORGETFUL, trial, caught=True).complaints == ()
    enough = replace(trial, kept=Fraction(3, 4))
    assert judge_public(FORGETFUL, enough, caught=False).complaints == ()


def test_a_right_solution_that_fails_a_public_test_is_noticed() -> None:
    (complaint,) = judge_public(OTHER, Trial("other", ()), caught=True).complaints
    assert complaint == "fails a public test, although it is right"


@pytest.mark.parametrize(
    ("on", "passed", "failed", "complaints"),
    [
        (run.ON_REFERENCE, {"a", "b"}, set(), ()),
        (run.ON_REFERENCE, {"a"}, {"b"}, ("b fails",)),
        (run.ON_STUBS, set(), {"a", "b"}, ()),
        (run.ON_STUBS, {"a"}, {"b"}, ("a passes",)),
        (run.ON_STUBS, set(), set(), ("there are none",)),
    ],
)
def test_public_tests_must_pass_on_the_reference_and_fail_on_the_stubs(
    monkeypatch: pytest.MonkeyPatch,
    on: str,
    passed: set[str],
    failed: set[str],
    complaints: tuple[str, ...],
) -> None:
    found = PublicRun(frozenset(passed), frozenset(failed))
    monkeypatch.setattr(run, "run_public_tests", lambda *_: found)
    assert run.try_public("collectives", on, {}).complaints == complaints


@pytest.mark.slow
def test_the_public_tests_run_on_any_variant() -> None:
    forgetful = next(one for one in MUTANTS if one.name == "barrier does nothing")
    found = run_public_tests(forgetful.files, "collectives")
    assert found.failed
    assert all("barrier" in name for name in found.failed)
    assert sum("broadcast" in name for name in found.passed) > 3


# --- The whole ------------------------------------------------------------------------------------


def test_too_few_named_causes_are_a_complaint() -> None:
    trials = {
        str(i): Trial(str(i), (), diagnosis=Diagnosis.NAMED if i < 3 else Diagnosis.SILENT)
        for i in range(4)
    }
    result = Result([], CHECKS, trials)
    assert result.accuracy == Fraction(3, 4)
    run.judge_diagnosis(result)
    assert not result.good
    assert result.complaints[0].startswith("only 75% of the mutants")


def test_a_check_that_no_mutant_loses_is_a_complaint() -> None:
    (complaint,) = run.uncovered([*CHECKS, "launch/is_pretty"])
    assert complaint.startswith("no mutant loses launch/is_pretty")


@pytest.mark.parametrize("good", [True, False])
def test_the_command_ends_with_1_when_a_promise_is_broken(
    monkeypatch: pytest.MonkeyPatch, good: bool
) -> None:
    def fake(manifest: Manifest, *, quick: bool, told: Callable[[Trial, int, int], None]) -> Result:
        assert quick
        assert [problem.part for problem in manifest.problems][::8] == ["collectives"] * 2
        trial = Trial(FORGETFUL.name, () if good else ("does not lose barrier/waits",))
        told(trial, 1, 1)
        return Result([FORGETFUL], CHECKS, {trial.name: replace(trial, diagnosis=Diagnosis.NAMED)})

    monkeypatch.setattr(run, "run", fake)
    done = CliRunner().invoke(cli.app, ["selfcheck", "--quick", "--part", "collectives"])
    assert done.exit_code == (0 if good else 1)
    assert ("All as it should be" in done.output) == good
    assert ("forgetful: does not lose barrier/waits" in done.output) != good


def test_a_part_is_checked_with_its_own_variants_alone() -> None:
    part = MANIFEST.only_part("bandwidth")
    assert part.problems[0].id == "bus_bandwidth"
    variants = run.of_manifest(part)
    assert len(variants) > 20
    assert {one.problem for one in variants} == {problem.id for problem in part.problems}


def test_a_part_that_is_not_there_is_wrong_usage() -> None:
    done = CliRunner().invoke(cli.app, ["selfcheck", "--part", "colectives"])
    assert done.exit_code == 2
    assert "There is no part `colectives`; the parts are: collectives, bandwidth" in done.output


# --- What is tried in a hurry ---------------------------------------------------------------------


def test_a_quick_run_tries_a_mutant_and_an_alternative_for_each_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    chosen = plan.quick(VARIANTS, CHECKS, set())
    mutants = [one for one in chosen if isinstance(one, Mutant)]
    assert len(chosen) == 2 * plan.QUICK_VARIANTS_A_CORE
    assert {one.problem for one in mutants} == {problem.id for problem in MANIFEST.problems}
    assert {one.problem for one in ALTERNATIVES} <= {
        one.problem for one in chosen if not isinstance(one, Mutant)
    }
    assert chosen == plan.quick(VARIANTS, CHECKS, set())


def test_with_enough_cores_a_quick_run_loses_every_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    chosen = plan.quick(VARIANTS, CHECKS, set())
    mutants = [one for one in chosen if isinstance(one, Mutant)]
    assert len(mutants) < len(MUTANTS) / 2
    assert all(any(one.must_lose(check) for one in mutants) for check in CHECKS)


def test_a_quick_run_tries_all_of_a_changed_problem_and_nothing_else() -> None:
    chosen = plan.quick(VARIANTS, CHECKS, {"barrier"})
    assert {one.name for one in chosen} == {
        one.name for one in VARIANTS if one.problem == "barrier"
    }


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two commits, of which plan looks at the last."""
    monkeypatch.setattr(plan, "ROOT", tmp_path)
    (tmp_path / "reference").mkdir()
    (tmp_path / "autograder" / "checks").mkdir(parents=True)
    (tmp_path / "reference" / "collectives.py").write_bytes(
        (REFERENCE / "collectives.py").read_bytes()
    )
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        git(tmp_path, *arguments)
    git(tmp_path, "commit", "-qm", "two", "--allow-empty")
    return tmp_path


def git(where: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=where, check=True)


def test_nothing_changed_concerns_no_problem(repository: Path) -> None:
    assert plan.changed_problems(MANIFEST) == set()


def test_a_changed_function_of_the_reference_concerns_its_problem(repository: Path) -> None:
    file = repository / "reference" / "collectives.py"
    file.write_text(file.read_text().replace("heard.item()", "heard.sum().item()"))
    assert plan.changed_problems(MANIFEST) == {"barrier"}


def test_a_changed_check_or_mutant_concerns_its_problem(repository: Path) -> None:
    (repository / "autograder" / "checks" / "test_reduce.py").write_text("")
    git(repository, "add", ".")
    assert plan.changed_problems(MANIFEST) == {"reduce"}


def test_without_a_repository_nothing_is_known_to_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "ROOT", tmp_path)
    assert plan.changed_problems(MANIFEST) == set()


# --- For real -------------------------------------------------------------------------------------


def test_a_real_mutant_is_graded_and_found_as_promised() -> None:
    trial = try_variant(MANIFEST, _named("barrier does nothing"), whole_part=False)
    assert trial.complaints == ()
    assert trial.diagnosis is Diagnosis.NAMED
    assert trial.kept == Fraction(23, 24)


def test_a_real_mutant_of_which_too_little_is_promised_is_noticed() -> None:
    harmless = replace(
        _named("barrier does nothing"), patches={"barrier": ("heard.item()", "heard.sum()")}
    )
    trial = try_variant(MANIFEST, harmless, whole_part=False)
    assert "does not lose barrier/waits_for_the_last" in trial.complaints


def _named(name: str) -> Mutant:
    return next(one for one in MUTANTS if one.name == name)


# ---------------------------------------------------------------- patches

TWO_CLASSES = """\
class First:
    @property
    def size(self) -> int:
        return 1

    def forward(self) -> int:
        # BEGIN SOLUTION
        return 2
        # END SOLUTION


class Second:
    def forward(self) -> int:
        return 3
"""


def test_the_text_of_a_method_ends_where_the_next_thing_begins() -> None:
    assert function_source(TWO_CLASSES, "First.size").endswith("return 1\n\n")
    assert function_source(TWO_CLASSES, "First.size").startswith("    @property")
    assert function_source(TWO_CLASSES, "Second.forward").endswith("return 3\n")
    assert "class Second" not in function_source(TWO_CLASSES, "First")
    with pytest.raises(ValueError, match=r"no First\.backward"):
        function_source(TWO_CLASSES, "First.backward")


def test_a_patch_of_a_method_leaves_its_namesake_alone() -> None:
    old = function_source(TWO_CLASSES, "First.forward")
    new = TWO_CLASSES.replace(old, _patched("First.forward", old, "if True:\n    return 4"))
    assert "        if True:\n            return 4\n\n\nclass Second" in new
    assert "SOLUTION" not in new
