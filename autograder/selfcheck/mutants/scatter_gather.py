"""Mistakes in scatter and gather."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

MUTANTS = [
    mutant(
        "scatter_gather",
        "scatter gives everyone the first piece",
        "An index was left at 0.",
        ("dist.send(piece, peer, group)", "dist.send(flat_pieces[0], peer, group)"),
        ["scatter", "scatter_in_sub_group", "scatter_edges", "refusals", "scatter_traffic"],
        function="scatter",
        told="been given rank",
        also=["an index that is off"],
    ),
    mutant(
        "scatter_gather",
        "scatter sends everyone the whole list",
        "Each rank gets everything and picks its own.",
        """
        if rank == root:
            whole = torch.cat(flat_pieces)
            for peer, piece in zip(ranks, flat_pieces, strict=True):
                if peer == src:
                    flat.copy_(piece)
                else:
                    dist.send(whole, peer, group)
        else:
            whole = torch.cat([flat] * len(ranks))
            dist.recv(whole, src, group)
            flat.copy_(whole.view(len(ranks), -1)[rank] if len(flat) else flat)
        """,
        ["scatter_traffic"],
        function="scatter",
        told="sent 7.00 S",
    ),
    mutant(
        "scatter_gather",
        "scatter forgets the root's own piece",
        "The loop skips the root, since nothing need be sent.",
        ("flat.copy_(piece)", "pass"),
        ["scatter", "scatter_in_sub_group", "scatter_edges", "refusals", "scatter_traffic"],
        function="scatter",
        told="never written",
    ),
    mutant(
        "scatter_gather",
        "scatter takes the root's place in the group for its rank",
        "root is handed to dist.recv, where src belongs.",
        ("dist.recv(flat, src, group)", "dist.recv(flat, root, group)"),
        ["scatter_in_sub_group"],
        function="scatter",
        told="is not part of group",
    ),
    mutant(
        "scatter_gather",
        "scatter leaves the result in a contiguous copy",
        "flat is received into, and never copied back.",
        ("    _copy_back(flat, tensor)\n", ""),
        ["scatter_edges"],
        function="scatter",
        told="stayed in a copy",
    ),
    mutant(
        "scatter_gather",
        "scatter clears its list",
        "The pieces are given away for good.",
        ("    # END SOLUTION\n", "    for piece in flat_pieces:\n        piece.zero_()\n"),
        ["scatter_edges"],
        function="scatter",
        told="has changed a tensor that it may only read",
    ),
    mutant(
        "scatter_gather",
        "gather goes by the order of arrival",
        "The pieces are filled from the other end.",
        (
            "for peer, piece in zip(ranks, flat_pieces, strict=True):",
            "for peer, piece in zip(reversed(ranks), flat_pieces, strict=True):",
        ),
        ["gather", "gather_in_sub_group", "gather_edges", "gather_traffic"],
        function="gather",
        told="parts in the wrong order",
        also=["an index that is off by one rank"],  # what two exchanged parts look like too
    ),
    mutant(
        "scatter_gather",
        "gather forgets the root's own piece",
        "The loop skips the root, since nothing need be received.",
        ("piece.copy_(flat)", "pass"),
        ["gather", "gather_in_sub_group", "gather_edges", "gather_traffic"],
        function="gather",
        told="never written",
    ),
    mutant(
        "scatter_gather",
        "gather sends the whole list around",
        "Everybody sends everybody everything, and the root keeps it.",
        """
        received = [torch.empty_like(flat) for _ in ranks]
        for step in range(1, len(ranks)):
            to, source = (rank + step) % len(ranks), (rank - step) % len(ranks)
            twice = torch.cat([flat] * len(ranks))
            send = dist.isend(twice, ranks[to], group)
            incoming = torch.empty_like(twice)
            dist.recv(incoming, ranks[source], group)
            send.wait()
            received[source].copy_(incoming[: len(flat)])
        received[rank].copy_(flat)
        if rank == root:
            for piece, one in zip(flat_pieces, received, strict=True):
                piece.copy_(one)
        """,
        ["gather_traffic"],
        function="gather",
        told="sent 7.00 S",
    ),
    mutant(
        "scatter_gather",
        "gather brings every piece to the first place",
        "The list's tensors are received into one after another, through one buffer.",
        ("dist.recv(piece, peer, group)", "dist.recv(flat_pieces[0], peer, group)"),
        ["gather", "gather_in_sub_group", "gather_edges", "gather_traffic"],
        function="gather",
        told="parts in the wrong order",
    ),
    mutant(
        "scatter_gather",
        "gather takes a list of any length",
        "The check of the arguments was thrown out as in the way.",
        (
            'pieces = _check_list("gather_list", gather_list, tensor, len(ranks), '
            "needed=rank == root)",
            "pieces = list(gather_list or [])",
        ),
        ["refusals"],
        function="gather",
        told="do not agree on the size",
    ),
]
