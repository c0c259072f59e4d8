"""Mistakes in shard_batch."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

MUTANTS = [
    mutant(
        "shard_batch",
        "shard_batch drops the remainder",
        "As in the lecture: the size of a part is rows // world_size.",
        """
        each = len(batch) // world_size
        return batch[rank * each : (rank + 1) * each]
        """,
        ["remainder", "dtypes_and_dimensions"],
        told="the remainder being dropped",
    ),
    mutant(
        "shard_batch",
        "shard_batch gives all of the remainder to the last rank",
        "The last one takes what is left.",
        """
        each = len(batch) // world_size
        stop = len(batch) if rank == world_size - 1 else (rank + 1) * each
        return batch[rank * each : stop]
        """,
        ["remainder", "dtypes_and_dimensions"],
        told="all of the remainder going to the last rank",
    ),
    mutant(
        "shard_batch",
        "shard_batch gives the remainder to the last ranks",
        "A row more each, from the other end.",
        """
        each, remainder = divmod(len(batch), world_size)
        first = world_size - remainder  # of those that have a row more
        start = rank * each + max(0, rank - first)
        return batch[start : start + each + (rank >= first)]
        """,
        ["remainder", "dtypes_and_dimensions"],
        told="the remainder going to the last ranks",
    ),
    mutant(
        "shard_batch",
        "shard_batch rounds the size of a part up",
        "As torch.chunk does; the last ranks may get nothing.",
        """
        each = -(-len(batch) // world_size)
        return batch[rank * each : (rank + 1) * each]
        """,
        ["remainder"],
        told="parts of the rounded-up size",
    ),
    mutant(
        "shard_batch",
        "shard_batch deals the rows out one by one",
        "As DistributedSampler does.",
        "return batch[rank::world_size]",
        ["batches_that_divide", "remainder", "dtypes_and_dimensions"],
        told="every n-th row",
    ),
    mutant(
        "shard_batch",
        "shard_batch gives every rank the whole batch",
        "It was sharded by the data loader before, and then no longer.",
        "return batch",
        ["batches_that_divide", "remainder", "dtypes_and_dimensions"],
        told="every rank having the whole batch",
    ),
    mutant(
        "shard_batch",
        "shard_batch makes floats of what it cuts",
        "The model wants floats anyway.",
        ("return batch[start:stop]", "return batch[start:stop].float()"),
        ["dtypes_and_dimensions"],
        told="another shape or dtype",
    ),
]
