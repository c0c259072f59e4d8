"""Mistakes in broadcast_parameters, which DistributedDataParallel calls."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

WHAT = "(*module.parameters(), *module.buffers())"
CALL = "dist.broadcast(tensor, src, group=group)"
CONSTRUCTION = "distributed_data_parallel/construction"
TRAINS = "distributed_data_parallel/trains_as_one_process"
IN_GROUP = "distributed_data_parallel/sub_group"

MUTANTS = [
    mutant(
        "broadcast_parameters",
        "broadcast_parameters forgets the buffers",
        "Only parameters came to mind.",
        (WHAT, "module.parameters()"),
        ["buffers", "traffic", CONSTRUCTION],
        told="buffer `norm.running_mean`",
        also=["a result that stayed in a copy"],
    ),
    mutant(
        "broadcast_parameters",
        "broadcast_parameters sends what the state_dict holds",
        "A buffer that is not saved is not in it.",
        (WHAT, "module.state_dict().values()"),
        ["buffers", "traffic"],
        told="buffer `rotary.cache`",
        also=["a result that stayed in a copy"],
    ),
    mutant(
        "broadcast_parameters",
        "broadcast_parameters leaves out frozen parameters",
        "They are not trained, so they seemed not to matter.",
        (WHAT, "(*(p for p in module.parameters() if p.requires_grad), *module.buffers())"),
        ["frozen_and_mixed"],
        told="parameter `embedding.weight`",
        also=["a result that stayed in a copy"],
    ),
    mutant(
        "broadcast_parameters",
        "broadcast_parameters sends from rank 0, whatever src is",
        "It is always rank 0.",
        (CALL, "dist.broadcast(tensor, 0, group=group)"),
        ["parameters", "buffers", "sub_group", CONSTRUCTION],
        told="rank 0 is treated as the root",
    ),
    mutant(
        "broadcast_parameters",
        "broadcast_parameters forgets the group",
        "The default group was all there was in the tests.",
        (CALL, "dist.broadcast(tensor, src)"),
        ["sub_group", CONSTRUCTION, IN_GROUP],
        told="rank",
    ),
    mutant(
        "broadcast_parameters",
        "broadcast_parameters takes src for a place in the group",
        "group_src was found in torch's documentation.",
        (CALL, "dist.broadcast(tensor, group_src=src, group=group)"),
        ["sub_group", CONSTRUCTION],
    ),
    mutant(
        "broadcast_parameters",
        "broadcast_parameters leaves what comes in a copy",
        "A contiguous copy was sent, and that was it.",
        (CALL, "dist.broadcast(tensor.clone(), src, group=group)"),
        [
            *("parameters", "buffers", "frozen_and_mixed", "sub_group", "traffic"),
            *(CONSTRUCTION, TRAINS),
        ],
        told="a result that stayed in a copy",
        also=["did not begin with the same parameters"],
    ),
    mutant(
        "broadcast_parameters",
        "broadcast_parameters sends the state_dict first, and then everything",
        "To be on the safe side.",
        (WHAT, "(*module.state_dict().values(), *module.parameters(), *module.buffers())"),
        ["traffic"],
        told="bytes are communicated",
    ),
]
