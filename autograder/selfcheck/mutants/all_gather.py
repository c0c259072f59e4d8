"""Mistakes in all_gather."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

MUTANTS = [
    mutant(
        "all_gather",
        "all_gather puts the parts one place too far",
        "The own part is put at rank + 1.",
        (
            "chunks[rank].copy_(own)",
            "chunks = (*chunks[1:], chunks[0])\n    chunks[rank].copy_(own)",
        ),
        ["*"],
        told="an index that is off by one rank",
    ),
    mutant(
        "all_gather",
        "all_gather passes the whole output around in every step",
        "It is simpler to send everything and to pick what is new.",
        """
        left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]
        chunks[rank].copy_(own)
        incoming = torch.empty_like(flat)
        for step in range(n - 1):
            send = dist.P2POp(dist.isend, flat.clone(), right, group)
            recv = dist.P2POp(dist.irecv, incoming, left, group)
            for work in dist.batch_isend_irecv([send, recv]):
                work.wait()
            source = (rank - step - 1) % n
            chunks[source].copy_(incoming.tensor_split(n)[source])
        """,
        ["traffic"],
        told="3.00 S; 0.75 S is enough",
    ),
    mutant(
        "all_gather",
        "all_gather forgets its own part",
        "Everybody gets the others' parts, and passes on an empty one of its own.",
        ("chunks[rank].copy_(own)", "pass"),
        ["*"],
        told="never written",
    ),
    mutant(
        "all_gather",
        "all_gather makes one step too few",
        "n - 2 steps, for n ranks with n - 1 links.",
        ("for step in range(n - 1):", "for step in range(n - 2):"),
        ["*"],
        told="never written",
    ),
    mutant(
        "all_gather",
        "all_gather takes ranks in the group for global ranks",
        "(rank + 1) % n is sent to as it is.",
        (
            "left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]",
            "left, right = (rank - 1) % n, (rank + 1) % n",
        ),
        ["sub_group"],
        told="is not part of group",
    ),
    mutant(
        "all_gather",
        "all_gather leaves the result in a contiguous copy",
        "flat is received into, and never copied back.",
        ("    _copy_back(flat, output)\n", ""),
        ["layouts", "input_untouched"],
        told="stayed in a copy",
    ),
    mutant(
        "all_gather",
        "all_gather puts matrices side by side",
        "torch.cat along the last dimension: for vectors it is the same.",
        (
            "    # END SOLUTION\n",
            "    parts = [chunk.view(input.shape) for chunk in chunks]\n"
            "    flat.copy_(torch.cat(parts, dim=-1).reshape(-1))\n",
        ),
        ["more_dimensions", "sub_group", "agrees_with_torch", "layouts", "input_untouched"],
        told="along the last dimension",
    ),
    mutant(
        "all_gather",
        "all_gather receives into its input",
        "The input serves as the buffer that travels around the ring.",
        """
        left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]
        chunks[rank].copy_(own)
        incoming = torch.empty_like(own)
        for step in range(n - 1):
            send = dist.P2POp(dist.isend, own, right, group)
            recv = dist.P2POp(dist.irecv, incoming, left, group)
            for work in dist.batch_isend_irecv([send, recv]):
                work.wait()
            own.copy_(incoming)
            chunks[(rank - step - 1) % n].copy_(own)
        """,
        ["input_untouched"],
        told="has changed a tensor that it may only read",
    ),
    mutant(
        "all_gather",
        "all_gather gathers at rank 0 and sends it back",
        "A gather and a broadcast, both of them loops at the root.",
        """
        if rank == 0:
            for peer, chunk in zip(ranks, chunks, strict=True):
                if peer == ranks[0]:
                    chunk.copy_(own)
                else:
                    dist.recv(chunk, peer, group)
            for peer in ranks[1:]:
                dist.send(flat, peer, group)
        else:
            dist.send(own, ranks[0], group)
            dist.recv(flat, ranks[0], group)
        """,
        ["traffic"],
        told="3.00 S; 0.75 S is enough",
    ),
    mutant(
        "all_gather",
        "all_gather takes an output of any shape",
        "The check of the arguments was thrown out as in the way.",
        ('_check_parts("output", output, "input", input, n)', "pass"),
        ["refusals"],
        told="do not agree on the dtype",
    ),
    mutant(
        "all_gather",
        "all_gather goes through float16",
        "Half the bytes.",
        """
        left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]
        chunks[rank].copy_(own)
        halves = [chunk.half() for chunk in chunks]
        for step in range(n - 1):
            send = dist.P2POp(dist.isend, halves[(rank - step) % n], right, group)
            recv = dist.P2POp(dist.irecv, halves[(rank - step - 1) % n], left, group)
            for work in dist.batch_isend_irecv([send, recv]):
                work.wait()
            chunks[(rank - step - 1) % n].copy_(halves[(rank - step - 1) % n])
        """,
        ["*"],
        told="a narrower dtype",
    ),
]
