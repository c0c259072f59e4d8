"""What a call costs: the busiest rank's bytes and modelled time, in steps; the worse one counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from autograder import collective, cost
from autograder.cost import (
    BYTES_BANDS,
    TIME_BANDS,
    Modelled,
    Moved,
    Score,
    busiest,
    model,
    score_bytes,
    score_measured,
    score_time,
    worst,
)
from autograder.failure import CheckFailed
from autograder.inputs import Seed, known_secret
from autograder.judge import Answer, Judge
from autograder.paths import REFERENCE
from multirank import Mark, Operation, ReplayError, Trace, replay_programs
from multirank.modelling.programs import Irecv, Isend, Recv, Send, Wait
from tests.multirank import algorithms
from tests.multirank.algorithms import Algorithm, Program

from .submissions import reference_files

FULL = 64 << 20
BOUND = 1000 * 4
BANDS_IN_WORDS = [
    *(("0", "1"), ("1/2", "1"), ("1", "1")),
    *(("8/5", "3/4"), ("1601/1000", "1/2"), ("11/5", "1/2"), ("2201/1000", "1/4")),
    *(("16/5", "1/4"), ("3201/1000", "0"), ("7", "0")),
]


def operation(rank: int, name: str, nbytes: int, **more: Any) -> Operation:
    given = {"peer": 0, "issued": 0.0} | more
    return Operation(
        rank=rank,
        id=0,
        name=name,
        group=(0, 1, 2),
        tag=0,
        reduce_op=None,
        dtype="float32",
        shape=(nbytes // 4,),
        nbytes=nbytes,
        file="collectives.py",
        line=1,
        **given,
    )


def sent(rank: int, to: int, nbytes: int, issued: float, waited: float | None = None) -> Operation:
    return operation(rank, "send", nbytes, peer=to, issued=issued, waited=waited)


def received(
    rank: int, source: int, nbytes: int, issued: float, waited: float | None = None
) -> Operation:
    return operation(rank, "recv", nbytes, peer=source, issued=issued, waited=waited)


# --- Bytes --------------------------------------------------------------------------------------


def moved(elements: float, messages: int = 0) -> Moved:
    return Moved(0, "sent", round(4 * elements), messages)


def bytes_part(one: Moved) -> Fraction:
    return score_bytes(one, 8, BOUND, BOUND).part


def test_sending_and_receiving_are_counted_apart() -> None:
    trace = Trace([operation(0, "send", 40), operation(0, "recv", 60), operation(1, "send", 60)])
    assert busiest(trace, 3) == Moved(0, "received", 60, 1)


def test_the_messages_of_one_rank_and_direction_add_up() -> None:
    trace = Trace([operation(2, "recv", 40), operation(2, "recv", 40), operation(1, "send", 60)])
    assert busiest(trace, 3) == Moved(2, "received", 80, 2)


def test_nobody_having_moved_anything_is_nothing_moved() -> None:
    assert busiest(Trace(), 2).nbytes == 0


@pytest.mark.parametrize(
    ("ratio", "part"), [*BANDS_IN_WORDS, ("105/100", "1"), ("1051/1000", "3/4")]
)
def test_bytes_earn_in_the_steps_that_the_docstring_states(ratio: str, part: str) -> None:
    assert bytes_part(moved(float(1000 * Fraction(ratio)))) == Fraction(part)


def test_one_element_a_message_is_free() -> None:
    assert bytes_part(moved(1051 * 1.05 // 1, messages=51)) == 1
    assert bytes_part(moved(1051 * 1.05 // 1, messages=0)) < 1


def test_too_many_bytes_are_told_in_units_of_the_full_tensor() -> None:
    score = score_bytes(Moved(3, "received", 3 * FULL, 3), 8, 7 * FULL // 4, FULL)
    assert score == Score(
        Fraction(1, 2),
        "with 8 ranks, rank 3 received 3.00 S; 1.75 S is enough (S is the full tensor, 64 MiB)",
    )


# --- Modelled time ------------------------------------------------------------------------------


@pytest.mark.parametrize(("ratio", "part"), [*BANDS_IN_WORDS, ("11/10", "1"), ("1101/1000", "3/4")])
def test_time_earns_in_the_steps_that_the_docstring_states(ratio: str, part: str) -> None:
    modelled = Modelled(0.003 * float(Fraction(ratio)), 1.0, 0, "sends")
    assert score_time(modelled, 0.003, 8, FULL, "a ring").part == Fraction(part)


def test_a_message_takes_the_time_that_the_docstring_states() -> None:
    trace = Trace([sent(0, 1, 1 << 20, 0.0, 0.0), received(1, 0, 1 << 20, 0.0, 0.0)])
    assert model(trace, 3).seconds == pytest.approx(20e-6 + (1 << 20) / 50e9, rel=1e-12)
    assert '``multirank.replay(trace, multirank.Fabric("", 20e-6, 50e9))``' in docstring()


def test_messages_that_stand_for_larger_ones_take_as_long_as_those() -> None:
    small, large = (
        Trace([sent(0, 1, size, 0.0, 0.0), received(1, 0, size, 0.0, 0.0)]) for size in (64, 4096)
    )
    assert model(small, 3, shrunk=64).seconds == pytest.approx(model(large, 3).seconds, rel=1e-12)


def test_ranks_that_wait_for_one_another_are_told_so() -> None:
    one_after_another = Trace(
        [
            *(sent(0, 1, FULL, 0.0, 0.1), received(1, 0, FULL, 0.0, 0.1)),
            *(sent(1, 2, FULL, 0.2, 0.3), received(2, 1, FULL, 0.0, 0.1)),
        ]
    )
    modelled = model(one_after_another, 3)
    assert modelled.busy == pytest.approx(1 / 2)
    score = score_time(modelled, modelled.seconds / 2, 3, FULL, "a binomial tree")
    assert score.part == Fraction(1, 2)
    assert "2.00 times as long as those of a binomial tree" in score.why
    assert "no rank sends, or receives, for more than 50% of that time" in score.why


def test_a_rank_that_has_all_to_do_is_named() -> None:
    to_all = Trace(
        [
            *(sent(1, 0, FULL, 0.0, 0.1), sent(1, 2, FULL, 0.2, 0.3)),
            *(received(0, 1, FULL, 0.0, 0.1), received(2, 1, FULL, 0.0, 0.1)),
        ]
    )
    modelled = model(to_all, 3)
    score = score_time(modelled, modelled.seconds / 2, 3, FULL, "a binomial tree")
    assert score.why.endswith("rank 1 sends for 100% of that time")


def test_asking_until_it_is_complete_is_waiting_too() -> None:
    """Else whoever polls would seem to have begun everything at once."""
    waits = [
        *(sent(0, 1, FULL, 0.0, 0.1), received(0, 1, FULL, 0.2, 0.3)),
        *(received(1, 0, FULL, 0.0, 0.1), sent(1, 0, FULL, 0.2, 0.3)),
    ]
    polls = [replace(each, waited=None, completed=each.waited) for each in waits]
    assert model(Trace(polls), 3).seconds == model(Trace(waits), 3).seconds
    begun_at_once = [replace(each, waited=None) for each in waits]
    assert model(Trace(begun_at_once), 3).seconds < model(Trace(waits), 3).seconds


def test_declared_compute_and_marks_of_a_submission_do_not_count() -> None:
    operations = [sent(0, 1, 4, 0.0, 0.1), received(1, 0, 4, 0.0, 0.1)]
    marks = [Mark(0, "compute", "nonsense", 0.0, -1.0), Mark(7, "mark", "elsewhere", 0.0)]
    assert model(Trace(operations, marks), 3) == model(Trace(operations), 3)


def test_nothing_sent_takes_no_time() -> None:
    assert model(Trace(), 3) == Modelled(0.0, 0.0, 0, "sends")


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        (Trace([sent(0, 1, 4, 0.0)]), "operations have no counterpart"),
        (Trace([sent(0, 1, 4, 0.0, 0.1), received(1, 2, 4, 0.0, 0.1)]), "collectives.py:1"),
        (Trace([sent(0, 5, 4, 0.0)]), "the peer is not in the group"),
        (Trace([sent(9, 1, 4, 0.0)]), "must be from 0 to 2"),
        (Trace([replace(sent(0, 1, 4, 0.0), group=(0, 1, 1 << 60))]), "must be from 0 to 2"),
        (Trace([replace(sent(0, 1, 4, 0.0), group=(0, 1, 1))]), "must hold different ranks"),
        (Trace([replace(sent(0, 1, 4, 0.0), nbytes=-1)]), "-1 bytes"),
        (Trace([replace(sent(0, 1, 4, 0.5), waited=0.1)]), "before it is issued"),
        (Trace([replace(sent(0, 1, 4, 0.0), name="teleport")]), "no such operation"),
        (Trace([sent(0, 1, 4, 0.0)], damaged=True), "is damaged"),
        (Trace([sent(0, 1, 4, 0.0)], truncated=True), "was cut off"),
    ],
)
def test_a_trace_that_cannot_be_replayed_says_why(trace: Trace, why: str) -> None:
    with pytest.raises(ReplayError, match=why):
        model(trace, 3)


def test_more_messages_than_the_docstring_allows_are_not_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cost, "MOST_OPERATIONS", 4)
    pair = [sent(0, 1, 4, 0.0, 0.1), received(1, 0, 4, 0.0, 0.1)]
    model(Trace(pair * 2), 3)
    with pytest.raises(ReplayError, match="Send fewer, larger messages"):
        model(Trace(pair * 3), 3)


# --- Both ---------------------------------------------------------------------------------------


def test_the_pool_takes_the_worst_and_of_equals_the_first() -> None:
    full, half, low = (Score(Fraction(part), part) for part in ("1", "1/2", "1/4"))
    assert worst(full, low, half) is low
    assert worst(half, Score(Fraction(1, 2), "later"), full) is half


def test_the_bands_are_those_of_the_docstring() -> None:
    assert (
        "Up to 1.05 times the bytes, and 1.1 times the time, earns all points for cost, 1.6 times "
        "three quarters, 2.2 times half, and 3.2 times a quarter; the worse of the two counts."
    ) in docstring()
    steps = [(1.6, 0.75), (2.2, 0.5), (3.2, 0.25)]
    for bands, first in ((BYTES_BANDS, 1.05), (TIME_BANDS, 1.1)):
        assert [(float(limit), float(part)) for limit, part in bands] == [(first, 1), *steps]


def test_the_docstring_says_how_many_messages_are_free() -> None:
    assert f"up to {cost.MOST_OPERATIONS // 2:,} in a call" in docstring()


def docstring() -> str:
    return " ".join(source().split())


def source() -> str:
    return (REFERENCE / "collectives.py").read_text()


def one_after_another(rank: int, n: int, nbytes: int) -> Program:
    if rank == 0:
        yield from (Send(peer, nbytes) for peer in range(1, n))
    else:
        yield Recv(0)


def two_rings(rank: int, n: int, nbytes: int) -> Program:
    for _ in range(2 * (n - 1)):
        sends = [Isend((rank + way) % n, nbytes // n // 2) for way in (1, -1)]
        receives = [Irecv((rank - way) % n) for way in (1, -1)]
        yield from (*sends, *receives)
        yield from (Wait(step) for step in (*sends, *receives))


def scatter_then_all_gather(rank: int, n: int, nbytes: int) -> Program:
    yield from algorithms.direct_scatter(rank, n, nbytes)
    yield from algorithms.ring(rank, n, nbytes)


def by_rank_all_to_all(rank: int, n: int, nbytes: int) -> Program:
    for peer in range(n):
        if peer != rank:
            yield from algorithms.exchange(peer, peer, nbytes // n)


def scatters_all_to_all(rank: int, n: int, nbytes: int) -> Program:
    for root in range(n):
        if rank == root:
            yield from (Send(p, nbytes // n) for p in range(n) if p != rank)
        else:
            yield Recv(root)


TABLE: dict[str, tuple[Algorithm, Algorithm]] = {
    name: (program, reference)
    for reference, programs in (
        (
            algorithms.ring_all_reduce,
            {
                "ring": algorithms.ring_all_reduce,
                "two rings, half of the tensor each way": two_rings,
                "recursive halving and doubling": algorithms.rabenseifner,
                "recursive doubling": algorithms.recursive_doubling,
                "ring of blocking calls": algorithms.blocking_ring,
                "reduce and broadcast, by trees": algorithms.tree_all_reduce,
                "the whole tensor around the ring": algorithms.unchunked_ring,
                "all to one rank and back": algorithms.naive_all_reduce,
            },
        ),
        (
            algorithms.tree_broadcast,
            {
                "tree": algorithms.tree_broadcast,
                "root to one rank after another": one_after_another,
                "chain": algorithms.chain_broadcast(1),
                "chain, in 8 pieces that follow one another": algorithms.chain_broadcast(8),
                "scatter, then all_gather": scatter_then_all_gather,
            },
        ),
        (
            algorithms.pairwise_all_to_all,
            {
                "pairwise": algorithms.pairwise_all_to_all,
                "everything under way at once": algorithms.pairwise_all_to_all_at_once,
                "Bruck's": algorithms.bruck_all_to_all,
                "everybody with rank 0 first, then 1, ...": by_rank_all_to_all,
                "a scatter from one rank after another": scatters_all_to_all,
            },
        ),
    )
    for name, program in programs.items()
}


def test_the_docstring_s_table_of_algorithms_is_what_the_model_says() -> None:
    rows = re.findall(r"^ {8}(?:\S+|\(.*?\))? {2,}(\S.*?) {2,}([\d. ]+)$", source(), re.MULTILINE)
    told = {name: [float(number) for number in numbers.split()] for name, numbers in rows}
    assert told.keys() == TABLE.keys()
    for name, numbers in told.items():
        program, reference = TABLE[name]
        sizes = (collective.SMALL, collective.LARGE)[-len(numbers) :]
        ratios = [seconds(program, size) / seconds(reference, size) for size in sizes]
        assert numbers == [round(ratio, 2) for ratio in ratios], name


def seconds(program: Algorithm, nbytes: int) -> float:
    return replay_programs([program(rank, 8, nbytes) for rank in range(8)], cost.FABRIC).makespan


# --- Measured time ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "part"),
    [
        *((0.5, "1"), (1.5, "1"), (1.51, "3/4"), (2.4, "3/4"), (2.41, "1/2"), (3.3, "1/2")),
        *((3.31, "1/4"), (4.8, "1/4"), (4.81, "0")),
    ],
)
def test_measured_time_earns_in_the_steps_that_the_docstring_states(
    ratio: float, part: str
) -> None:
    assert score_measured(ratio, 4, FULL, Fraction(3, 2)).part == Fraction(part)
    assert score_measured(ratio / 1.2, 4, FULL, Fraction(5, 4)).part == Fraction(part)


def test_a_measured_ratio_is_told_as_one() -> None:
    why = score_measured(2.0, 4, FULL, Fraction(3, 2)).why
    assert "4 ranks and 64 MiB, it takes 2.00 times as long" in why


# --- The reference ------------------------------------------------------------------------------


def reference_answers(
    function: str, world_size: int, nbytes: int, times: int = 1
) -> Sequence[Answer]:
    judge = Judge(reference_files(), reference_files(), Seed.of(known_secret(1), "x"), lambda: 60.0)
    case, inputs = collective.sized(function, world_size, nbytes, [(1, 0)] * world_size)
    return judge.run_reference(case, [inputs] * times)


def test_the_same_call_is_modelled_the_same_to_the_last_digit_however_the_machine_was() -> None:
    answers = reference_answers("all_reduce", 4, 1 << 16, times=5)
    assert len({model(answer.trace, 4).seconds for answer in answers}) == 1


@pytest.mark.parametrize(
    ("function", "messages", "parts"),
    [
        *(("all_reduce", 14, 8), ("reduce_scatter", 7, 8), ("all_gather", 7, 8)),
        *(("broadcast", 3, 1), ("reduce", 3, 1), ("all_to_all", 7, 8)),
    ],
)
@pytest.mark.parametrize("nbytes", [1 << 16, pytest.param(64 << 20, marks=pytest.mark.slow)])
def test_the_reference_takes_the_time_that_its_docstring_states(
    function: str, messages: int, parts: int, nbytes: int
) -> None:
    (real,) = reference_answers(function, 8, nbytes)
    stated = messages * cost.FABRIC.message(nbytes / parts)
    assert model(real.trace, 8).seconds == pytest.approx(stated, rel=1e-9)
    (shrunk,) = reference_answers(function, 8, nbytes // collective.SHRUNK)
    assert model(shrunk.trace, 8, collective.SHRUNK).seconds == pytest.approx(stated, rel=1e-9)


def test_what_is_sent_after_the_call_has_returned_is_not_for_free() -> None:
    """As by a function that puts its work off until somebody looks at the result."""
    files = reference_files()
    late = """
import torch

_broadcast, _flatten_tensor = broadcast, torch.Tensor.flatten


def broadcast(tensor, src, group=None):
    def flatten(self):
        torch.Tensor.flatten = _flatten_tensor
        _broadcast(tensor, src, group)
        return self.flatten()

    torch.Tensor.flatten = flatten
"""
    submission = files | {"collectives.py": files["collectives.py"] + late.encode()}
    judge = Judge(submission, files, Seed.of(known_secret(1), "x"), lambda: 60.0)
    with pytest.raises(CheckFailed, match=r"rank \d still sends or receives .*collectives\.py"):
        collective._score_call(judge, "broadcast", 2, 1 << 12, np.random.default_rng(0))


def test_expected_elements_are_those_of_the_definition() -> None:
    """Against the functions written out, on whole tensors of 4 ranks."""
    part, numbers = 6, [(2, 1), (3, 5), (7, 0), (1, 9)]
    inputs = [(a * np.arange(4 * part) + b) % 4093 for a, b in numbers]
    parts = [(a * np.arange(part) + b) % 4093 for a, b in numbers]
    total = np.sum(inputs, axis=0)
    everywhere = np.arange(4 * part)

    def expected(function: str, rank: int) -> list[int]:
        index = everywhere[:part] if function == "reduce_scatter" else everywhere
        found: list[int] = collective.expected_elements(
            function, index, rank, part, numbers
        ).tolist()
        return found

    for rank in range(4):
        own = slice(rank * part, (rank + 1) * part)
        assert expected("all_reduce", rank) == total.tolist()
        assert expected("reduce_scatter", rank) == total[own].tolist()
        assert expected("all_gather", rank) == np.concatenate(parts).tolist()
        assert expected("broadcast", rank) == inputs[0].tolist()
        assert expected("all_to_all", rank) == np.concatenate([i[own] for i in inputs]).tolist()
