"""The measured checks, again and again: right programs never fail, wasteful ones all but always.

On an idle machine, and beside programs that keep two cores busy.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from autograder.inputs import Seed, known_secret
from autograder.judge import Judge
from autograder.measured import TooNoisy, require_agreement, score_all_reduce
from autograder.selfcheck.mutants import MUTANTS
from autograder.selfcheck.variant import Files

from .submissions import patched, reference_files

FEW, MANY = 5, 40
CLONES = """
left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]
for step in range(1, n):
    chunks = [chunk.clone() for chunk in flat.tensor_split(n)]
    partial = torch.empty_like(chunks[(rank - step - 1) % n])
    send = dist.P2POp(dist.isend, chunks[(rank - step) % n], right, group)
    recv = dist.P2POp(dist.irecv, partial, left, group)
    for work in dist.batch_isend_irecv([send, recv]):
        work.wait()
    chunks[(rank - step - 1) % n] = combine(chunks[(rank - step - 1) % n], partial)
    flat.copy_(torch.cat(chunks))
if op == ReduceOp.AVG:
    flat.tensor_split(n)[rank].div_(n)
for step in range(n - 1):
    chunks = [chunk.clone() for chunk in flat.tensor_split(n)]
    send = dist.P2POp(dist.isend, chunks[(rank - step) % n], right, group)
    recv = dist.P2POp(dist.irecv, chunks[(rank - step - 1) % n], left, group)
    for work in dist.batch_isend_irecv([send, recv]):
        work.wait()
    flat.copy_(torch.cat(chunks))
"""
GATHERS = """
everything = [torch.empty_like(flat) for _ in range(n)]
works = [dist.isend(flat.clone(), peer, group) for peer in ranks if peer != ranks[rank]]
works += [
    dist.irecv(everything[place], peer, group)
    for place, peer in enumerate(ranks)
    if place != rank
]
for work in works:
    work.wait()
everything[rank].copy_(flat)
flat.copy_(torch.stack(everything).sum(dim=0))
if op == ReduceOp.AVG:
    flat.div_(n)
"""


def mutant_files(name: str) -> Files:
    return next(mutant.files for mutant in MUTANTS if mutant.name == name)


WASTEFUL = {
    "clones in the loop": patched({"all_reduce": CLONES}),
    "unchunked": mutant_files("all_reduce passes the whole tensor around in every step"),
    "gathers everything": patched({"all_reduce": GATHERS}),
}


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    # They end with this process, however it ends.
    forever = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
    loops = [subprocess.Popen([sys.executable, "-c", forever]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def fails(files: Files, place: int) -> bool:
    """Whether it gets less than full marks; a machine that is too noisy fails nobody."""
    seed = Seed.of(known_secret(place), "measured")
    score = score_all_reduce(Judge(files, reference_files(), seed, lambda: 600.0))
    return score is not None and score.part < 1


def require_agreement_of_the_reference(place: int) -> None:
    """Raises CheckFailed, but where the machine is too noisy."""
    seed = Seed.of(known_secret(place), "measured")
    with suppress(TooNoisy):
        require_agreement(Judge(reference_files(), reference_files(), seed, lambda: 600.0))


@pytest.mark.slow
def test_what_wastes_time_fails_but_where_the_machine_is_too_noisy() -> None:
    one_after_another = itertools.cycle(WASTEFUL.values())
    assert sum(fails(next(one_after_another), place) for place in range(FEW)) >= FEW - 1


@pytest.mark.slow
def test_the_reference_does_not_fail_beside_busy_programs() -> None:
    with busy_loops(2):
        assert not any(fails(reference_files(), place) for place in range(FEW))


@pytest.mark.slow
def test_measure_of_the_reference_agrees_beside_busy_programs() -> None:
    with busy_loops(2):
        for place in range(FEW):
            require_agreement_of_the_reference(place)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("loops", [0, 2])
@pytest.mark.parametrize("wasteful", WASTEFUL)
def test_what_wastes_time_fails_in_all_but_one_of_many(wasteful: str, loops: int) -> None:
    with busy_loops(loops):
        assert sum(fails(WASTEFUL[wasteful], place) for place in range(MANY)) >= MANY - 1


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("loops", [0, 2])
def test_the_reference_never_fails_in_many(loops: int) -> None:
    with busy_loops(loops):
        assert not any(fails(reference_files(), place) for place in range(MANY))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("loops", [0, 2])
def test_measure_of_the_reference_agrees_in_many(loops: int) -> None:
    with busy_loops(loops):
        for place in range(MANY):
            require_agreement_of_the_reference(place)
