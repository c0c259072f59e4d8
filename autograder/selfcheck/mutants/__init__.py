"""The mistakes, a file for each problem."""

from __future__ import annotations

from autograder.selfcheck.mutants import (
    activation_memory,
    all_gather,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    bytes_moved,
    given,
    launch,
    pipeline_bubble,
    placement,
    reduce,
    reduce_scatter,
    scatter_gather,
    state_memory,
    training_compute,
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
        training_compute,
        state_memory,
        bytes_moved,
        activation_memory,
        pipeline_bubble,
        placement,
    )
    for mutant in module.MUTANTS
)
