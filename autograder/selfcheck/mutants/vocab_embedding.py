"""Mistakes in an embedding split by the vocabulary."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

MUTANTS = [
    mutant(
        "vocab_embedding",
        "VocabParallelEmbedding counts a row of each rank for every token",
        "Tokens of other ranks look up row 0, and nobody sets that to zero.",
        ("        found = found.masked_fill(elsewhere.unsqueeze(-1), 0)\n", ""),
        ["*"],
        function="VocabParallelEmbedding.forward",
        told="rows of ranks that do not have the token",
    ),
    mutant(
        "vocab_embedding",
        "VocabParallelEmbedding does not add the ranks' rows",
        "Each rank returns what it has found, with zeros for the rest.",
        ("return reduce_from_tensor_parallel_region(found, self.group)", "return found"),
        ["*"],
        function="VocabParallelEmbedding.forward",
        told="a sum over the ranks that is missing",
    ),
    mutant(
        "vocab_embedding",
        "VocabParallelEmbedding takes the first token of the next rank for its own",
        "> where >= was meant; the token is clamped to the last row.",
        (
            "elsewhere = (local < 0) | (local >= rows)",
            "elsewhere = (local < 0) | (local > rows)\n        local = local.clamp(max=rows - 1)",
        ),
        ["lookup", "padding", "sub_group"],
        function="VocabParallelEmbedding.forward",
    ),
    mutant(
        "vocab_embedding",
        "VocabParallelEmbedding drops the last tokens",
        "R = V // n.",
        (
            "        padded = F.pad(embedding.weight.detach(), (0, 0, 0, missing))\n",
            "        rows = self.num_embeddings // _size(group) * _size(group)\n"
            "        padded = embedding.weight.detach()[:rows].clone()\n",
        ),
        ["padding", "sub_group", "memory"],
        function="VocabParallelEmbedding.__init__",
        told="has shape",
    ),
    mutant(
        "vocab_embedding",
        "VocabParallelEmbedding refuses a vocabulary that does not divide",
        "The padding was not written.",
        ("missing = -self.num_embeddings % _size(group)", "missing = 0"),
        ["padding", "sub_group", "memory"],
        function="VocabParallelEmbedding.__init__",
        told="cannot be divided among",
    ),
    mutant(
        "vocab_embedding",
        "VocabParallelEmbedding pads before the first token",
        "F.pad's numbers go from the last dimension to the first, in pairs of before and after.",
        ("(0, 0, 0, missing)", "(0, 0, missing, 0)"),
        ["padding", "sub_group", "memory"],
        function="VocabParallelEmbedding.__init__",
    ),
    mutant(
        "vocab_embedding",
        "VocabParallelEmbedding learns nothing",
        "The rows are looked up in weight.data.",
        ("self.weight)\n        found = found", "self.weight.data)\n        found = found"),
        ["*"],
        function="VocabParallelEmbedding.forward",
        told="does not require grad",
    ),
    mutant(
        "vocab_embedding",
        "VocabParallelEmbedding puts the table together in every forward",
        "Then the lookup is an ordinary one.",
        """
        table = gather_from_tensor_parallel_region(self.weight, 0, self.group)
        return F.embedding(ids, table)
        """,
        ["traffic"],
        function="VocabParallelEmbedding.forward",
        told="are enough",
    ),
    mutant(
        "vocab_embedding",
        "VocabParallelEmbedding takes its place from the global rank",
        "dist.get_rank() without the group.",
        ("dist.get_rank(self.group)", "dist.get_rank()"),
        ["sub_group"],
        function="VocabParallelEmbedding.forward",
    ),
    mutant(
        "vocab_embedding",
        "VocabParallelEmbedding's parameter is a view of the padded table",
        "The table is broadcast, and each rank takes its slice of it.",
        (
            "        self.weight = shard_parameter(padded, 0, group)\n",
            "        whole = shard_parameter(padded, None, group)\n"
            "        own = whole.data.chunk(_size(group))[dist.get_rank(group)]\n"
            "        self.weight = nn.Parameter(own)\n",
        ),
        ["memory"],
        function="VocabParallelEmbedding.__init__",
        told="parameters and buffers of rank",
    ),
]
