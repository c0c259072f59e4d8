"""The mistakes, a file for each problem."""

from __future__ import annotations

from autograder.selfcheck.mutants import (
    activation_memory,
    all_gather,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    bus_bandwidth,
    bytes_moved,
    given,
    launch,
    measure,
    parallel_attention,
    parallel_linear,
    parallel_mlp,
    parallel_regions,
    pipeline_bubble,
    placement,
    reduce,
    reduce_scatter,
    scatter_gather,
    state_memory,
    sweep,
    time_op,
    training_compute,
    vocab_cross_entropy,
    vocab_embedding,
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
        bus_bandwidth,
        time_op,
        measure,
        sweep,
        parallel_regions,
        parallel_linear,
        parallel_mlp,
        parallel_attention,
        vocab_embedding,
        vocab_cross_entropy,
        training_compute,
        state_memory,
        bytes_moved,
        activation_memory,
        pipeline_bubble,
        placement,
    )
    for mutant in module.MUTANTS
)
