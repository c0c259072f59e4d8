"""Mistakes in the two MLPs."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

MUTANTS = [
    mutant(
        "parallel_mlp",
        "ColumnParallelMLP splits the gradient after every layer",
        "What is right after the last layer was done after all of them.",
        ('backward="split" if number == last else "reduce_scatter"', 'backward="split"'),
        ["column", "sub_group", "memory", "traffic"],
        function="ColumnParallelMLP.forward",
    ),
    mutant(
        "parallel_mlp",
        "ColumnParallelMLP adds the gradients after the last layer too",
        "A reduce-scatter after every layer, though all ranks compute one loss.",
        ('backward="split" if number == last else "reduce_scatter"', 'backward="reduce_scatter"'),
        ["column", "sub_group", "memory", "traffic"],
        function="ColumnParallelMLP.forward",
        told="too large",
    ),
    mutant(
        "parallel_mlp",
        "ColumnParallelMLP does not copy its input",
        "The reduce-scatters were thought of; that the first layer is split as well was not.",
        ("        x = copy_to_tensor_parallel_region(x, self.group)\n", ""),
        ["column", "sub_group", "memory", "traffic"],
        function="ColumnParallelMLP.forward",
        told="a sum over the ranks that is missing",
    ),
    mutant(
        "parallel_mlp",
        "ColumnParallelMLP has no activation after the last layer",
        "As in most MLPs.",
        ("self.activation(layer(x))", "self.activation(layer(x)) if number < last else layer(x)"),
        ["column", "sub_group", "memory", "traffic"],
        function="ColumnParallelMLP.forward",
    ),
    mutant(
        "parallel_mlp",
        "ColumnParallelMLP gathers activations in float32",
        "To be on the safe side; the output is not of the input's dtype then.",
        (
            "self.activation(layer(x)),",
            "self.activation(layer(x)).float(),",
        ),
        ["column"],
        function="ColumnParallelMLP.forward",
        told="raised:",
    ),
    mutant(
        "parallel_mlp",
        "ParallelMLP puts the hidden activations together",
        "An all-gather after fc1, and each rank takes its part again.",
        """
        hidden = gather_from_tensor_parallel_region(self.fc1(x), -1, self.fc1.group)
        hidden = self.activation(hidden)
        return self.fc2(scatter_to_tensor_parallel_region(hidden, -1, self.fc2.group))
        """,
        ["traffic"],
        function="ParallelMLP.forward",
        told="are enough",
    ),
    mutant(
        "parallel_mlp",
        "ParallelMLP always uses gelu",
        "The activation that was given is not looked at.",
        ("self.activation(self.fc1(x))", "F.gelu(self.fc1(x))"),
        ["megatron", "sub_group", "memory", "traffic", "refusals"],
        function="ParallelMLP.forward",
        told="gelu, whatever activation is given",
    ),
    mutant(
        "parallel_mlp",
        "ParallelMLP keeps the full layers",
        "For a checkpoint of the full model, later.",
        (
            "        self.fc1 = ColumnParallelLinear(fc1, group=group)\n",
            "        self.fc1 = ColumnParallelLinear(fc1, group=group)\n"
            "        self.full = [fc1, fc2]\n",
        ),
        ["memory"],
        function="ParallelMLP.__init__",
        told="the full module being kept",
        also=["view of the full weight"],
    ),
    mutant(
        "parallel_mlp",
        "ParallelMLP leaves the group out for fc2",
        "Without sub-groups nothing is missing.",
        ("RowParallelLinear(fc2, group=group)", "RowParallelLinear(fc2)"),
        ["sub_group"],
        function="ParallelMLP.__init__",
        told="can never go on",
    ),
    mutant(
        "parallel_mlp",
        "ParallelMLP copies its input twice",
        "copy_to in the block, and once more in fc1; each adds the gradients.",
        (
            "self.activation(self.fc1(x))",
            "self.activation(self.fc1(copy_to_tensor_parallel_region(x, self.fc1.group)))",
        ),
        ["megatron", "sub_group", "memory", "traffic", "refusals"],
        function="ParallelMLP.forward",
        told="too large",
    ),
    mutant(
        "parallel_mlp",
        "the MLPs find out too late that a layer does not divide",
        "Only the layers themselves refuse, when those before them have been sent already.",
        {
            "ColumnParallelMLP.__init__": (
                "        for number, layer in enumerate(full_layers):\n"
                '            _check_divides(f"out_features of layer {number}", '
                "layer.out_features, group)\n",
                "",
            )
        },
        ["refusals"],
        told="refused too late",
    ),
]
