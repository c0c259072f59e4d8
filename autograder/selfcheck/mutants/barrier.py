"""Mistakes in barrier."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

MUTANTS = [
    mutant(
        "barrier",
        "barrier does nothing",
        "On one machine nobody noticed.",
        "pass",
        ["*"],
        told="left the barrier before the last rank",
    ),
    mutant(
        "barrier",
        "barrier waits for its left neighbour alone",
        "Everybody has heard from somebody.",
        ("for distance in _doubling(n):", "for distance in [1] * (n > 1):"),
        # Of three, waiting for gloo's send to the right neighbour makes it a barrier after all.
        ["waits_for_the_last", "alone_and_often"],
        told="left the barrier before the last rank",
    ),
    mutant(
        "barrier",
        "barrier waits for all ranks, in a sub-group too",
        "ranks and rank are those of the default group.",
        ("ranks, rank = _members(group)", "ranks, rank = _members(None)"),
        ["sub_group"],
    ),
    mutant(
        "barrier",
        "barrier lets rank 0 go as soon as it has told the others",
        "Rank 0 gives the signal, and nobody tells rank 0 anything.",
        """
        if rank == 0:
            for peer in ranks[1:]:
                dist.isend(token, peer, group).wait()
        else:
            dist.recv(heard, ranks[0], group)
        """,
        ["*"],
        told="left the barrier before the last rank",
    ),
]
