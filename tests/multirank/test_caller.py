"""Whose line an operation is of; and a line that does something else the next time says so."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import multirank
from multirank import context


def recorded(program: Callable[[], Any], size: int = 2) -> list[tuple[Any, ...]]:
    run = multirank.run(program, size, groups={"pair": [0, 1]})
    assert not run.trace.damaged
    return [
        (op.name, op.peer, op.tag, op.reduce_op, op.dtype, op.shape, op.nbytes, op.group_name)
        for op in run.trace.of_rank(0)
    ]


SUM, MAX = dist.ReduceOp.SUM, dist.ReduceOp.MAX


def test_a_line_whose_shape_dtype_or_operation_changes_is_recorded_as_it_is() -> None:
    def program() -> None:
        for size, dtype, op in (
            *((4, torch.float32, SUM), (4, torch.float32, SUM), (5, torch.float32, SUM)),
            *((5, torch.int32, SUM), (5, torch.int32, MAX), (4, torch.float32, SUM)),
        ):
            dist.all_reduce(torch.ones(size, dtype=dtype), op)

    assert [(row[3], row[4], row[5], row[6]) for row in recorded(program)] == [
        ("SUM", "float32", (4,), 16),
        ("SUM", "float32", (4,), 16),
        ("SUM", "float32", (5,), 20),
        ("SUM", "int32", (5,), 20),
        ("MAX", "int32", (5,), 20),
        ("SUM", "float32", (4,), 16),
    ]


def test_a_line_whose_root_peer_tag_or_group_changes_is_recorded_as_it_is() -> None:
    def program() -> None:
        other: Any = context().groups["pair"]
        for root, group in ((0, None), (1, None), (0, other), (1, None), (0, None)):
            dist.broadcast(torch.ones(1), root, group=group)
        for tag in (1, 2, 1):
            if dist.get_rank() == 0:
                dist.send(torch.ones(1), 1, tag=tag)
            else:
                dist.recv(torch.ones(1), 0, tag=tag)

    rows = recorded(program)
    assert [row[1] for row in rows[:5]] == [0, 1, 0, 1, 0]
    assert len({row[7] for row in rows[:5]}) == 2
    assert rows[2][7] != rows[1][7]
    assert [row[2] for row in rows[5:]] == [1, 2, 1]


def test_a_batch_on_one_line_tells_sends_from_receives() -> None:
    def program() -> None:
        peer = 1 - dist.get_rank()
        for _ in range(2):
            for work in dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, torch.ones(2), peer),
                    dist.P2POp(dist.irecv, torch.ones(2), peer),
                ]
            ):
                work.wait()

    assert [row[0] for row in recorded(program)] == ["send", "recv"] * 2


def test_a_line_with_many_shapes_is_recorded_as_it_is() -> None:
    def program() -> None:
        for _ in range(2):
            for size in range(20):
                dist.all_reduce(torch.ones(size, 2))

    assert [row[5] for row in recorded(program)] == [(size, 2) for size in range(20)] * 2


def test_lines_that_look_alike_are_told_apart() -> None:
    def program() -> None:
        for _ in range(2):
            dist.all_reduce(torch.ones(1))  # first
            dist.all_reduce(torch.ones(1))  # second

    lines, first = inspect.getsourcelines(program)
    expected = [first + place for place, line in enumerate(lines) if "# " in line] * 2
    run = multirank.run(program, 2)
    assert [operation.line for operation in run.trace.of_rank(1)] == expected


def test_repeated_operations_have_their_own_times() -> None:
    def program() -> None:
        for _ in range(5):
            dist.all_reduce(torch.ones(1))

    for rank in range(2):
        operations = multirank.run(program, 2).trace.of_rank(rank)
        times = [
            time for op in operations for time in (op.issued, op.waited, op.completed, op.dropped)
        ]
        assert None not in times
        assert times == sorted(times, key=lambda time: time or 0)
        assert len({op.issued for op in operations}) == 5


def test_a_tensor_that_is_not_contiguous_is_refused_on_a_line_that_did_well() -> None:
    def program() -> None:
        for tensor in (torch.ones(4, 4), torch.ones(4, 4).t()[:, :]):
            tensor = tensor if tensor.is_contiguous() else torch.ones(8, 4).t()[:, ::2]
            dist.all_reduce(tensor)

    run = multirank.run(program, 2, check=False)
    assert "needs contiguous tensors" in run.story


@pytest.mark.parametrize("dead", ["finished", "died"])
def test_an_operation_that_has_ended_is_not_called_pending(dead: str) -> None:
    """Its end is written with the next record, of which there is none."""

    def program() -> None:
        for _ in range(3):
            dist.all_reduce(torch.ones(1))
        if dead == "died" and dist.get_rank() == 1:
            import os

            os._exit(3)
        import time

        time.sleep(0.3)

    run = multirank.run(program, 2, check=False)
    for rank in range(2):
        assert run.trace.pending(rank) == []
        assert all(operation.completed is not None for operation in run.trace.of_rank(rank))
