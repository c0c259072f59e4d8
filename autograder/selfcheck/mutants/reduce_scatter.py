"""Mistakes in reduce_scatter."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

MUTANTS = [
    mutant(
        "reduce_scatter",
        "reduce_scatter adds up in its input",
        "The input's chunks are there, so why copy them.",
        """
        left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]
        incoming = torch.empty_like(own)
        for step in range(1, n):
            send = dist.P2POp(dist.isend, chunks[(rank - step) % n], right, group)
            recv = dist.P2POp(dist.irecv, incoming, left, group)
            for work in dist.batch_isend_irecv([send, recv]):
                work.wait()
            share = chunks[(rank - step - 1) % n]
            combine(share, incoming, out=share)
        own.copy_(chunks[rank])
        if op == ReduceOp.AVG:
            own.div_(n)
        """,
        ["input_untouched"],
        told="has changed a tensor that it may only read",
    ),
    mutant(
        "reduce_scatter",
        "reduce_scatter does not divide for AVG",
        "The division was forgotten.",
        ("own.div_(n)", "pass"),
        ["average"],
        told="a sum where a mean was asked for",
    ),
    mutant(
        "reduce_scatter",
        "reduce_scatter averages at every hop",
        "(a + b) / 2 in each step.",
        (
            "partial = combine(incoming, chunks[(rank - step - 1) % n], out=own)",
            "partial = combine(incoming, chunks[(rank - step - 1) % n], out=own)\n"
            "        if op == ReduceOp.AVG:\n"
            "            own.mul_(n / 2 if step == n - 1 else 0.5)",
        ),
        ["average"],
        told="a division at every hop",
    ),
    mutant(
        "reduce_scatter",
        "reduce_scatter always adds",
        "Only SUM was tried.",
        ("partial = combine(", "partial = torch.add("),
        ["other_operations"],
        told="op being ignored",
    ),
    mutant(
        "reduce_scatter",
        "reduce_scatter sends every rank the whole input",
        "Everybody gets everything, adds it up, and keeps one part.",
        """
        whole = _flatten(input)
        incoming, total = torch.empty_like(whole), whole.clone()
        for step in range(1, n):
            to, source = ranks[(rank + step) % n], ranks[(rank - step) % n]
            send = dist.P2POp(dist.isend, whole, to, group)
            recv = dist.P2POp(dist.irecv, incoming, source, group)
            for work in dist.batch_isend_irecv([send, recv]):
                work.wait()
            combine(total, incoming, out=total)
        own.copy_(total.tensor_split(n)[rank])
        if op == ReduceOp.AVG:
            own.div_(n)
        """,
        ["traffic"],
        told="3.00 S; 0.75 S is enough",
    ),
    mutant(
        "reduce_scatter",
        "reduce_scatter ends with the neighbour's part",
        "The sum of each part sets out at the rank itself, and so stops one short of it.",
        """
        left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]
        partial = chunks[rank]
        incoming = torch.empty_like(own)
        for step in range(1, n):
            send = dist.P2POp(dist.isend, partial, right, group)
            recv = dist.P2POp(dist.irecv, incoming, left, group)
            for work in dist.batch_isend_irecv([send, recv]):
                work.wait()
            partial = combine(incoming, chunks[(rank - step) % n], out=own)
        if n == 1:
            own.copy_(partial)
        if op == ReduceOp.AVG:
            own.div_(n)
        """,
        ["*"],
        told="an index that is off by one rank",
    ),
    mutant(
        "reduce_scatter",
        "reduce_scatter leaves its output as it was on one rank",
        "Without a step nothing is ever written to the output.",
        ("if n == 1:", "if False:"),
        ["sum"],
        told="never written",
    ),
    mutant(
        "reduce_scatter",
        "reduce_scatter makes one step too few",
        "n - 2 steps, for n ranks with n - 1 links.",
        ("for step in range(1, n):", "for step in range(1, n - 1):"),
        ["*"],
        told="steps between the wrong ranks",
        also=["never written"],
    ),
    mutant(
        "reduce_scatter",
        "reduce_scatter takes ranks in the group for global ranks",
        "(rank + 1) % n is sent to as it is.",
        (
            "left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]",
            "left, right = (rank - 1) % n, (rank + 1) % n",
        ),
        ["sub_group", "average"],
        told="is not part of group",
    ),
    mutant(
        "reduce_scatter",
        "reduce_scatter leaves the result in a contiguous copy",
        "own is summed up in, and never copied back.",
        ("    _copy_back(own, output)\n", ""),
        ["layouts", "input_untouched"],
        told="stayed in a copy",
    ),
    mutant(
        "reduce_scatter",
        "reduce_scatter cuts matrices along the last dimension",
        "input.chunk(n, dim=-1): for vectors it is the same.",
        (
            "    left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]\n",
            "    if input.shape[-1] % n == 0:\n"
            "        chunks = tuple(c.reshape(-1) for c in input.chunk(n, dim=-1))\n"
            "    left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]\n",
        ),
        ["more_dimensions"],
    ),
    mutant(
        "reduce_scatter",
        "reduce_scatter sends bfloat16",
        "Half the bytes; the sums are kept in float32.",
        (
            "send = dist.P2POp(dist.isend, partial, right, group)\n"
            "        recv = dist.P2POp(dist.irecv, incoming, left, group)\n"
            "        for work in dist.batch_isend_irecv([send, recv]):\n"
            "            work.wait()\n",
            "short = torch.empty_like(own, dtype=torch.bfloat16)\n"
            "        send = dist.P2POp(dist.isend, partial.bfloat16(), right, group)\n"
            "        recv = dist.P2POp(dist.irecv, short, left, group)\n"
            "        for work in dist.batch_isend_irecv([send, recv]):\n"
            "            work.wait()\n"
            "        incoming.copy_(short)\n",
        ),
        ["*"],
        told="a narrower dtype",
    ),
    mutant(
        "reduce_scatter",
        "reduce_scatter takes an input of any shape",
        "The check of the arguments was thrown out as in the way.",
        ('_check_parts("input", input, "output", output, n)', "pass"),
        ["refusals"],
        told="do not agree on the size",
    ),
]
