"""The mistakes, a file for each problem."""

from __future__ import annotations

from autograder.selfcheck.mutants import (
    activation_memory,
    all_gather,
    all_reduce,
    all_reduce_gradients,
    all_to_all,
    barrier,
    broadcast,
    broadcast_parameters,
    bus_bandwidth,
    bytes_moved,
    distributed_data_parallel,
    given,
    launch,
    measure,
    partition_buckets,
    pipeline_bubble,
    placement,
    reduce,
    reduce_scatter,
    scatter_gather,
    shard_batch,
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
        shard_batch,
        broadcast_parameters,
        all_reduce_gradients,
        partition_buckets,
        distributed_data_parallel,
        training_compute,
        state_memory,
        bytes_moved,
        activation_memory,
        pipeline_bubble,
        placement,
    )
    for mutant in module.MUTANTS
)
