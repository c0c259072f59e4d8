"""The mistakes, a file for each problem."""

from __future__ import annotations

from autograder.selfcheck.mutants import (
    all_gather,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    given,
    launch,
    reduce,
    reduce_scatter,
    scatter_gather,
)
from autograder.selfcheck.variant import Mutant

MUTANTS: tuple[Mutant, ...] = tuple(
    mutant
    for module in (
        launch,
        broadcast,
        scatter_gather,
        reduce,
        all_gather,
        reduce_scatter,
        all_reduce,
        all_to_all,
        barrier,
        given,
    )
    for mutant in module.MUTANTS
)
