"""Mistakes in the given parts that several functions share."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

MUTANTS = [
    mutant(
        "all_reduce",
        "nothing is ever copied back into a tensor that is not contiguous",
        "_copy_back was emptied while looking for a mistake, and forgotten.",
        {"_copy_back": ("if not tensor.is_contiguous():", "if False:")},
        [
            *("broadcast/layouts", "scatter_gather/scatter_edges", "scatter_gather/gather_edges"),
            *("reduce/layouts", "all_gather/layouts", "reduce_scatter/layouts"),
            *("all_reduce/layouts", "all_to_all/layouts", "all_gather/input_untouched"),
            *("reduce_scatter/input_untouched", "all_to_all/input_untouched"),
        ],
        told="stayed in a copy",
    ),
    mutant(
        "all_reduce",
        "ranks in a group are taken for global ranks everywhere",
        "_members counts from 0.",
        {
            "_members": (
                "return dist.get_process_group_ranks(group), rank",
                "return list(range(dist.get_world_size(group))), rank",
            )
        },
        [
            *("broadcast/sub_group", "reduce/sub_group", "reduce/average", "all_gather/sub_group"),
            *("scatter_gather/scatter_in_sub_group", "scatter_gather/gather_in_sub_group"),
            *("reduce_scatter/sub_group", "reduce_scatter/average", "all_reduce/sub_group"),
            *("all_reduce/average", "all_to_all/sub_group", "barrier/sub_group"),
        ],
        told="is not part of group",
    ),
]
