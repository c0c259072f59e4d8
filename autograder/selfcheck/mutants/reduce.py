"""Mistakes in reduce."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

MUTANTS = [
    mutant(
        "reduce",
        "reduce adds up in the tensors of the others",
        "partial = flat everywhere: torch's gloo does so too.",
        ("partial = flat if rank == root else flat.clone()", "partial = flat"),
        ["others_untouched"],
        told="has changed a tensor that it may only read",
    ),
    mutant(
        "reduce",
        "reduce always adds",
        "Only SUM was tried.",
        ("combine(partial, incoming, out=partial)", "partial.add_(incoming)"),
        ["other_operations"],
        told="op being ignored",
    ),
    mutant(
        "reduce",
        "reduce does not divide for AVG",
        "The division was forgotten.",
        ("partial.div_(n)", "pass"),
        ["average"],
        told="a sum where a mean was asked for",
    ),
    mutant(
        "reduce",
        "reduce averages at every hop",
        "(a + b) / 2 in each round of the tree.",
        (
            "combine(partial, incoming, out=partial)",
            "combine(partial, incoming, out=partial)\n"
            "            if op == ReduceOp.AVG:\n"
            "                partial.div_(2)",
        ),
        ["average"],
        told="a division that was done twice",
    ),
    mutant(
        "reduce",
        "reduce ignores its root",
        "The tree ends at rank 0, whatever dst says.",
        ("relative = (rank - root) % n", "relative = rank"),
        ["to_other_ranks", "average", "sub_group", "agrees_with_torch", "others_untouched"],
        told="the root, received nothing",
        also=["steps between the wrong ranks"],
    ),
    mutant(
        "reduce",
        "reduce collects everything at the root",
        "The obvious loop: everybody sends to the root, which adds up.",
        """
        incoming = torch.empty_like(flat)
        if rank == root:
            for peer in ranks:
                if peer != dst:
                    dist.recv(incoming, peer, group)
                    combine(flat, incoming, out=flat)
            if op == ReduceOp.AVG:
                flat.div_(n)
        else:
            dist.send(flat, dst, group)
        """,
        ["traffic"],
        told="with 8 ranks",
    ),
    mutant(
        "reduce",
        "reduce reaches a power of two of ranks",
        "log2(n) rounds, rounded down.",
        (
            "for distance in reversed(_doubling(n)):",
            "for distance in reversed(_doubling(n)[: n.bit_length() - 1]):",
        ),
        [
            *("to_rank_0", "to_other_ranks", "average", "sub_group", "agrees_with_torch"),
            *("layouts", "dtypes"),
        ],
        told="contribution is missing",
    ),
    mutant(
        "reduce",
        "reduce takes ranks in the group for global ranks",
        "(rank - distance) % n is sent to as it is.",
        {
            "reduce": """
            partial = flat if rank == root else flat.clone()
            incoming = torch.empty_like(flat)
            relative = (rank - root) % n
            for distance in reversed(_doubling(n)):
                if relative < distance and relative + distance < n:
                    dist.recv(incoming, (rank + distance) % n, group)
                    combine(partial, incoming, out=partial)
                elif distance <= relative < 2 * distance:
                    dist.send(partial, (rank - distance) % n, group)
            if rank == root and op == ReduceOp.AVG:
                partial.div_(n)
            """
        },
        ["sub_group", "average"],
        told="is not part of group",
    ),
    mutant(
        "reduce",
        "reduce leaves the result in a contiguous copy",
        "flat is summed up in, and never copied back.",
        ("    if rank == root:\n        _copy_back(flat, tensor)\n", ""),
        ["layouts"],
        told="stayed in a copy",
    ),
    mutant(
        "reduce",
        "reduce adds up in float32",
        "A buffer was torch.zeros(shape), without the tensor's dtype.",
        (
            "        partial.div_(n)\n",
            "        partial.div_(n)\n"
            "    if rank == root and not flat.is_floating_point():\n"
            "        flat.copy_(partial.float())\n",
        ),
        ["dtypes"],
        told="went through floating point",
    ),
    mutant(
        "reduce",
        "reduce takes any root modulo the number of ranks",
        "An index error went away with it.",
        ('root = _group_rank("dst", dst, ranks)', "root = dst % n"),
        ["refusals", "sub_group", "average"],
        told="a root outside the group",
        also=["is treated as the root"],
    ),
]
