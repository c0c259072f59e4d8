"""Right solutions of part 1 that are not the reference's."""

from __future__ import annotations

from autograder.selfcheck.variant import alternative

RING = """
from __future__ import annotations

import torch
import torch.distributed as dist


def neighbours(ranks, rank):
    return ranks[rank - 1], ranks[(rank + 1) % len(ranks)]


def exchange(sent, received, to, source, group):
    handles = [dist.irecv(received, source, group), dist.isend(sent, to, group)]
    for handle in handles:
        handle.wait()
"""

ALTERNATIVES = [
    alternative(
        "launch",
        "setup through the environment, which then waits for the others and says hello",
        "The way of the oldest tutorials, with a barrier to be safe.",
        {
            "setup": """
            if rank is not None:
                os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size))
                os.environ.update(MASTER_ADDR=address, MASTER_PORT=str(port))
            if file is None:
                dist.init_process_group(backend, timeout=timeout)
            else:
                meeting = Path(os.path.abspath(file)).as_uri()
                dist.init_process_group(backend, meeting, timeout, world_size, rank)
            dist.barrier()
            print(f"hello from rank {dist.get_rank()} of {dist.get_world_size()}")
            """,
            "cleanup": """
            try:
                dist.barrier()
                dist.destroy_process_group()
            except (ValueError, AssertionError, RuntimeError):
                pass
            """,
        },
    ),
    alternative(
        "all_reduce",
        "all_reduce as reduce_scatter and all_gather with padding",
        "One's own functions, put together; padding makes the sizes divide.",
        {
            "all_reduce": """
            padding = -len(flat) % n
            padded = torch.cat([flat, flat.new_zeros(padding)])
            part = padded.new_empty(len(padded) // n)
            reduce_scatter(part, padded, op, group)
            all_gather(padded, part, group)
            flat.copy_(padded[: len(flat)])
            """
        },
        least={"traffic": "3/4"},  # its copies take it to about 1.5 times the reference's time
    ),
    alternative(
        "all_reduce",
        "all_reduce by recursive doubling",
        "Everybody holds the whole tensor, and exchanges it log2(n) times.",
        {
            "all_reduce": """
            power = 1 << (n.bit_length() - 1)
            extra = n - power
            incoming = torch.empty_like(flat)
            if rank >= power:
                dist.send(flat, ranks[rank - power], group)
                dist.recv(flat, ranks[rank - power], group)
            else:
                if rank < extra:
                    dist.recv(incoming, ranks[rank + power], group)
                    combine(flat, incoming, out=flat)
                distance = 1
                while distance < power:
                    peer = ranks[rank ^ distance]
                    send = dist.isend(flat.clone(), peer, group)
                    dist.recv(incoming, peer, group)
                    send.wait()
                    combine(flat, incoming, out=flat)
                    distance *= 2
                if op == ReduceOp.AVG:
                    flat.div_(n)
                if rank < extra:
                    dist.send(flat, ranks[rank + power], group)
            """
        },
        but={"traffic": "1/2"},  # 3 S at 8 ranks, where 1.75 S is enough
    ),
    alternative(
        "all_reduce",
        "all_reduce by recursive halving and doubling, and to the others from one",
        "Rabenseifner's algorithm, with the ranks beyond a power of two at the side.",
        {
            "all_reduce": """
            power = 1 << (n.bit_length() - 1)
            extra = n - power
            if rank >= power:
                dist.send(flat, ranks[rank - power], group)
                dist.recv(flat, ranks[rank - power], group)
            else:
                if rank < extra:
                    incoming = torch.empty_like(flat)
                    dist.recv(incoming, ranks[rank + power], group)
                    combine(flat, incoming, out=flat)
                parts, steps = flat, []
                distance = power // 2
                while distance:
                    low, high = parts[: len(parts) // 2], parts[len(parts) // 2 :]
                    keep, give = (low, high) if rank & distance == 0 else (high, low)
                    incoming = torch.empty_like(keep)
                    peer = ranks[rank ^ distance]
                    send = dist.isend(give, peer, group)
                    dist.recv(incoming, peer, group)
                    send.wait()
                    combine(keep, incoming, out=keep)
                    steps.append((peer, keep, give))
                    parts = keep
                    distance //= 2
                if op == ReduceOp.AVG:
                    parts.div_(n)
                for peer, keep, give in reversed(steps):
                    send = dist.isend(keep, peer, group)
                    dist.recv(give, peer, group)
                    send.wait()
                if rank < extra:
                    dist.send(flat, ranks[rank + power], group)
            """
        },
    ),
    alternative(
        "all_reduce",
        "all_reduce with helpers of a module of one's own, and AVG divided beforehand",
        "A tidy mind: the exchange is a function of its own module.",
        {
            "all_reduce": """
            from .mytools import exchange, neighbours

            if op == ReduceOp.AVG:
                flat.div_(n)
            left, right = neighbours(ranks, rank)
            chunks = list(torch.tensor_split(flat, n))
            for step in range(n - 1):
                mine = chunks[(rank - step - 1) % n]
                incoming = torch.empty_like(mine)
                exchange(chunks[(rank - step) % n], incoming, right, left, group)
                combine(mine, incoming, out=mine)
            for step in range(n - 1):
                mine, next = chunks[(rank - step + 1) % n], chunks[(rank - step) % n]
                exchange(mine, next, right, left, group)
            """
        },
        modules={"mytools": RING},
    ),
    alternative(
        "broadcast",
        "broadcast as scatter and all_gather",
        "What MPICH does with large messages.",
        {
            "broadcast": """
            pieces = flat.tensor_split(n)
            if rank == root:
                for peer, piece in zip(ranks, pieces):
                    if peer != src:
                        dist.send(piece, peer, group)
            else:
                dist.recv(pieces[rank], src, group)
            left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]
            for step in range(n - 1):
                send = dist.isend(pieces[(rank - step) % n], right, group)
                dist.recv(pieces[(rank - step - 1) % n], left, group)
                send.wait()
            """
        },
    ),
    alternative(
        "reduce",
        "reduce as a chain",
        "Each rank adds its own and passes the sum on.",
        {
            "reduce": """
            order = [ranks[(root + i) % n] for i in range(n)]
            place = (rank - root) % n
            total, incoming = flat.clone(), torch.empty_like(flat)
            if place + 1 < n:
                dist.recv(incoming, order[place + 1], group)
                combine(total, incoming, out=total)
            if place > 0:
                dist.send(total, order[place - 1], group)
            elif op == ReduceOp.AVG:
                flat.copy_(total / n)
            else:
                flat.copy_(total)
            """
        },
        but={"traffic": "1/4"},  # 2.33 times the tree's time, at any size
    ),
    alternative(
        "all_to_all",
        "all_to_all with everything under way at once",
        "irecv and isend to everybody, then wait for all.",
        {
            "all_to_all": """
            handles = []
            for peer in range(n):
                if peer != rank:
                    handles.append(dist.irecv(received[peer], ranks[peer], group))
            for peer in range(n):
                if peer != rank:
                    handles.append(dist.isend(sent[peer], ranks[peer], group))
            received[rank].copy_(sent[rank])
            for handle in handles:
                handle.wait()
            """
        },
    ),
    alternative(
        "scatter_gather",
        "scatter down a tree",
        "Half of what one has is passed on in every round.",
        {
            "scatter": """
            n = len(ranks)
            place = (rank - root) % n
            span = 1
            while span < n:
                span *= 2
            block = torch.empty(0)
            if rank == root:
                order = [flat_pieces[(root + i) % n] for i in range(n)]
                block = torch.stack(order) if order else block
            while span > 1:
                half = span // 2
                if place % span == 0 and place + half < n:
                    if len(block) > half:
                        dist.send(block[half:].contiguous(), ranks[(rank + half) % n], group)
                    block = block[:half]
                elif place % span == half:
                    count = min(half, n - place)
                    block = flat.new_empty((count, len(flat)))
                    dist.recv(block, ranks[(rank - half) % n], group)
                span = half
            flat.copy_(block[0])
            """
        },
    ),
    alternative(
        "barrier",
        "barrier through one rank",
        "Rank 0 hears everybody, then tells everybody.",
        {
            "barrier": """
            if rank == 0:
                for peer in ranks[1:]:
                    dist.recv(heard, peer, group)
                for peer in ranks[1:]:
                    dist.send(token, peer, group)
            else:
                dist.send(token, ranks[0], group)
                dist.recv(heard, ranks[0], group)
            """
        },
    ),
    alternative(
        "all_reduce",
        "all_reduce down and up a binomial tree",
        "A reduce and a broadcast.",
        {
            "all_reduce": """
            reduce(flat, ranks[0], op, group)
            broadcast(flat, ranks[0], group)
            """
        },
        but={"traffic": "1/4"},
    ),
    alternative(
        "all_reduce",
        "all_reduce around a blocking ring, in which even ranks send first",
        "dist.send and dist.recv alone: odd ranks receive before they send.",
        {
            "all_reduce": """
            left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]
            chunks = flat.tensor_split(n)
            incoming = torch.empty_like(chunks[0])

            def exchange(sent, received):
                if rank % 2 == 0:
                    dist.send(sent, right, group)
                    dist.recv(received, left, group)
                else:
                    dist.recv(received, left, group)
                    dist.send(sent, right, group)

            for step in range(n - 1):
                mine = chunks[(rank - step - 1) % n]
                part = incoming[: len(mine)]
                exchange(chunks[(rank - step) % n].clone(), part)
                combine(mine, part, out=mine)
            if op == ReduceOp.AVG:
                chunks[(rank + 1) % n].div_(n)
            for step in range(n - 1):
                exchange(chunks[(rank - step + 1) % n].clone(), chunks[(rank - step) % n])
            """
        },
        but={"traffic": "1/2"},
    ),
    alternative(
        "all_reduce",
        "all_reduce with every chunk sent straight to its owner",
        "All-to-all, sum, all-gather; everything under way at once.",
        {
            "all_reduce": """
            chunks = flat.tensor_split(n)
            mine = chunks[rank]
            others = [peer for peer in range(n) if peer != rank]
            parts = {peer: torch.empty_like(mine) for peer in others}
            work = [dist.irecv(parts[peer], ranks[peer], group) for peer in others]
            work += [dist.isend(chunks[peer], ranks[peer], group) for peer in others]
            for one in work:
                one.wait()
            for peer in others:
                combine(mine, parts[peer], out=mine)
            if op == ReduceOp.AVG:
                mine.div_(n)
            work = [dist.irecv(chunks[peer], ranks[peer], group) for peer in others]
            work += [dist.isend(mine, ranks[peer], group) for peer in others]
            for one in work:
                one.wait()
            """
        },
    ),
    alternative(
        "all_gather",
        "all_gather by Bruck's algorithm",
        "What one has doubles in every round, and is turned into place at the end.",
        {
            "all_gather": """
            have = own.clone()
            size = len(own)
            distance = 1
            while distance < n:
                count = min(distance, n - distance)
                incoming = own.new_empty(count * size)
                send = dist.isend(have[: count * size], ranks[(rank - distance) % n], group)
                dist.recv(incoming, ranks[(rank + distance) % n], group)
                send.wait()
                have = torch.cat([have, incoming])
                distance *= 2
            for i in range(n):
                chunks[(rank + i) % n].copy_(have[i * size : (i + 1) * size])
            """
        },
    ),
    alternative(
        "all_gather",
        "all_gather straight from everyone to everyone",
        "All messages under way at once.",
        {
            "all_gather": """
            chunks[rank].copy_(own)
            mine = own.clone()
            work = []
            for peer in range(n):
                if peer != rank:
                    work.append(dist.irecv(chunks[peer], ranks[peer], group))
                    work.append(dist.isend(mine, ranks[peer], group))
            for one in work:
                one.wait()
            """
        },
    ),
    alternative(
        "reduce_scatter",
        "reduce_scatter by pairwise exchange",
        "In step s the part for the rank s places on is sent there, and added up at once.",
        {
            "reduce_scatter": """
            total = chunks[rank].clone()
            incoming = torch.empty_like(total)
            for step in range(1, n):
                to, source = (rank + step) % n, (rank - step) % n
                send = dist.isend(chunks[to], ranks[to], group)
                dist.recv(incoming, ranks[source], group)
                send.wait()
                combine(total, incoming, out=total)
            if op == ReduceOp.AVG:
                total.div_(n)
            own.copy_(total)
            """
        },
    ),
    alternative(
        "reduce_scatter",
        "reduce_scatter around the ring to the left, divided beforehand for AVG",
        "The mirror image of the reference, with the division at the start.",
        {
            "reduce_scatter": """
            left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]
            mine = [chunk.clone() for chunk in chunks]
            if op == ReduceOp.AVG:
                for chunk in mine:
                    chunk.div_(n)
            incoming = torch.empty_like(own)
            for step in range(1, n):
                send = dist.P2POp(dist.isend, mine[(rank + step) % n], left, group)
                recv = dist.P2POp(dist.irecv, incoming, right, group)
                for work in dist.batch_isend_irecv([recv, send]):
                    work.wait()
                part = mine[(rank + step + 1) % n]
                combine(part, incoming, out=part)
            own.copy_(mine[rank])
            """
        },
    ),
    alternative(
        "broadcast",
        "broadcast down a chain",
        "Each rank passes the tensor on to its right.",
        {
            "broadcast": """
            place = (rank - root) % n
            if place > 0:
                dist.recv(flat, ranks[(rank - 1) % n], group)
            if place + 1 < n:
                dist.send(flat, ranks[(rank + 1) % n], group)
            """
        },
        but={"traffic": "1/4"},  # 2.33 times the tree's time, at any size
    ),
    alternative(
        "all_to_all",
        "all_to_all with every pair of ranks taking turns",
        "The lower rank of each pair sends first; blocking calls alone.",
        {
            "all_to_all": """
            received[rank].copy_(sent[rank])
            for step in range(1, n):
                to, source = (rank + step) % n, (rank - step) % n
                send = dist.isend(sent[to], ranks[to], group)
                dist.recv(received[source], ranks[source], group)
                send.wait()
            """
        },
    ),
    alternative(
        "scatter_gather",
        "gather with all receives under way at once",
        "irecv from everybody, then wait for all.",
        {
            "gather": """
            if rank == root:
                work = []
                for peer, piece in zip(ranks, flat_pieces, strict=True):
                    if peer == dst:
                        piece.copy_(flat)
                    else:
                        work.append(dist.irecv(piece, peer, group))
                for one in work:
                    one.wait()
            else:
                dist.isend(flat, dst, group).wait()
            """
        },
    ),
    alternative(
        "reduce",
        "reduce as a chain, in pieces that follow one another",
        "A pipeline: while one piece travels on, the next comes in.",
        {
            "reduce": """
            order = [ranks[(root + i) % n] for i in range(n)]
            place = (rank - root) % n
            total = flat if rank == root else flat.clone()
            sends = []
            for piece in total.tensor_split(8):
                if place + 1 < n:
                    incoming = torch.empty_like(piece)
                    dist.recv(incoming, order[place + 1], group)
                    combine(piece, incoming, out=piece)
                if place > 0:
                    sends.append(dist.isend(piece, order[place - 1], group))
            for send in sends:
                send.wait()
            if rank == root and op == ReduceOp.AVG:
                flat.div_(n)
            """
        },
    ),
    alternative(
        "broadcast",
        "broadcast down a chain, in pieces that follow one another",
        "A pipeline: while one piece travels on, the next comes in.",
        {
            "broadcast": """
            place = (rank - root) % n
            sends = []
            for piece in flat.tensor_split(8):
                if place > 0:
                    dist.recv(piece, ranks[(rank - 1) % n], group)
                if place + 1 < n:
                    sends.append(dist.isend(piece, ranks[(rank + 1) % n], group))
            for send in sends:
                send.wait()
            """
        },
    ),
    alternative(
        "all_to_all",
        "all_to_all by Bruck's algorithm, where the parts are even",
        "Each block travels the binary digits of its distance.",
        {
            "all_to_all": """
            sizes = {len(part) for part in (*sent, *received)}
            if len(sizes) > 1 or n == 1:
                received[rank].copy_(sent[rank])
                for step in range(1, n):
                    to, source = (rank + step) % n, (rank - step) % n
                    send = dist.isend(sent[to], ranks[to], group)
                    dist.recv(received[source], ranks[source], group)
                    send.wait()
            else:
                # Block i is i places from where it belongs; it gets there in steps of 1, 2, 4, ...
                blocks = torch.stack([sent[(rank + i) % n] for i in range(n)])
                distance = 1
                while distance < n:
                    moving = [i for i in range(n) if i & distance]
                    incoming = torch.empty_like(blocks[moving])
                    send = dist.isend(blocks[moving], ranks[(rank + distance) % n], group)
                    dist.recv(incoming, ranks[(rank - distance) % n], group)
                    send.wait()
                    blocks[moving] = incoming
                    distance *= 2
                for i in range(n):
                    received[(rank - i) % n].copy_(blocks[i])
            """
        },
    ),
    alternative(
        "all_to_all",
        "all_to_all with everyone serving rank 0 first, then rank 1, and so on",
        "The obvious loop over the peers, with both directions at once.",
        {
            "all_to_all": """
            received[rank].copy_(sent[rank])
            for peer in range(n):
                if peer != rank:
                    send = dist.isend(sent[peer], ranks[peer], group)
                    dist.recv(received[peer], ranks[peer], group)
                    send.wait()
            """
        },
        but={"traffic": "1/2"},  # 13 messages one after another, where a pairwise exchange has 7
    ),
]
