"""Mistakes in attention split by heads."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

MUTANTS = [
    mutant(
        "parallel_attention",
        "ParallelAttention does not copy its input",
        "Of the input's gradient each rank has what its heads give.",
        ("        x = copy_to_tensor_parallel_region(x, self.group)\n", ""),
        ["*"],
        function="ParallelAttention.forward",
        told="a sum over the ranks that is missing",
    ),
    mutant(
        "parallel_attention",
        "ParallelAttention copies its input for each projection",
        "Each ColumnParallelLinear does it by default: three all-reduces instead of one.",
        {
            "ParallelAttention": (
                "        x = copy_to_tensor_parallel_region(x, self.group)\n",
                "        self.q_proj.copy_input = self.k_proj.copy_input = True\n"
                "        self.v_proj.copy_input = True\n",
            )
        },
        ["traffic"],
        told="are enough",
    ),
    mutant(
        "parallel_attention",
        "ParallelAttention lets every projection copy an input that is copied already",
        "The gradients are added twice.",
        {
            "ParallelAttention": (
                "        x = copy_to_tensor_parallel_region(x, self.group)\n",
                "        x = copy_to_tensor_parallel_region(x, self.group)\n"
                "        self.q_proj.copy_input = self.k_proj.copy_input = True\n"
                "        self.v_proj.copy_input = True\n",
            )
        },
        ["*"],
        told="too large",
    ),
    mutant(
        "parallel_attention",
        "ParallelAttention is always causal",
        "As every language model.",
        ("causal=self.causal", "causal=True"),
        ["options"],
        function="ParallelAttention.forward",
        told="a causal mask",
    ),
    mutant(
        "parallel_attention",
        "ParallelAttention takes heads that are too narrow",
        "The width of a head is worked out of the calling rank's features and all heads.",
        (
            "attention.head_dim, attention.causal",
            "attention.head_dim // _size(group), attention.causal",
        ),
        ["*"],
        function="ParallelAttention.__init__",
    ),
    mutant(
        "parallel_attention",
        "ParallelAttention gives query heads the wrong key/value heads",
        "Keys and values are repeated as a whole: 0, 1, 0, 1, where 0, 0, 1, 1 was meant.",
        (
            "        output: Tensor",
            "        times = query.shape[-1] // key.shape[-1]\n"
            "        key, value = key.repeat(1, 1, times), value.repeat(1, 1, times)\n"
            "        output: Tensor",
        ),
        ["grouped_heads"],
        function="ParallelAttention.forward",
    ),
    mutant(
        "parallel_attention",
        "ParallelAttention keeps keys and values whole on every rank",
        "Each rank uses what it needs of them, so gradients of the rest are missing.",
        {
            "ParallelAttention": (
                "        query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)\n",
                "        n, rank = _size(self.group), dist.get_rank(self.group)\n"
                "        query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)\n"
                "        key = key.chunk(n, -1)[rank]\n"
                "        value = value.chunk(n, -1)[rank]\n",
            ),
            "ParallelAttention.__init__": (
                "        self.k_proj = ColumnParallelLinear("
                "attention.k_proj, copy_input=False, group=group)\n"
                "        self.v_proj = ColumnParallelLinear("
                "attention.v_proj, copy_input=False, group=group)\n",
                "        import copy\n\n"
                "        self.k_proj = copy.deepcopy(attention.k_proj)\n"
                "        self.v_proj = copy.deepcopy(attention.v_proj)\n",
            ),
        },
        ["*"],
        told="where",
    ),
    mutant(
        "parallel_attention",
        "ParallelAttention puts all heads together before o_proj",
        "An all-gather, and each rank takes its part again.",
        (
            "        output: Tensor = self.o_proj("
            "attend(query, key, value, self.head_dim, causal=self.causal))\n",
            "        heads = attend(query, key, value, self.head_dim, causal=self.causal)\n"
            "        heads = gather_from_tensor_parallel_region(heads, -1, self.group)\n"
            "        heads = scatter_to_tensor_parallel_region(heads, -1, self.group)\n"
            "        output = self.o_proj(heads)\n",
        ),
        ["traffic"],
        function="ParallelAttention.forward",
        told="are enough",
    ),
    mutant(
        "parallel_attention",
        "ParallelAttention keeps the full module",
        "For its sizes; with it all full weights stay.",
        (
            "        self.group = group\n",
            "        self.group = group\n        self.full = (attention,)\n",
        ),
        ["memory"],
        function="ParallelAttention.__init__",
        told="the full module being kept",
        also=["view of the full weight"],
    ),
    mutant(
        "parallel_attention",
        "ParallelAttention takes fewer key/value heads than ranks",
        "The query heads divide, and that is all that is looked at.",
        (
            '_check_divides("num_kv_heads", attention.num_kv_heads, group)',
            '_check_divides("num_heads", attention.num_heads, group)',
        ),
        ["refusals"],
        function="ParallelAttention.__init__",
        told="refused too late",
    ),
]
