"""Submissions to grade: the reference with one mistake in it, or written another way.

Each is a patch of the reference, as text, for one problem; `graded` grades what comes of it.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autograder.grade import About, Grade, Outcome, Row
from autograder.grading import Grading
from autograder.inputs import Secret, known_secret
from autograder.manifest import Manifest, load
from autograder.paths import ASSIGNMENT, REFERENCE, module_files
from autograder.stubs import BEGIN, END

Files = dict[str, bytes]
Patch = str | tuple[str, str]
"""A function's new solution region; or text that stands in the function once, and its successor."""

ALL = "all"
MANIFEST = load(REFERENCE)


def reference_files() -> Files:
    return module_files(REFERENCE)


def stub_files() -> Files:
    return module_files(ASSIGNMENT)


def patched(
    patches: Mapping[str, Patch],
    modules: Mapping[str, str] | None = None,
    file: str = "collectives",
) -> Files:
    """The reference with functions of one of its files changed, and with further modules.

    Raises AssertionError where a patch does not fit.
    """
    files = reference_files()
    source = files[f"{file}.py"].decode()
    for function, patch in patches.items():
        old = _function(source, function)
        assert source.count(old) == 1
        source = source.replace(old, _patch(old, patch))
    files[f"{file}.py"] = source.encode()
    return files | {f"{name}.py": text.encode() for name, text in (modules or {}).items()}


def _function(source: str, name: str) -> str:
    """A top-level function's text, up to whatever comes after it."""
    body = ast.parse(source).body
    starts = [
        min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
        for node in body
    ]
    for node, begin, end in zip(body, starts, [*starts[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return "".join(source.splitlines(keepends=True)[begin - 1 : end and end - 1])
    raise AssertionError(f"the reference has no function {name}")


def _patch(old: str, patch: Patch) -> str:
    if isinstance(patch, tuple):
        before, after = patch
        assert old.count(before) == 1, f"{before!r} stands there {old.count(before)} times"
        return old.replace(before, after)
    assert old.count(BEGIN) == old.count(END) == 1
    head, _, rest = old.partition(f"    {BEGIN}\n")
    _, _, tail = rest.partition(f"    {END}\n")
    return head + textwrap.indent(textwrap.dedent(patch).strip() + "\n", "    ") + tail


def graded(
    files: Mapping[str, bytes],
    only: Sequence[str] = (),
    *,
    manifest: Manifest = MANIFEST,
    secret: Secret | None = None,
    **more: Any,
) -> Grade:
    """Grades, in this process; the ranks are processes of their own as always."""
    about = About(course="A course")
    return Grading(
        manifest,
        files,
        reference_files(),
        secret or known_secret(1),
        about,
        only=only,
        **more,
    ).run()


def small_manifest(*problems: str) -> Manifest:
    """The course with these problems alone."""
    kept = tuple(problem for problem in MANIFEST.problems if problem.id in problems)
    assert len(kept) == len(problems)
    return replace(MANIFEST, problems=kept)


def rows_of(grade: Grade, problem: str) -> dict[str, Row]:
    """A problem's rows, by the names of their checks."""
    return {row.check_id.partition("/")[2]: row for row in grade.rows_of(problem)}


def lost(grade: Grade, problem: str) -> set[str]:
    """The checks of a problem without full marks."""
    rows = rows_of(grade, problem)
    return {name for name, row in rows.items() if row.outcome is not Outcome.PASSED}


# --- The reference with a mistake in it ----------------------------------------------------------


@dataclass(frozen=True)
class Mistake:
    """A mistake that students make.

    problem: the problem that it is made in.
    patches: by function of collectives.py, or of `file`.
    loses: the checks of the problem that must not get full marks, and no others; or `ALL`.
    causes: of each likely cause that is shown, one of these must be a part.
    message: part of what the first lost row must say.
    slow: whether the test of it is.
    """

    name: str
    problem: str
    patches: Mapping[str, Patch]
    loses: frozenset[str] | str
    causes: tuple[str, ...] = ()
    message: str = ""
    file: str = "collectives"
    slow: bool = False


def mistake(
    name: str, problem: str, patch: Patch, *loses: str, function: str = "", **more: Any
) -> Mistake:
    checks = ALL if loses == (ALL,) else frozenset(loses)
    return Mistake(name, problem, {function or problem: patch}, checks, **more)


COMMUNICATED_NOTHING = "nothing having been communicated"
LEFT_IN_A_COPY = "stayed in a copy"

MISTAKES = [
    # ---------------------------------------------------------------- launch
    mistake(
        "setup leaves the file out",
        "launch",
        ("elif file is not None:", "elif False:"),
        "file",
        function="setup",
        file="launch",
        message="the ranks would meet at another place than setup was told",
    ),
    mistake(
        "setup gives everyone rank 0",
        "launch",
        ("rank=rank,", "rank=0,"),
        *("address", "torchrun"),
        function="setup",
        file="launch",
        message="init_process_group got another rank than setup was told",
        slow=True,
    ),
    mistake(
        "cleanup destroys what is not there",
        "launch",
        ("if dist.is_initialized():", "if True:"),
        "cleanup",
        function="cleanup",
        file="launch",
        slow=True,
    ),
    mistake(
        "cleanup does nothing",
        "launch",
        "pass",
        "cleanup",
        function="cleanup",
        file="launch",
        message="cleanup called destroy_process_group 0 times; once was asked for",
        slow=True,
    ),
    # ---------------------------------------------------------------- all_reduce
    mistake(
        "all_reduce collects everything at a root and sends it back",
        "all_reduce",
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
        "traffic",
        message="with 8 ranks, rank 0 sent 7.00 S; 1.75 S is enough",
    ),
    mistake(
        "all_reduce passes the whole tensor around in every step",
        "all_reduce",
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
        "traffic",
        message="sent 7.00 S; 1.75 S is enough",
        slow=True,
    ),
    mistake(
        "all_reduce drops the remainder",
        "all_reduce",
        ("chunks = flat.tensor_split(n)", "chunks = flat[: len(flat) // n * n].tensor_split(n)"),
        "sizes_that_do_not_divide",
        causes=("a remainder that was dropped",),
    ),
    mistake(
        "all_reduce does not divide for AVG",
        "all_reduce",
        ("chunks[rank].div_(n)", "pass"),
        "average",
        causes=("a sum where a mean was asked for",),
        slow=True,
    ),
    mistake(
        "all_reduce divides by 2 for AVG",
        "all_reduce",
        ("chunks[rank].div_(n)", "chunks[rank].div_(2)"),
        "average",
        slow=True,
    ),
    mistake(
        "all_reduce divides by the number of all ranks in a sub-group",
        "all_reduce",
        ("chunks[rank].div_(n)", "chunks[rank].div_(dist.get_world_size())"),
        "average",
        slow=True,
    ),
    mistake(
        "all_reduce passes on the wrong chunks",
        "all_reduce",
        (
            "        send = dist.P2POp(dist.isend, chunks[(rank - step) % n], right, group)\n"
            "        recv = dist.P2POp(dist.irecv, chunks[(rank - step - 1) % n], left, group)\n",
            "        send = dist.P2POp(dist.isend, chunks[(rank - step + 1) % n], right, group)\n"
            "        recv = dist.P2POp(dist.irecv, chunks[(rank - step) % n], left, group)\n",
        ),
        ALL,
        causes=("one step too few",),
        slow=True,
    ),
    mistake(
        "all_reduce takes ranks in the group for global ranks",
        "all_reduce",
        (
            "left, right = ranks[(rank - 1) % n], ranks[(rank + 1) % n]",
            "left, right = (rank - 1) % n, (rank + 1) % n",
        ),
        *("sub_group", "average"),
        slow=True,
    ),
    mistake(
        "all_reduce leaves the result in a contiguous copy",
        "all_reduce",
        ("    # END SOLUTION\n    _copy_back(flat, tensor)", "    # END SOLUTION"),
        "layouts",
        causes=(LEFT_IN_A_COPY,),
        slow=True,
    ),
    mistake(
        "all_reduce gives the first result again on a second call",
        "all_reduce",
        (
            "    # END SOLUTION\n",
            "    seen = globals().setdefault('seen', {})\n"
            "    key = (tuple(tensor.shape), tensor.dtype, str(op))\n"
            "    flat.copy_(seen.setdefault(key, flat.clone()))\n",
        ),
        *("sum", "layouts"),
        slow=True,
    ),
    mistake(
        "all_reduce of every rank sends before any receives",
        "all_reduce",
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
        ALL,
        message="waits",
    ),
    mistake(
        "all_reduce does not refuse the average of integers",
        "all_reduce",
        ("if op == ReduceOp.AVG and not dtype.is_floating_point:", "if False:"),
        "refusals",
        function="_combine",
        message="all_reduce with the average of integers: it must raise ValueError; on rank 0 it "
        "raised RuntimeError",
        slow=True,
    ),
    mistake(
        "all_reduce calls dist.all_reduce",
        "all_reduce",
        "dist.all_reduce(flat, op, group)",
        ALL,
        message="it uses dist.all_reduce (collectives.py, line ",
    ),
    mistake(
        "all_reduce sends bfloat16",
        "all_reduce",
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
        ALL,
        slow=True,
    ),
    # ---------------------------------------------------------------- reduce_scatter
    mistake(
        "reduce_scatter adds up in its input",
        "reduce_scatter",
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
        "input_untouched",
        message="has changed a tensor that it may only read",
        slow=True,
    ),
    mistake(
        "reduce_scatter does not divide for AVG",
        "reduce_scatter",
        ("own.div_(n)", "pass"),
        "average",
        causes=("a sum where a mean was asked for",),
        slow=True,
    ),
    mistake(
        "reduce_scatter sends every rank the whole input",
        "reduce_scatter",
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
        "traffic",
        slow=True,
    ),
    # ---------------------------------------------------------------- all_gather
    mistake(
        "all_gather puts the parts one place too far",
        "all_gather",
        (
            "chunks[rank].copy_(own)",
            "chunks = (*chunks[1:], chunks[0])\n    chunks[rank].copy_(own)",
        ),
        ALL,
        causes=("an index that is off by one rank",),
        slow=True,
    ),
    mistake(
        "all_gather passes the whole output around in every step",
        "all_gather",
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
        "traffic",
        slow=True,
    ),
    # ---------------------------------------------------------------- broadcast
    mistake(
        "broadcast ignores its root",
        "broadcast",
        ("relative = (rank - root) % n", "relative = rank"),
        *("from_other_ranks", "sub_group", "agrees_with_torch"),
        causes=("a copy of rank 0's data", "a copy of rank 1's data"),
        slow=True,
    ),
    mistake(
        "broadcast does nothing",
        "broadcast",
        "pass",
        ALL,
        causes=(COMMUNICATED_NOTHING,),
    ),
    mistake(
        "broadcast sends from the root to each",
        "broadcast",
        """
        if rank == root:
            for peer in ranks:
                if peer != src:
                    dist.send(flat, peer, group)
        else:
            dist.recv(flat, src, group)
        """,
        "traffic",
        message="with 8 ranks, rank 0 sent 7.00 S; 3.00 S is enough",
        slow=True,
    ),
    # ---------------------------------------------------------------- scatter, gather
    mistake(
        "scatter gives everyone the first piece",
        "scatter_gather",
        ("dist.send(piece, peer, group)", "dist.send(flat_pieces[0], peer, group)"),
        *("scatter", "scatter_in_sub_group", "scatter_edges", "refusals", "scatter_traffic"),
        function="scatter",
        slow=True,
    ),
    mistake(
        "gather goes by the order of arrival",
        "scatter_gather",
        (
            "for peer, piece in zip(ranks, flat_pieces, strict=True):",
            "for peer, piece in zip(reversed(ranks), flat_pieces, strict=True):",
        ),
        *("gather", "gather_in_sub_group", "gather_edges", "gather_traffic"),
        causes=("an index that is off by one rank",),  # which of two ranks' parts looks like too
        function="gather",
        slow=True,
    ),
    # ---------------------------------------------------------------- reduce
    mistake(
        "reduce adds up in the tensors of the others",
        "reduce",
        ("partial = flat if rank == root else flat.clone()", "partial = flat"),
        "others_untouched",
        message="has changed a tensor that it may only read",
    ),
    mistake(
        "reduce always adds",
        "reduce",
        ("combine(partial, incoming, out=partial)", "partial.add_(incoming)"),
        "other_operations",
        slow=True,
    ),
    # ---------------------------------------------------------------- all_to_all
    mistake(
        "all_to_all clears its input",
        "all_to_all",
        ("    # END SOLUTION\n", "    input.zero_()\n"),
        "input_untouched",
        message="has changed a tensor that it may only read",
        slow=True,
    ),
    mistake(
        "all_to_all sends equal parts whatever the splits",
        "all_to_all",
        (
            "sent = torch.split(input.contiguous(), input_splits)",
            "sent = input.contiguous().tensor_split(n)",
        ),
        *("uneven", "sub_group"),
        slow=True,
    ),
    mistake(
        "all_to_all does not wait for what it receives",
        "all_to_all",
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
        ALL,
        message="without having waited for a receive (collectives.py, line ",
        slow=True,
    ),
    # ---------------------------------------------------------------- barrier
    mistake(
        "barrier does nothing",
        "barrier",
        "pass",
        ALL,
        message="left the barrier before the last rank",
    ),
    mistake(
        "barrier waits for its left neighbour alone",
        "barrier",
        ("for distance in _doubling(n):", "for distance in [1] * (n > 1):"),
        # Of three, waiting for gloo's send to the right neighbour makes it a barrier after all.
        *("waits_for_the_last", "alone_and_often"),
        slow=True,
    ),
]


# --- The reference written another way ------------------------------------------------------------


@dataclass(frozen=True)
class Alternative:
    """A right solution that is not the reference's; it must get full marks.

    but: the checks in which it does not, with the part of their points that it gets.
    """

    name: str
    problem: str
    patches: Mapping[str, Patch]
    modules: Mapping[str, str] = field(default_factory=dict)
    but: Mapping[str, str] = field(default_factory=dict)
    file: str = "collectives"
    slow: bool = False


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
    Alternative(
        "setup through the environment, which then waits for the others and says hello",
        "launch",
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
        file="launch",
    ),
    Alternative(
        "all_reduce as reduce_scatter and all_gather with padding",
        "all_reduce",
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
    ),
    Alternative(
        "all_reduce by recursive doubling",
        "all_reduce",
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
        slow=True,
    ),
    Alternative(
        "all_reduce by recursive halving and doubling, and to the others from one",
        "all_reduce",
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
        slow=True,
    ),
    Alternative(
        "all_reduce with helpers of a module of one's own, and AVG divided beforehand",
        "all_reduce",
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
        slow=True,
    ),
    Alternative(
        "broadcast as scatter and all_gather",
        "broadcast",
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
        slow=True,
    ),
    Alternative(
        "reduce as a chain",
        "reduce",
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
        slow=True,
    ),
    Alternative(
        "all_to_all with everything under way at once",
        "all_to_all",
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
        slow=True,
    ),
    Alternative(
        "scatter down a tree",
        "scatter_gather",
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
        slow=True,
    ),
    Alternative(
        "barrier through one rank",
        "barrier",
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
]
