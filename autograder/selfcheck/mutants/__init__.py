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
    gpipe,
    launch,
    measure,
    one_f_one_b,
    partition_layers,
    pipeline_bubble,
    pipeline_forward,
    pipeline_stage,
    placement,
    reduce,
    reduce_scatter,
    run_schedule,
    scatter_gather,
    state_memory,
    sweep,
    time_op,
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
        bus_bandwidth,
        time_op,
        measure,
        sweep,
        pipeline_forward,
        partition_layers,
        gpipe,
        one_f_one_b,
        pipeline_stage,
        run_schedule,
        training_compute,
        state_memory,
        bytes_moved,
        activation_memory,
        pipeline_bubble,
        placement,
    )
    for mutant in module.MUTANTS
)
