"""Mistakes in broadcast."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

MUTANTS = [
    mutant(
        "broadcast",
        "broadcast ignores its root",
        "The tree is numbered from rank 0, whatever src says.",
        ("relative = (rank - root) % n", "relative = rank"),
        ["from_other_ranks", "sub_group", "agrees_with_torch"],
        told="is treated as the root",
    ),
    mutant(
        "broadcast",
        "broadcast does nothing",
        "The region was cleared to see what else fails.",
        "pass",
        ["*"],
        told="nothing having been communicated",
    ),
    mutant(
        "broadcast",
        "broadcast sends from the root to each",
        "The obvious loop: the root sends to everybody, one after another.",
        """
        if rank == root:
            for peer in ranks:
                if peer != src:
                    dist.send(flat, peer, group)
        else:
            dist.recv(flat, src, group)
        """,
        ["traffic"],
        told="with 8 ranks",
    ),
    mutant(
        "broadcast",
        "broadcast takes ranks in the group for global ranks",
        "peer = (rank + distance) % n is sent to as it is.",
        {
            "broadcast": """
            relative = (rank - root) % n
            for distance in _doubling(n):
                if relative < distance and relative + distance < n:
                    dist.send(flat, (rank + distance) % n, group)
                elif distance <= relative < 2 * distance:
                    dist.recv(flat, (rank - distance) % n, group)
            """
        },
        ["sub_group"],
        told="is not part of group",
    ),
    mutant(
        "broadcast",
        "broadcast reaches a power of two of ranks",
        "log2(n) rounds, rounded down.",
        ("for distance in _doubling(n):", "for distance in _doubling(n)[: n.bit_length() - 1]:"),
        ["from_rank_0", "from_other_ranks", "sub_group", "agrees_with_torch", "layouts", "dtypes"],
        told="nothing having been communicated",
    ),
    mutant(
        "broadcast",
        "broadcast leaves the result in a contiguous copy",
        "tensor.contiguous() is received into, and never copied back.",
        ("    if rank != root:\n        _copy_back(flat, tensor)\n", ""),
        ["layouts"],
        told="stayed in a copy",
    ),
    mutant(
        "broadcast",
        "broadcast goes through float32",
        "The buffer is torch.empty(shape), without the tensor's dtype.",
        {
            "broadcast": """
            buffer = flat.float()
            relative = (rank - root) % n
            for distance in _doubling(n):
                if relative < distance and relative + distance < n:
                    dist.send(buffer, ranks[(rank + distance) % n], group)
                elif distance <= relative < 2 * distance:
                    dist.recv(buffer, ranks[(rank - distance) % n], group)
            flat.copy_(buffer)
            """
        },
        ["dtypes"],
        told="went through floating point",
    ),
    mutant(
        "broadcast",
        "broadcast gives the first result again on a second call",
        "A buffer is kept from call to call, and filled only once.",
        (
            "    # END SOLUTION\n",
            "    seen = globals().setdefault('seen', {})\n"
            "    if rank != root:\n"
            "        key = (tuple(tensor.shape), tensor.dtype)\n"
            "        flat.copy_(seen.setdefault(key, flat.clone()))\n"
            "    # END SOLUTION\n",
        ),
        ["from_rank_0", "from_other_ranks", "layouts"],
        told="kept from one call to the next",
    ),
    mutant(
        "broadcast",
        "broadcast takes any root modulo the number of ranks",
        "An index error went away with it.",
        ('root = _group_rank("src", src, ranks)', "root = src % n"),
        ["refusals", "sub_group"],
        told="a root outside the group",
        also=["is treated as the root"],
    ),
]
