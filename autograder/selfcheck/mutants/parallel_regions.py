"""Mistakes in the conjugate pairs."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

# What comes of a mistake in the regions for the layers that are made of them.
_COPY = (
    "copy_and_reduce",
    "residual",
    "sub_group",
    "layouts",
    "traffic",
    *(f"parallel_linear/{name}" for name in ("column", "one_master", "sub_group", "options")),
    *(f"parallel_linear/{name}" for name in ("layouts", "refusals", "memory", "traffic")),
    "parallel_mlp/*",
    "parallel_attention/*",
)
_REDUCE = (
    "copy_and_reduce",
    "residual",
    "sub_group",
    "layouts",
    "traffic",
    *(f"parallel_linear/{name}" for name in ("row", "one_master", "sub_group", "options")),
    *(f"parallel_linear/{name}" for name in ("layouts", "memory", "traffic")),
    *(f"parallel_mlp/{name}" for name in ("megatron", "sub_group", "refusals")),
    *(f"parallel_mlp/{name}" for name in ("memory", "traffic")),
    "parallel_attention/*",
    "vocab_embedding/*",
    "vocab_cross_entropy/*",
)
_GATHER = ("gather", "residual", "sub_group", "layouts", "traffic")
_GATHERED_LINEAR = tuple(
    f"parallel_linear/{name}" for name in ("column", "sub_group", "layouts", "memory", "traffic")
)
_COLUMN_MLP = tuple(f"parallel_mlp/{name}" for name in ("column", "sub_group", "memory", "traffic"))

MUTANTS = [
    mutant(
        "parallel_regions",
        "copy_to adds no gradients",
        "Forward is the identity, so backward seemed to be one, too.",
        ("return _all_reduce(grad, ctx.group), None", "return grad, None"),
        _COPY,
        function="CopyTo.backward",
        told="a sum over the ranks that is missing",
    ),
    mutant(
        "parallel_regions",
        "reduce_from adds the gradients as well",
        "The backward of an all-reduce is an all-reduce in torch.distributed.nn.",
        {
            "ReduceFrom.forward": (
                "return _all_reduce(x, group)",
                "ctx.group = group\n        return _all_reduce(x, group)",
            ),
            "ReduceFrom.backward": (
                "return grad, None",
                "return _all_reduce(grad, ctx.group), None",
            ),
        },
        _REDUCE,
        told="too large",
    ),
    mutant(
        "parallel_regions",
        "gather_from adds the gradients before every split",
        "A reduce-scatter is the backward of an all-gather; that all ranks have one loss was not "
        "thought of.",
        ('_own_part if backward == "split" else _reduce_scatter', "_reduce_scatter"),
        (*_GATHER, *_GATHERED_LINEAR, *_COLUMN_MLP),
        function="GatherFrom.forward",
        told="too large",
    ),
    mutant(
        "parallel_regions",
        "gather_from always splits the gradient",
        "Each rank takes what belongs to its part, and the others' gradients are lost.",
        ('_own_part if backward == "split" else _reduce_scatter', "_own_part"),
        (*_GATHER, *_COLUMN_MLP),
        function="GatherFrom.forward",
        told="a split, where the gradients of all ranks must be added first",
    ),
    mutant(
        "parallel_regions",
        "the all-reduce works in place",
        "dist.all_reduce is called on the tensor itself.",
        """
        dist.all_reduce(x, group=group)
        return x
        """,
        ["residual", "layouts"],
        function="_all_reduce",
        told="in-place all-reduce of a gradient",
    ),
    mutant(
        "parallel_regions",
        "the all-reduce gets a clone with the strides of the original",
        "clone() keeps the strides of a transposed tensor.",
        ("x.clone(memory_format=torch.contiguous_format)", "x.clone()"),
        ["layouts"],
        function="_all_reduce",
        told="contiguous",
    ),
    mutant(
        "parallel_regions",
        "the all-reduce is among all ranks, also in a sub-group",
        "The group was not passed on.",
        ("dist.all_reduce(total, group=group)", "dist.all_reduce(total)"),
        [
            "sub_group",
            "parallel_linear/sub_group",
            "parallel_linear/one_master",
            "parallel_mlp/sub_group",
            "parallel_attention/options",
            "vocab_embedding/sub_group",
            "vocab_cross_entropy/sub_group",
        ],
        function="_all_reduce",
        told="can never go on",
    ),
    mutant(
        "parallel_regions",
        "the calling rank's part is that of its global rank",
        "dist.get_rank() without the group.",
        ("dist.get_rank(group)", "dist.get_rank() % _size(group)"),
        ["sub_group", "parallel_linear/sub_group", "parallel_mlp/sub_group"],
        function="_own_part",
        told="the parts of other ranks",
    ),
    mutant(
        "parallel_regions",
        "scatter_to fills the gradient with zeros where other ranks have theirs",
        "Backward of a slice, as autograd would do it on one device.",
        """
        parts = [torch.zeros_like(grad) for _ in range(_size(ctx.group))]
        parts[dist.get_rank(ctx.group)] = grad
        return torch.cat(parts, ctx.dim), None, None
        """,
        ["scatter", "residual", "sub_group", "layouts", "refusals", "traffic"],
        function="ScatterTo.backward",
        told="a sum over the ranks that is missing",
    ),
    mutant(
        "parallel_regions",
        "parts are always put together along the last dimension",
        "dim was not used.",
        ("torch.cat(parts, dim)", "torch.cat(parts, -1)"),
        ["gather", "scatter", "layouts"],
        function="_all_gather",
        told="raised:",
    ),
    mutant(
        "parallel_regions",
        "copy_to takes the average of the gradients",
        "As in data parallelism.",
        (
            "return _all_reduce(grad, ctx.group), None",
            "return _all_reduce(grad, ctx.group) / _size(ctx.group), None",
        ),
        _COPY,
        function="CopyTo.backward",
        told="a division by the number of ranks",
    ),
    mutant(
        "parallel_regions",
        "the reduce-scatter is an all-reduce, of which a part is kept",
        "It gives the right result.",
        "return _own_part(_all_reduce(x, group), dim, group)",
        ["traffic", "parallel_mlp/traffic"],
        function="_reduce_scatter",
        told="are enough",
    ),
    mutant(
        "parallel_regions",
        "gather_from does not tell autograd of its communication",
        "dist.all_gather fills tensors that autograd knows nothing of.",
        "return _all_gather(x, dim, group)",
        (*_GATHER, *_GATHERED_LINEAR, *_COLUMN_MLP),
        function="gather_from_tensor_parallel_region",
        told="a communication that autograd does not know of",
    ),
    mutant(
        "parallel_regions",
        "scatter_to takes what does not divide",
        "The check was thrown out; the last rank gets less.",
        ('    _check_divides(f"dimension {dim} of x", x.shape[dim], group)\n', ""),
        ["refusals"],
        function="scatter_to_tensor_parallel_region",
        told="do not agree on the size",
    ),
]
