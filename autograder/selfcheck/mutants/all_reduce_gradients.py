"""Mistakes in all_reduce_gradients."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

CALL = "all_reduce(gradients, op=ReduceOp.AVG, group=group)"
BACK = "unflatten_gradients(gradients, message)"
TRAINABLE = "[parameter for parameter in module.parameters() if parameter.requires_grad]"
LOOP = "for message in messages:\n        gradients"

MUTANTS = [
    mutant(
        "all_reduce_gradients",
        "all_reduce_gradients adds and does not divide",
        "A mean was never mentioned by the optimizer.",
        (CALL, "all_reduce(gradients, op=ReduceOp.SUM, group=group)"),
        ["*"],
        told="a sum where a mean was asked for",
    ),
    mutant(
        "all_reduce_gradients",
        "all_reduce_gradients divides by 2",
        "It was tried on two ranks.",
        (CALL, "all_reduce(gradients.div_(2), op=ReduceOp.SUM, group=group)"),
        ["*"],
        told="the sum divided by 2",
    ),
    mutant(
        "all_reduce_gradients",
        "all_reduce_gradients divides an average once more",
        "AVG had replaced SUM, and the division stayed.",
        (BACK, "unflatten_gradients(gradients / dist.get_world_size(group), message)"),
        ["*"],
        told="a division that was done twice",
    ),
    mutant(
        "all_reduce_gradients",
        "all_reduce_gradients averages the parameters",
        "The tensor of a parameter was taken for its gradient.",
        (
            "gradients = flatten_gradients(message)",
            "gradients = torch.cat([parameter.flatten() for parameter in message])",
        ),
        ["*"],
        told="the mean of the parameters",
    ),
    mutant(
        "all_reduce_gradients",
        "all_reduce_gradients divides by the number of all ranks",
        "get_world_size() without the group.",
        (
            CALL,
            "all_reduce(gradients.div_(dist.get_world_size()), op=ReduceOp.SUM, group=group)",
        ),
        ["sub_group"],
        told="the number of all ranks being taken for that of the group",
    ),
    mutant(
        "all_reduce_gradients",
        "all_reduce_gradients forgets the group",
        "The default group was all there was in the tests.",
        (CALL, "all_reduce(gradients, op=ReduceOp.AVG)"),
        ["sub_group"],
        told="rank 1",
    ),
    mutant(
        "all_reduce_gradients",
        "all_reduce_gradients leaves out parameters whose gradient is None",
        "if p.grad is None: continue, as in optimizers.",
        ("if parameter.requires_grad]", "if parameter.grad is not None]"),
        ["unused_on_a_rank"],
        told="was not used on",
        also=["a parameter that is left out", "nothing having been communicated"],
    ),
    mutant(
        "all_reduce_gradients",
        "all_reduce_gradients wants every parameter to have a gradient",
        "An assertion for the type checker.",
        (LOOP, f"assert all(p.grad is not None for p in parameters)\n    {LOOP}"),
        ["unused_on_a_rank", "unused_everywhere"],
        told="so p.grad is None there",
        also=["a parameter that is left out"],
    ),
    mutant(
        "all_reduce_gradients",
        "all_reduce_gradients divides by the number of ranks that used a parameter",
        "The others have nothing to say about it.",
        """
        messages = [[parameter] for parameter in parameters]
        if flat:
            dtypes = dict.fromkeys(parameter.dtype for parameter in parameters)
            messages = [[p for p in parameters if p.dtype == dtype] for dtype in dtypes]
        users = torch.tensor([float(p.grad is not None) for p in parameters])
        all_reduce(users, op=ReduceOp.SUM, group=group)
        for message in messages:
            gradients = flatten_gradients(message)
            all_reduce(gradients, op=ReduceOp.SUM, group=group)
            unflatten_gradients(gradients, message)
        for parameter, count in zip(parameters, users):
            parameter.grad /= count
        """,
        ["unused_on_a_rank", "unused_everywhere", "calls_and_bytes"],
        told="a mean over the ranks that used the parameter",
    ),
    mutant(
        "all_reduce_gradients",
        "all_reduce_gradients leaves the flat result where it is",
        "The flat tensor was reduced, and nothing copied back.",
        (BACK, f"if not flat:\n            {BACK}"),
        [
            *("flat", "unused_on_a_rank", "mixed_dtypes", "given_all_reduce"),
            *("frozen_and_tied", "sub_group", "unused_everywhere", "calls_and_bytes"),
        ],
        told="a result that stayed in a copy",
    ),
    mutant(
        "all_reduce_gradients",
        "all_reduce_gradients has no flat way",
        "It gives the same numbers without.",
        ("if flat:", "if False:"),
        ["calls_and_bytes"],
        told="one for each dtype",
    ),
    mutant(
        "all_reduce_gradients",
        "all_reduce_gradients sends all dtypes in one tensor",
        "torch.cat made one dtype of them.",
        """
        messages = [parameters] if flat else [[parameter] for parameter in parameters]
        for message in messages:
            gradients = flatten_gradients(message)
            all_reduce(gradients, op=ReduceOp.AVG, group=group)
            unflatten_gradients(gradients, message)
        """,
        ["calls_and_bytes"],
        told="travel in a wider dtype",
    ),
    mutant(
        "all_reduce_gradients",
        "all_reduce_gradients gives frozen parameters a gradient",
        "All parameters, without a look at requires_grad.",
        {"all_reduce_gradients": (TRAINABLE, "list(module.parameters())")},
        ["frozen_and_tied", "calls_and_bytes"],
        told="is not trainable",
    ),
    mutant(
        "all_reduce_gradients",
        "all_reduce_gradients sends tied weights twice",
        "By their names, of which they have two.",
        {
            "all_reduce_gradients": (
                TRAINABLE,
                "[p for _, p in module.named_parameters(remove_duplicate=False) "
                "if p.requires_grad]",
            )
        },
        ["calls_and_bytes"],
        told="bytes are communicated",
    ),
    mutant(
        "all_reduce_gradients",
        "all_reduce_gradients calls torch's all_reduce whatever it was given",
        "The argument was overlooked.",
        (CALL, f"dist.{CALL}"),
        ["given_all_reduce"],
        told="was called 0 times",
    ),
]
