"""What each collective does, and the steps of a ring and of a tree: from runs of the reference.

Each piece of each rank is a power of two of its own, so a sum tells what it is a sum of.
"""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor

import multirank
from handouts.drawing import DARK, LIGHT, MIDDLE, PALE, Canvas
from handouts.modelled import GRADED
from reference import collectives

RANKS = 4
_PIECES = "abcd"
_EMPTY = 0.0


def draw() -> dict[str, str]:
    """The three figures."""
    return {"collectives": _before_and_after(), "ring": _ring(), "tree": _tree()}


# --- Before and after -----------------------------------------------------------------------------


def _piece(rank: int, piece: int) -> float:
    return float(2 ** (RANKS * piece + rank))


def _own(rank: int) -> Tensor:
    """All pieces of a rank."""
    return torch.tensor([_piece(rank, piece) for piece in range(RANKS)])


def _told(value: float) -> str:
    """A cell in words, such as "2c" or "Σc"."""
    bits = [bit for bit in range(RANKS * RANKS) if int(value) >> bit & 1]
    if not bits:
        return ""
    (piece,) = {bit // RANKS for bit in bits}
    return (str(bits[0] % RANKS) if len(bits) == 1 else "Σ") + _PIECES[piece]


def _broadcast(rank: int) -> tuple[Tensor, Tensor]:
    before = _own(rank) if rank == 0 else torch.full((RANKS,), _EMPTY)
    after = before.clone()
    collectives.broadcast(after, src=0)
    return before, after


def _reduce(rank: int) -> tuple[Tensor, Tensor]:
    after = _own(rank)
    collectives.reduce(after, dst=0)
    return _own(rank), after


def _scatter(rank: int) -> tuple[Tensor, Tensor]:
    after = torch.zeros(1)
    collectives.scatter(after, list(torch.split(_own(0), 1)) if rank == 0 else None, src=0)
    return _own(0) if rank == 0 else torch.zeros(RANKS), after


def _gather(rank: int) -> tuple[Tensor, Tensor]:
    mine = torch.tensor([_piece(rank, 0)])
    found = [torch.zeros(1) for _ in range(RANKS)] if rank == 0 else None
    collectives.gather(mine, found, dst=0)
    return mine, torch.cat(found) if found else torch.zeros(RANKS)


def _all_gather(rank: int) -> tuple[Tensor, Tensor]:
    mine, after = torch.tensor([_piece(rank, 0)]), torch.zeros(RANKS)
    collectives.all_gather(after, mine)
    return mine, after


def _reduce_scatter(rank: int) -> tuple[Tensor, Tensor]:
    after = torch.zeros(1)
    collectives.reduce_scatter(after, _own(rank))
    return _own(rank), after


def _all_reduce(rank: int) -> tuple[Tensor, Tensor]:
    after = _own(rank)
    collectives.all_reduce(after)
    return _own(rank), after


def _all_to_all(rank: int) -> tuple[Tensor, Tensor]:
    after = torch.zeros(RANKS)
    collectives.all_to_all(after, _own(rank))
    return _own(rank), after


_ALL: dict[str, Callable[[int], tuple[Tensor, Tensor]]] = {
    "broadcast": _broadcast,
    "reduce": _reduce,
    "scatter": _scatter,
    "gather": _gather,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_reduce": _all_reduce,
    "all_to_all": _all_to_all,
}


def _run_all() -> dict[str, list[list[float]]]:
    rank = dist.get_rank()
    return {name: [one.tolist() for one in run(rank)] for name, run in _ALL.items()}


def _before_and_after() -> str:
    results = multirank.run(_run_all, RANKS).results
    w, h, column, row = 28.0, 17.0, 330.0, 112.0
    canvas = Canvas(row * len(_ALL) / 2 - 8)
    for place, name in enumerate(_ALL):
        x, y = column * (place % 2), row * (place // 2)
        canvas.text(x, y + 13, name, bold=True)
        for when in (0, 1):
            start = x + when * (RANKS * w + 46)
            for rank in range(RANKS):
                canvas.text(
                    start + (rank + 0.5) * w, y + 28, str(rank), size=10, at="middle", color="#555"
                )
                values = results[rank][name][when]
                for piece in range(RANKS):
                    value = values[piece] if piece < len(values) else _EMPTY
                    told = _told(value)
                    fill = MIDDLE if told.startswith("Σ") else LIGHT if told else "#fff"
                    canvas.cell(start + rank * w, y + 32 + piece * h, w, h, told, fill)
        middle = y + 32 + 2 * h
        canvas.line(x + RANKS * w + 9, middle, x + RANKS * w + 37, middle, arrow=True)
    return canvas.svg()


# --- The ring, step by step -----------------------------------------------------------------------


def _ring_states() -> list[list[float]]:
    """What the tensor holds before each step of an all-reduce, and in the end."""
    tensor = torch.full((RANKS,), float(2 ** dist.get_rank()))
    states: list[list[float]] = []
    exchange = dist.batch_isend_irecv

    def noted(p2p_op_list: list[dist.P2POp]) -> list[dist.Work]:
        states.append(tensor.tolist())
        return exchange(p2p_op_list)

    with mock.patch.object(dist, "batch_isend_irecv", noted):
        collectives.all_reduce(tensor)
    return [*states, tensor.tolist()]


def _ring() -> str:
    of_ranks = multirank.run(_ring_states, RANKS).results
    steps = len(of_ranks[0])
    w, h = 34.0, 17.0
    canvas = Canvas(250)
    complete = float(2**RANKS - 1)
    for step in range(steps):
        x, y = 4 + 161.0 * (step % 4), 8 + 122.0 * (step // 4)
        first = step < RANKS
        phase = "reduce-scatter" if first else "all-gather"
        number = step if first else step - RANKS + 1
        canvas.text(x, y + 11, f"{phase}, {number}" if step else "at first", bold=True)
        for rank in range(RANKS):
            canvas.text(
                x + (rank + 0.5) * w, y + 26, f"rank {rank}", size=9, at="middle", color="#555"
            )
            for piece in range(RANKS):
                value = of_ranks[rank][step][piece]
                told = "+".join(str(r) for r in range(RANKS) if int(value) >> r & 1)
                fill = "#fff" if "+" not in told else LIGHT
                if value == complete:
                    told, fill = "Σ", DARK
                at = (x + rank * w, y + 31 + piece * h)
                canvas.cell(*at, w, h, told, fill)
                if step and value != of_ranks[rank][step - 1][piece]:
                    canvas.box(at[0] + 1.2, at[1] + 1.2, w - 2.4, h - 2.4, "none", "#c05000")
                    canvas.box(at[0] + 2, at[1] + 2, w - 4, h - 4, "none", "#fff")
    x, y = 4 + 161.0 * 3, 8 + 122.0
    for line, told in enumerate(("columns: ranks", "rows: pieces a, b, c, d")):
        canvas.text(x, y + 44 + 15 * line, told, size=10.5, color="#555")
    return canvas.svg()


# --- A tree ---------------------------------------------------------------------------------------


def _broadcast_once() -> None:
    collectives.broadcast(torch.zeros(1024), src=0)


def _tree() -> str:
    n = 8
    replayed = multirank.replay(multirank.run(_broadcast_once, n).trace, GRADED)
    sends = [op for op in replayed.trace.operations if op.name == "send"]
    times = sorted({round(op.issued, 9) for op in sends})
    rounds = [[op for op in sends if round(op.issued, 9) == time] for time in times]
    gap, top, step = 64.0, 14.0, 43.0
    canvas = Canvas(top + step * len(rounds) + 14)

    def x(rank: int) -> float:
        return 96 + gap * rank

    have = {0}
    for number in range(len(rounds) + 1):
        y = top + step * number
        for rank in range(n):
            fill = DARK if rank in have else PALE
            canvas.cell(x(rank) - 14, y - 9, 28, 18, str(rank), fill)
        if number == len(rounds):
            break
        canvas.text(4, y + step / 2 + 4, f"round {number + 1}", color="#555")
        for op in rounds[number]:
            assert op.peer is not None
            canvas.line(x(op.rank), y + 10, x(op.peer), y + step - 10, arrow=True, width=1.3)
            have.add(op.peer)
    return canvas.svg()
