"""benchmarks/class.py: what its simulation must say where the answer is known."""

from __future__ import annotations

import importlib

import pytest

from tests.autograder.submissions import MANIFEST, graded, small_manifest

simulation = importlib.import_module("benchmarks.class")
Grading, simulate = simulation.Grading, simulation.simulate
PLAIN = Grading(((1.0, False),) * 10)
MEASURES = Grading(((4.0, False), (1.0, True)))
FREE = {"start": 0.0, "starts_per_second": 1e9, "noticed": 0.0}


def test_slurm_puts_as_many_on_a_node_as_get_the_cores_that_each_asks_for() -> None:
    assert simulation.slots_of(MANIFEST, cores=8) == 2  # 8 ranks on 4 cores
    assert simulation.slots_of(small_manifest("shard_batch"), cores=8) == 4  # 4 ranks on 2
    assert simulation.slots_of(MANIFEST, cores=3) == 0


def test_what_counts_as_measured_are_checks_that_there_are() -> None:
    rows = graded({}, unusable="nothing is run").rows
    assert set(simulation.MEASURED) <= {row.check_id for row in rows}


@pytest.mark.parametrize(("nodes", "slots"), [(1, 1), (1, 4), (4, 2)])
def test_without_turns_and_starts_it_is_ideal(nodes: int, slots: int) -> None:
    outcome = simulate([PLAIN] * 64, nodes, slots, **FREE)
    assert outcome.makespan == pytest.approx(640 / (nodes * slots), rel=1e-6)
    assert outcome.efficiency == pytest.approx(1, rel=1e-6)
    assert outcome.waited == pytest.approx(0, abs=1e-3)


def test_who_measures_is_alone_on_a_node_and_on_no_other() -> None:
    two_on_one = simulate([MEASURES] * 2, 1, 2, **FREE)
    assert two_on_one.makespan == pytest.approx(6, rel=1e-6)  # 4 side by side, then 1 and 1
    assert two_on_one.waited == pytest.approx(1, rel=1e-6)
    on_two = simulate([MEASURES] * 2, 2, 1, **FREE)
    assert on_two.makespan == pytest.approx(5, rel=1e-6)


def test_nobody_passes_one_who_waits_to_measure() -> None:
    long, measures = Grading(((3.0, False), (3.0, False))), Grading(((1.0, False), (1.0, True)))
    outcome = simulate([long, measures], 1, 2, **FREE)
    assert outcome.makespan == pytest.approx(7, rel=1e-6)  # 3, then 1 alone, then 3


def test_starting_costs_every_grading_and_slurm_starts_one_after_the_other() -> None:
    outcome = simulate([PLAIN] * 4, 4, 1, start=5.0, starts_per_second=0.5, noticed=0.0)
    assert outcome.started == pytest.approx(20)
    assert outcome.makespan == pytest.approx(3 * 2 + 5 + 10)


def test_what_is_lost_and_the_work_are_all_of_the_time() -> None:
    outcome = simulate([MEASURES, PLAIN] * 20, 2, 3)
    parts = outcome.work + outcome.waited + outcome.started + outcome.idle
    assert parts == pytest.approx(outcome.makespan * outcome.slots)
    assert outcome.idle >= 0
