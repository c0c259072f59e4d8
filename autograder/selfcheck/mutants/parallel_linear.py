"""Mistakes in layers split by columns and by rows."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

_ROW = (
    *("row", "one_master", "sub_group", "layouts", "memory", "traffic"),
    *(f"parallel_mlp/{name}" for name in ("megatron", "sub_group", "refusals")),
    *(f"parallel_mlp/{name}" for name in ("memory", "traffic")),
    "parallel_attention/*",
)
_COLUMN = (
    *("column", "one_master", "sub_group", "options", "layouts", "refusals", "memory", "traffic"),
    *(f"parallel_mlp/{name}" for name in ("megatron", "sub_group", "refusals")),
    *(f"parallel_mlp/{name}" for name in ("memory", "traffic")),
)
_MEMORY = ("memory", "parallel_mlp/memory", "parallel_attention/memory")

MUTANTS = [
    mutant(
        "parallel_linear",
        "RowParallelLinear adds the bias on every rank",
        "F.linear with the bias, and then the sum.",
        """
        return reduce_from_tensor_parallel_region(F.linear(x, self.weight, self.bias), self.group)
        """,
        _ROW,
        function="RowParallelLinear.forward",
        told="a bias that every rank adds",
    ),
    mutant(
        "parallel_linear",
        "RowParallelLinear adds 1/n of the bias on every rank",
        "Then the sum is right; the gradient of the bias is 1/n of what it must be.",
        """
        bias = None if self.bias is None else self.bias / _size(self.group)
        return reduce_from_tensor_parallel_region(F.linear(x, self.weight, bias), self.group)
        """,
        _ROW,
        function="RowParallelLinear.forward",
        told="a division by the number of ranks",
    ),
    mutant(
        "parallel_linear",
        "RowParallelLinear returns the partial sum",
        "The all-reduce was forgotten.",
        (
            "reduce_from_tensor_parallel_region(F.linear(x, self.weight), self.group)",
            "F.linear(x, self.weight)",
        ),
        (*_ROW, "options"),
        function="RowParallelLinear.forward",
        told="a sum over the ranks that is missing",
    ),
    mutant(
        "parallel_linear",
        "RowParallelLinear copies its input as well",
        "Every layer begins with copy_to.",
        (
            "F.linear(x, self.weight)",
            "F.linear(copy_to_tensor_parallel_region(x, self.group), self.weight)",
        ),
        (*_ROW, "options"),
        function="RowParallelLinear.forward",
    ),
    mutant(
        "parallel_linear",
        "ColumnParallelLinear does not copy its input",
        "The input is there already; of its gradient each rank has a summand.",
        (
            "        if self.copy_input:\n"
            "            x = copy_to_tensor_parallel_region(x, self.group)\n",
            "",
        ),
        _COLUMN,
        function="ColumnParallelLinear.forward",
        told="a sum over the ranks that is missing",
    ),
    mutant(
        "parallel_linear",
        "ColumnParallelLinear adds the gradients of the output that it has gathered",
        "A reduce-scatter, as between two layers that are split.",
        (
            "gather_from_tensor_parallel_region(y, -1, self.group)",
            "gather_from_tensor_parallel_region(y, -1, self.group, backward='reduce_scatter')",
        ),
        ["column", "sub_group", "layouts", "memory", "traffic"],
        function="ColumnParallelLinear.forward",
        told="too large",
    ),
    mutant(
        "parallel_linear",
        "ColumnParallelLinear copies an input that has been copied",
        "The option was not looked at.",
        ("if self.copy_input:", "if True:"),
        [
            "traffic",
            "parallel_mlp/column",
            "parallel_mlp/sub_group",
            "parallel_mlp/memory",
            "parallel_mlp/traffic",
            "parallel_attention/*",
        ],
        function="ColumnParallelLinear.forward",
        told="a sum over the ranks of what all of them have alike",
    ),
    mutant(
        "parallel_linear",
        "ColumnParallelLinear puts the full weight together in every forward",
        "All ranks compute the full layer, and keep their part of the output.",
        """
        if self.copy_input:
            x = copy_to_tensor_parallel_region(x, self.group)
        weight = gather_from_tensor_parallel_region(self.weight, 0, self.group)
        y = F.linear(x, weight).chunk(_size(self.group), -1)[dist.get_rank(self.group)]
        y = y if self.bias is None else y + self.bias
        return gather_from_tensor_parallel_region(y, -1, self.group) if self.gather_output else y
        """,
        (*_MEMORY, "traffic", "parallel_mlp/traffic", "parallel_attention/traffic"),
        function="ColumnParallelLinear.forward",
        told="is saved for backward",
    ),
    mutant(
        "parallel_linear",
        "parameters are views of the full weight",
        "A slice of the calling rank's own module, without a clone.",
        """
        source = full.detach()
        if dim is not None:
            source = source.chunk(_size(group), dim)[dist.get_rank(group)]
        return nn.Parameter(source, requires_grad=full.requires_grad)
        """,
        (*_MEMORY, "one_master", "vocab_embedding/sub_group", "vocab_embedding/memory"),
        function="shard_parameter",
        told="a view of the full weight",
        also=["the ranks' own full layers", "the full module being kept"],
    ),
    mutant(
        "parallel_linear",
        "parameters are views of a copy of the master",
        "The master is broadcast, and each rank takes its slice of it.",
        """
        whole = full.detach().clone(memory_format=torch.contiguous_format)
        dist.broadcast(whole, dist.get_process_group_ranks(group)[0], group=group)
        own = whole if dim is None else whole.chunk(_size(group), dim)[dist.get_rank(group)]
        return nn.Parameter(own, requires_grad=full.requires_grad)
        """,
        (*_MEMORY, "vocab_embedding/memory"),
        function="shard_parameter",
        told="parameters and buffers of rank",
    ),
    mutant(
        "parallel_linear",
        "every rank has a part of its own full layer",
        "With one seed for all ranks it is the same.",
        """
        source = full.detach()
        if dim is not None:
            source = source.chunk(_size(group), dim)[dist.get_rank(group)]
        return nn.Parameter(source.clone(), requires_grad=full.requires_grad)
        """,
        ["one_master", "vocab_embedding/sub_group"],
        function="shard_parameter",
        told="parts of the ranks' own full layers",
    ),
    mutant(
        "parallel_linear",
        "the master is always that of rank 0",
        "The root of scatter and broadcast is 0, also in a sub-group without rank 0.",
        ("root = dist.get_process_group_ranks(group)[0]", "root = 0"),
        [
            "sub_group",
            "one_master",
            "parallel_mlp/sub_group",
            "parallel_attention/options",
            "vocab_embedding/sub_group",
        ],
        function="shard_parameter",
        told="raised:",
    ),
    mutant(
        "parallel_linear",
        "every rank draws its part anew, with a seed of its own",
        "A small nn.Linear is made on each rank; the full one is only looked at for its size.",
        """
        shape = list(full.shape)
        if dim is not None:
            shape[dim] //= _size(group)
        own = torch.empty(shape, dtype=full.dtype, device=full.device)
        torch.manual_seed(dist.get_rank(group))
        return nn.Parameter(nn.init.uniform_(own, -0.1, 0.1), requires_grad=full.requires_grad)
        """,
        ["*", "parallel_mlp/*", "parallel_attention/*", "vocab_embedding/*"],
        function="shard_parameter",
    ),
    mutant(
        "parallel_linear",
        "features that do not divide are cut off",
        "The check was thrown out as in the way, and the rest of the features with it.",
        {
            "_check_divides": ("if size % _size(group):", "if False:"),
        },
        [
            "refusals",
            "parallel_regions/refusals",
            "parallel_mlp/refusals",
            "parallel_attention/refusals",
        ],
        told="do not agree on the size",
    ),
]
