"""Mistakes in all_to_all."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

MUTANTS = [
    mutant(
        "all_to_all",
        "all_to_all clears its input",
        "The parts are given away for good.",
        ("    # END SOLUTION\n", "    input.zero_()\n"),
        ["input_untouched"],
        told="has changed a tensor that it may only read",
    ),
    mutant(
        "all_to_all",
        "all_to_all sends equal parts whatever the splits",
        "The split sizes are for the output alone, the student thought.",
        (
            "sent = torch.split(input.contiguous(), input_splits)",
            "sent = input.contiguous().tensor_split(n)",
        ),
        ["uneven", "sub_group"],
    ),
    mutant(
        "all_to_all",
        "all_to_all does not wait for what it receives",
        "Only the sends are waited for.",
        """
        received[rank].copy_(sent[rank])
        handles = []
        for step in range(1, n):
            to, source = (rank + step) % n, (rank - step) % n
            handles.append(dist.isend(sent[to], ranks[to], group))
            globals().setdefault("kept", []).append(
                dist.irecv(received[source], ranks[source], group)
            )
        for handle in handles:
            handle.wait()
        """,
        ["*"],
        told="without having waited for a receive (collectives.py, line ",
    ),
    mutant(
        "all_to_all",
        "all_to_all forgets its own part",
        "Nothing need be sent, so nothing is done.",
        ("received[rank].copy_(sent[rank])", "pass"),
        ["*"],
        told="never written",
    ),
    mutant(
        "all_to_all",
        "all_to_all sends the part that is for another",
        "sent is indexed by where the next part comes from.",
        (
            "send = dist.P2POp(dist.isend, sent[to], ranks[to], group)",
            "send = dist.P2POp(dist.isend, sent[source], ranks[to], group)",
        ),
        [
            *("even", "uneven", "more_dimensions", "sub_group", "agrees_with_torch"),
            *("layouts", "input_untouched", "dtypes", "traffic"),
        ],
        told="taken from the wrong place in the input",
    ),
    mutant(
        "all_to_all",
        "all_to_all takes ranks in the group for global ranks",
        "(rank + step) % n is sent to as it is.",
        """
        received[rank].copy_(sent[rank])
        for step in range(1, n):
            to, source = (rank + step) % n, (rank - step) % n
            send = dist.P2POp(dist.isend, sent[to], to, group)
            recv = dist.P2POp(dist.irecv, received[source], source, group)
            for work in dist.batch_isend_irecv([send, recv]):
                work.wait()
        """,
        ["sub_group"],
        told="is not part of group",
    ),
    mutant(
        "all_to_all",
        "all_to_all leaves the result in a contiguous copy",
        "whole is received into, and never copied back.",
        ("    _copy_back(whole, output)\n", ""),
        ["layouts", "input_untouched"],
        told="stayed in a copy",
    ),
    mutant(
        "all_to_all",
        "all_to_all sends everyone everything",
        "Each rank gets the whole input of every other and picks its part.",
        """
        received[rank].copy_(sent[rank])
        own = torch.cat([part.reshape(-1) for part in sent])
        for step in range(1, n):
            to, source = (rank + step) % n, (rank - step) % n
            if len({len(part) for part in (*sent, *received)}) == 1:
                incoming = torch.empty_like(own)
                send = dist.isend(own, ranks[to], group)
                dist.recv(incoming, ranks[source], group)
                send.wait()
                received[source].copy_(incoming.view(n, *received[source].shape)[rank])
            else:
                send = dist.isend(sent[to], ranks[to], group)
                dist.recv(received[source], ranks[source], group)
                send.wait()
        """,
        ["traffic"],
        told="with 8 ranks",
    ),
    mutant(
        "all_to_all",
        "all_to_all of every rank sends before any receives",
        "It worked with small messages on another backend.",
        """
        received[rank].copy_(sent[rank])
        for step in range(1, n):
            dist.send(sent[(rank + step) % n], ranks[(rank + step) % n], group)
            dist.recv(received[(rank - step) % n], ranks[(rank - step) % n], group)
        """,
        ["*"],
        told="waits",
    ),
    mutant(
        "all_to_all",
        "all_to_all takes rows for single numbers",
        "Buffers are made of len(part) elements.",
        """
        received[rank].copy_(sent[rank])
        for step in range(1, n):
            to, source = (rank + step) % n, (rank - step) % n
            incoming = received[source].new_zeros(len(received[source]))
            send = dist.isend(sent[to].reshape(-1)[: len(sent[to])], ranks[to], group)
            dist.recv(incoming, ranks[source], group)
            send.wait()
            received[source].view(-1)[: len(incoming)] = incoming
        """,
        [
            *("uneven", "more_dimensions", "sub_group", "agrees_with_torch"),
            *("layouts", "input_untouched", "dtypes", "refusals"),
        ],
        told="never written",
    ),
    mutant(
        "all_to_all",
        "all_to_all goes through float32",
        "The buffer is torch.empty(shape), without the tensor's dtype.",
        """
        received[rank].copy_(sent[rank])
        for step in range(1, n):
            to, source = (rank + step) % n, (rank - step) % n
            incoming = received[source].float()
            send = dist.isend(sent[to].float(), ranks[to], group)
            dist.recv(incoming, ranks[source], group)
            send.wait()
            received[source].copy_(incoming)
        """,
        ["dtypes"],
        told="went through floating point",
    ),
    mutant(
        "all_to_all",
        "all_to_all takes tensors that do not fit",
        "The check of the arguments was thrown out as in the way.",
        (
            '_check_like("output", output, (len(output), *input.shape[1:]), "input", input)',
            "pass",
        ),
        ["refusals"],
    ),
    mutant(
        "all_to_all",
        "all_to_all scatters from one rank after another",
        "A scatter for each root: while one sends, the others wait.",
        """
        received[rank].copy_(sent[rank])
        for root in range(n):
            if rank != root:
                dist.recv(received[root], ranks[root], group)
            else:
                for peer in range(n):
                    if peer != rank:
                        dist.send(sent[peer], ranks[peer], group)
        """,
        ["traffic"],
        told="6.71 times as long as those of a pairwise exchange",
    ),
]
