"""What messages and collectives cost: each price is that of its algorithm, message by message."""

from __future__ import annotations

import math
from typing import Literal

import pytest

import multirank.modelling.fabric as fabrics
from multirank.modelling.fabric import COLLECTIVES, Fabric
from multirank.modelling.programs import replay_programs
from tests.multirank import algorithms
from tests.multirank.algorithms import Algorithm

LATENCY, BANDWIDTH = 20e-6, 50e9
RING = Fabric("ring", LATENCY, BANDWIDTH)
TREE = Fabric("tree", LATENCY, BANDWIDTH, "tree")
POWERS = [2, 4, 8, 32]
ANY = [2, 3, 5, 8, 12]


def test_a_message_takes_the_latency_and_its_bytes_over_the_bandwidth() -> None:
    assert RING.message(0) == 20e-6
    assert RING.message(50_000) == pytest.approx(21e-6)


@pytest.mark.parametrize(
    ("name", "fabric", "algorithm", "sizes"),
    [
        ("all_reduce", RING, algorithms.ring_all_reduce, ANY),
        ("reduce_scatter", RING, algorithms.ring, ANY),
        ("all_gather", RING, algorithms.ring, ANY),
        ("scatter", RING, algorithms.direct_scatter, ANY),
        ("all_to_all", RING, algorithms.pairwise_all_to_all, ANY),
        ("barrier", RING, algorithms.dissemination_barrier, ANY),
        ("all_reduce", TREE, algorithms.tree_all_reduce, POWERS),
        ("broadcast", TREE, algorithms.tree_broadcast, ANY),
        ("reduce", TREE, algorithms.tree_reduce, POWERS),
        ("all_gather", TREE, algorithms.doubling_all_gather, POWERS),
        ("reduce_scatter", TREE, algorithms.halving_reduce_scatter, POWERS),
        ("scatter", TREE, algorithms.tree_scatter, POWERS),
        ("all_to_all", TREE, algorithms.bruck_all_to_all, ANY),
        ("barrier", TREE, algorithms.dissemination_barrier, ANY),
    ],
)
def test_a_collective_costs_what_its_messages_do(
    name: str, fabric: Fabric, algorithm: Algorithm, sizes: list[int]
) -> None:
    for n in sizes:
        nbytes = n * 30_000
        programs = [algorithm(rank, n, nbytes) for rank in range(n)]
        modelled = replay_programs(programs, fabric).makespan
        assert fabric.collective(name, n, nbytes) == pytest.approx(modelled, rel=1e-12), n


@pytest.mark.parametrize("n", [2, 3, 8, 50])
@pytest.mark.parametrize("nbytes", [0, 1, 720_720, 72_072_000])
@pytest.mark.parametrize("name", ["broadcast", "reduce"])
def test_a_chain_passes_on_the_best_number_of_pieces(name: str, n: int, nbytes: int) -> None:
    price = RING.collective(name, n, nbytes)
    every = [(k + n - 2) * RING.message(nbytes / k) for k in range(1, 1000)]
    assert price == pytest.approx(min(every), rel=1e-12)


@pytest.mark.parametrize("n", [2, 3, 8, 50])
@pytest.mark.parametrize("pieces", [1, 15])
def test_a_chain_costs_what_its_messages_do(n: int, pieces: int) -> None:
    chain = algorithms.chain_broadcast(pieces)
    modelled = replay_programs([chain(rank, n, 720_720) for rank in range(n)], RING).makespan
    expected = (pieces + n - 2) * RING.message(720_720 / pieces)
    assert modelled == pytest.approx(expected, rel=1e-12)


def test_a_chain_without_latency_costs_hardly_more_than_one_message() -> None:
    price = Fabric("ideal", 0.0, 1e9).collective("broadcast", 100, 10**9)
    assert price == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("name", sorted(COLLECTIVES))
@pytest.mark.parametrize("algorithm", ["ring", "tree"])
def test_one_rank_alone_takes_no_time(name: str, algorithm: Literal["ring", "tree"]) -> None:
    assert Fabric("any", LATENCY, BANDWIDTH, algorithm).collective(name, 1, 10**9) == 0


def test_an_unknown_collective_is_refused() -> None:
    with pytest.raises(ValueError, match="'all_reduced' is no collective; these are: all_gather"):
        RING.collective("all_reduced", 4, 1)


@pytest.mark.parametrize(
    ("latency", "bandwidth", "what"),
    [
        (-1e-6, 1e9, "latency is -1e-06 s"),
        (math.nan, 1e9, "latency is nan s"),
        (1e-6, 0.0, "bandwidth is 0.0 B/s"),
        (1e-6, math.inf, "bandwidth is inf B/s"),
    ],
)
def test_an_impossible_fabric_is_refused(latency: float, bandwidth: float, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Fabric("impossible", latency, bandwidth)


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(ValueError, match="algorithm is 'star'; it must be"):
        Fabric("star", 0, 1, "star")  # type: ignore[arg-type]


def test_presets_carry_the_peak_of_one_direction() -> None:
    gigabits = {
        fabrics.NVLINK: 3600,
        fabrics.PCIE: 504,
        fabrics.INFINIBAND: 400,
        fabrics.ETHERNET: 100,
        fabrics.ETHERNET_10: 10,
    }
    for fabric, peak in gigabits.items():
        assert fabric.bandwidth * 8 / 1e9 == pytest.approx(peak)
        assert 1e-6 <= fabric.latency <= 1e-4
    latencies = [fabric.latency for fabric in gigabits]
    assert latencies == sorted(latencies)
