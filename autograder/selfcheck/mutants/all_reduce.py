"""Mistakes in all_reduce."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

MUTANTS = [
    mutant(
        "all_reduce",
        "all_reduce collects everything at a root and sends it back",
        "A reduce and a broadcast, both of them loops at the root.",
        """
        incoming = torch.empty_like(flat)
        if rank == 0:
            for peer in ranks[1:]:
                dist.recv(incoming, peer, group)
                combine(flat, incoming, out=flat)
            if op == ReduceOp.AVG:
                flat.div_(n)
            for peer in ranks[1:]:
                dist.send(flat, peer, group)
        else:
            dist.send(flat, ranks[0], group)
            dist.recv(flat, ranks[0], group)
        """,
        ["traffic"],
        told="with 8 ranks",
    ),
    mutant(
        "all_reduce",
        "all_reduce passes the whole tensor around in every step",
        "A ring, but nobody cut the tensor into chunks.",
        """
        left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]
        travelling, incoming = flat.clone(), torch.empty_like(flat)
        for _ in range(n - 1):
            send = dist.P2POp(dist.isend, travelling, right, group)
            recv = dist.P2POp(dist.irecv, incoming, left, group)
            for work in dist.batch_isend_irecv([send, recv]):
                work.wait()
            combine(flat, incoming, out=flat)
            travelling, incoming = incoming, travelling
        if op == ReduceOp.AVG:
            flat.div_(n)
        """,
        ["traffic"],
        told="sent 7.00 S; 1.75 S is enough",
    ),
    mutant(
        "all_reduce",
        "all_reduce drops the remainder",
        "Chunks of len // n elements.",
        ("chunks = flat.tensor_split(n)", "chunks = flat[: len(flat) // n * n].tensor_split(n)"),
        ["sizes_that_do_not_divide"],
        told="a remainder that was dropped",
    ),
    mutant(
        "all_reduce",
        "all_reduce does not divide for AVG",
        "The division was forgotten.",
        ("chunks[rank].div_(n)", "pass"),
        ["average"],
        told="a sum where a mean was asked for",
    ),
    mutant(
        "all_reduce",
        "all_reduce divides by 2 for AVG",
        "Every example had two ranks.",
        ("chunks[rank].div_(n)", "chunks[rank].div_(2)"),
        ["average"],
        told="the sum divided by 2",
    ),
    mutant(
        "all_reduce",
        "all_reduce divides by the number of all ranks in a sub-group",
        "dist.get_world_size() without the group.",
        ("chunks[rank].div_(n)", "chunks[rank].div_(dist.get_world_size())"),
        ["average"],
        told="taken for that of the group",
    ),
    mutant(
        "all_reduce",
        "all_reduce averages at every hop",
        "(a + b) / 2 in each step of the ring.",
        """
        left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]
        chunks = flat.tensor_split(n)
        incoming = torch.empty_like(chunks[0])
        for step in range(1, n):
            mine = chunks[(rank - step - 1) % n]
            part = incoming[: len(mine)]
            send = dist.P2POp(dist.isend, chunks[(rank - step) % n], right, group)
            recv = dist.P2POp(dist.irecv, part, left, group)
            for work in dist.batch_isend_irecv([send, recv]):
                work.wait()
            combine(mine, part, out=mine)
            if op == ReduceOp.AVG:
                mine.div_(2)
        for step in range(n - 1):
            send = dist.P2POp(dist.isend, chunks[(rank - step) % n], right, group)
            recv = dist.P2POp(dist.irecv, chunks[(rank - step - 1) % n], left, group)
            for work in dist.batch_isend_irecv([send, recv]):
                work.wait()
        """,
        ["average"],
        told="a division at every hop",
    ),
    mutant(
        "all_reduce",
        "all_reduce always adds",
        "Only SUM was tried.",
        (
            "combine = _combine(op, tensor.dtype)",
            "_combine(op, tensor.dtype)\n    combine = torch.add",
        ),
        ["other_operations"],
        told="op being ignored",
    ),
    mutant(
        "all_reduce",
        "all_reduce passes on the wrong chunks",
        "The second ring starts one chunk off.",
        (
            "        send = dist.P2POp(dist.isend, chunks[(rank - step) % n], right, group)\n"
            "        recv = dist.P2POp(dist.irecv, chunks[(rank - step - 1) % n], left, group)\n",
            "        send = dist.P2POp(dist.isend, chunks[(rank - step + 1) % n], right, group)\n"
            "        recv = dist.P2POp(dist.irecv, chunks[(rank - step) % n], left, group)\n",
        ),
        ["*"],
        told="one step too few",
    ),
    mutant(
        "all_reduce",
        "all_reduce takes ranks in the group for global ranks",
        "(rank + 1) % n is sent to as it is.",
        (
            "left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]",
            "left, right = (rank - 1) % n, (rank + 1) % n",
        ),
        ["sub_group", "average"],
        told="is not part of group",
    ),
    mutant(
        "all_reduce",
        "all_reduce leaves the result in a contiguous copy",
        "flat is summed up in, and never copied back.",
        ("    # END SOLUTION\n    _copy_back(flat, tensor)", "    # END SOLUTION"),
        ["layouts"],
        told="stayed in a copy",
    ),
    mutant(
        "all_reduce",
        "all_reduce gives the first result again on a second call",
        "A buffer is kept from call to call, and filled only once.",
        (
            "    # END SOLUTION\n",
            "    seen = globals().setdefault('seen', {})\n"
            "    key = (tuple(tensor.shape), tensor.dtype, str(op))\n"
            "    flat.copy_(seen.setdefault(key, flat.clone()))\n",
        ),
        ["sum", "layouts", "traffic"],
        told="kept from one call to the next",
    ),
    mutant(
        "all_reduce",
        "all_reduce of every rank sends before any receives",
        "It worked with small messages on another backend.",
        """
        left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]
        incoming = torch.empty_like(flat)
        own = flat.clone()
        for _ in range(n - 1):
            dist.send(own, right, group)
            dist.recv(incoming, left, group)
            combine(flat, incoming, out=flat)
            own, incoming = incoming, own
        """,
        ["*"],
        told="waits",
    ),
    mutant(
        "all_reduce",
        "all_reduce waits for a rank that has left",
        "Rank 0 has what it needs early and returns.",
        ("for step in range(n - 1):", "for step in range(n - 1 - (rank == 0)):"),
        ["*"],
        told="waits",
    ),
    mutant(
        "all_reduce",
        "all_reduce does not refuse the average of integers",
        "The check of the arguments was thrown out as in the way.",
        ("if op == ReduceOp.AVG and not dtype.is_floating_point:", "if False:"),
        ["refusals"],
        function="_combine",
        told="it must raise ValueError",
    ),
    mutant(
        "all_reduce",
        "all_reduce calls dist.all_reduce",
        "It gives the right result.",
        "dist.all_reduce(flat, op, group)",
        ["*"],
        told="it uses dist.all_reduce (collectives.py, line ",
    ),
    mutant(
        "all_reduce",
        "all_reduce sends bfloat16",
        "Half the bytes; the sums are kept in float32.",
        """
        left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]
        travelling = flat.bfloat16()
        incoming = torch.empty_like(travelling)
        for _ in range(n - 1):
            send = dist.P2POp(dist.isend, travelling, right, group)
            recv = dist.P2POp(dist.irecv, incoming, left, group)
            for work in dist.batch_isend_irecv([send, recv]):
                work.wait()
            combine(flat, incoming.to(flat.dtype), out=flat)
            travelling, incoming = incoming, travelling
        if op == ReduceOp.AVG:
            flat.div_(n)
        """,
        ["*"],
        told="a narrower dtype",
    ),
    mutant(
        "all_reduce",
        "all_reduce adds integers up in float32",
        "The buffers are torch.empty(shape), without the tensor's dtype.",
        """
        left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]
        total = flat.float()
        chunks = total.tensor_split(n)
        incoming = torch.empty_like(chunks[0])
        for step in range(1, n):
            mine = chunks[(rank - step - 1) % n]
            part = incoming[: len(mine)]
            send = dist.P2POp(dist.isend, chunks[(rank - step) % n], right, group)
            recv = dist.P2POp(dist.irecv, part, left, group)
            for work in dist.batch_isend_irecv([send, recv]):
                work.wait()
            combine(mine, part, out=mine)
        if op == ReduceOp.AVG:
            chunks[rank].div_(n)
        for step in range(n - 1):
            send = dist.P2POp(dist.isend, chunks[(rank - step) % n], right, group)
            recv = dist.P2POp(dist.irecv, chunks[(rank - step - 1) % n], left, group)
            for work in dist.batch_isend_irecv([send, recv]):
                work.wait()
        flat.copy_(total)
        """,
        ["dtypes"],
        told="went through floating point",
    ),
    mutant(
        "all_reduce",
        "all_reduce leaves a message that nobody receives",
        "A send too many, in large tensors only; nobody waits for it, so nobody noticed.",
        (
            "    # END SOLUTION\n",
            "    if rank == 0 and len(flat) > 1000:\n"
            "        dist.isend(flat[:1].clone(), ranks[1], group)\n",
        ),
        ["traffic"],
        told="operations have no counterpart",
    ),
]
