"""What a run warns of: it went well this time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import multirank
from multirank import Run, World, context
from tests.multirank import honest
from tests.multirank.hangs import line_of


def warned(program: Callable[..., Any], size: int = 2, ok: bool = True) -> Run:
    run = multirank.run(program, size, check=False, timeout=20)
    assert run.ok == ok, run.story
    return run


def only(run: Run) -> str:
    """Its one warning, in one line."""
    assert len(run.warnings) == 1, run.story
    return " ".join(run.warnings[0].split())


# ---------------------------------------------------------------- handles


def a_dropped_isend() -> None:
    if dist.get_rank() == 0:
        time.sleep(0.2)  # the receive is posted already: the message gets through
        dist.isend(torch.ones(4), 1)  # here
        time.sleep(0.2)
    else:
        dist.recv(torch.ones(4), 0)


def test_an_isend_whose_handle_is_dropped_is_named_with_what_to_do() -> None:
    run = warned(a_dropped_isend)
    line = line_of(a_dropped_isend)
    assert f"rank 0: the handle of isend to rank 1 (test_misuse.py:{line})" in only(run)
    assert "was dropped without wait()" in only(run)
    assert "Keep it, and call its wait()" in only(run)


def test_a_warning_is_part_of_the_story() -> None:
    run = warned(a_dropped_isend)
    assert run.story.startswith("all 2 ranks finished\nWarning: rank 0: the handle of isend")


def an_irecv_that_nobody_waits_for() -> None:
    if dist.get_rank() == 0:
        dist.send(torch.ones(4), 1)
    else:
        handle = dist.irecv(torch.ones(4), 0)
        time.sleep(0.2)
        del handle


def test_an_irecv_whose_handle_is_dropped_is_named() -> None:
    assert "rank 1: the handle of irecv from rank 0" in only(warned(an_irecv_that_nobody_waits_for))


def test_an_asynchronous_collective_that_nobody_waits_for_is_told_once_for_all_ranks() -> None:
    def program() -> None:
        for _ in range(3):
            dist.all_reduce(torch.ones(4), async_op=True)
        dist.barrier()

    text = only(warned(program, 3))
    assert "ranks 0, 1 and 2: the handle of all_reduce(async_op=True)" in text
    assert "(9 times)" in text


def test_a_handle_that_is_still_open_when_the_function_returns_is_named() -> None:
    def program() -> None:
        context().state["kept"] = dist.all_reduce(torch.ones(4), async_op=True)
        time.sleep(0.1)

    assert "was still open when the function returned" in only(warned(program))


def test_what_is_waited_for_or_seen_complete_or_has_a_future_gives_no_warning() -> None:
    def program() -> None:
        r = dist.get_rank()
        sent = dist.isend(torch.ones(4), 1 - r)
        dist.recv(torch.ones(4), 1 - r)
        assert sent is not None
        sent.wait()
        polled = dist.all_reduce(torch.ones(4), async_op=True)
        assert polled is not None
        while not polled.is_completed():
            time.sleep(0.001)
        other = dist.all_reduce(torch.ones(4), async_op=True)
        assert other is not None
        other.get_future().wait()

    assert warned(program).warnings == []


def test_a_rank_that_does_not_finish_is_not_warned_of_its_handles() -> None:
    def program() -> None:
        dist.isend(torch.ones(4), 1 - dist.get_rank())
        raise ValueError

    assert warned(program, ok=False).warnings == []


# ---------------------------------------------------------------- buffers


def exchange(change: Callable[[torch.Tensor], Any], tensor: torch.Tensor) -> None:
    r = dist.get_rank()
    sent = dist.isend(tensor, 1 - r)
    if r == 0:
        change(tensor)
    dist.recv(torch.empty_like(tensor), 1 - r)
    assert sent is not None
    sent.wait()


def begin_to_reduce(tensor: torch.Tensor, operation: Any = dist.ReduceOp.SUM) -> dist.Work:
    work: dist.Work | None = dist.all_reduce(tensor, operation, async_op=True)
    assert work is not None
    return work


def test_a_send_buffer_that_is_changed_before_wait_is_named() -> None:
    text = only(warned(lambda: exchange(torch.Tensor.zero_, torch.ones(8))))
    assert "rank 0: the buffer of isend to rank 1 (test_misuse.py:" in text
    assert "was changed before wait()" in text
    assert "clone()" in text


def test_a_change_of_a_part_of_a_tensor_that_is_under_way_is_named() -> None:
    def program() -> None:
        whole = torch.ones(64)
        exchange(torch.Tensor.zero_, whole[8:40])

    assert "was changed before wait()" in only(warned(program))


def test_a_change_of_another_part_is_right() -> None:
    """As every ring algorithm does it."""

    def program() -> None:
        whole = torch.ones(64)
        exchange(lambda _: whole[40:].zero_(), whole[8:40])

    assert warned(program).warnings == []


def test_a_change_after_wait_is_right() -> None:
    def program() -> None:
        tensor = torch.ones(8)
        for _ in range(3):
            exchange(lambda _: None, tensor)
            tensor.add_(1)

    assert warned(program).warnings == []


def test_a_change_once_it_was_seen_complete_is_right() -> None:
    def program() -> None:
        tensor = torch.ones(8)
        work = begin_to_reduce(tensor)
        while not work.is_completed():
            time.sleep(0.001)
        tensor.zero_()
        work.wait()

    assert warned(program).warnings == []


@pytest.mark.parametrize("operation", [dist.ReduceOp.SUM, dist.ReduceOp.AVG])
def test_what_was_reduced_may_be_there_before_wait(operation: Any) -> None:
    """Of a mean, gloo divides the sum in place: a change, but not the program's."""

    def program() -> None:
        tensor = torch.ones(8)
        work = begin_to_reduce(tensor, operation)
        time.sleep(0.1)
        work.wait()
        with dist.distributed_c10d._coalescing_manager(async_ops=True) as coalesced:
            dist.all_reduce(tensor, operation)
        time.sleep(0.1)
        coalesced.wait()

    assert warned(program).warnings == []


def test_a_change_after_its_future_was_waited_for_is_right() -> None:
    def program() -> None:
        for _ in range(50):
            tensor = torch.ones(8)
            work = begin_to_reduce(tensor)
            work.get_future().wait()
            tensor.add_(1)
            work.wait()

    assert warned(program).warnings == []


@pytest.mark.parametrize("operation", [dist.ReduceOp.SUM, dist.ReduceOp.AVG])
def test_a_change_of_what_is_being_reduced_is_named(operation: Any) -> None:
    def program() -> None:
        tensor = torch.ones(8)
        work = begin_to_reduce(tensor, operation)
        if dist.get_rank() == 1:
            tensor.mul_(2)
        work.wait()

    assert "rank 1: the buffer of all_reduce(async_op=True)" in only(warned(program))


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.complex64, torch.int64])
def test_parts_of_every_dtype_can_be_sent(dtype: torch.dtype) -> None:
    def program() -> None:
        whole = torch.ones(64).to(dtype)
        exchange(lambda _: whole[40:].zero_(), whole[8:40])
        exchange(lambda _: None, torch.ones(0).to(dtype))
        exchange(lambda _: None, torch.ones(3, 4)[0:2].to(dtype))
        exchange(lambda _: None, torch.ones(()).to(dtype))

    assert warned(program).warnings == []


def test_inference_tensors_can_be_sent() -> None:
    def program() -> None:
        with torch.inference_mode():
            exchange(torch.Tensor.zero_, torch.ones(8))
            dist.all_reduce(torch.ones(8))

    warned(program)


def test_tensors_without_memory_of_their_own_can_be_reduced_in_the_background() -> None:
    def reduced(tensor: torch.Tensor) -> torch.Tensor:
        begin_to_reduce(tensor).wait()
        return tensor

    def program() -> list[float]:
        reduced(torch.eye(3).to_sparse())
        slope: list[float] = torch.func.grad(lambda x: reduced(2 * x).sum())(torch.ones(3)).tolist()
        return slope

    run = warned(program)
    assert (run.results, run.warnings) == ([[2.0] * 3] * 2, [])


def test_what_torch_will_not_send_is_refused_in_its_own_words() -> None:
    def program() -> None:
        dist.isend(torch.ones(4, 4)[:, 1:3], 1 - dist.get_rank())

    run = warned(program, ok=False)
    assert "input tensor has to be contiguous" in run.story


# ---------------------------------------------------------------- groups


def destroyed_too_early() -> None:
    if dist.get_rank() == 1:
        time.sleep(0.1)
        dist.destroy_process_group()  # here
    else:
        dist.all_reduce(torch.ones(4))  # inside


def test_a_group_that_is_destroyed_under_others_is_named() -> None:
    run = warned(destroyed_too_early, 3, ok=False)
    text = only(run)
    destroyed, inside = (line_of(destroyed_too_early, word) for word in ("# here", "# inside"))
    assert f"rank 1 destroyed a process group (test_misuse.py:{destroyed})" in text
    assert f"in all_reduce (test_misuse.py:{inside})" in text
    assert "Warning: " in run.story


def test_a_group_that_is_destroyed_in_the_end_gives_no_warning() -> None:
    def program() -> None:
        for _ in range(20):
            dist.all_reduce(torch.ones(4))
        dist.destroy_process_group()

    for _ in range(3):
        assert warned(program, 3).warnings == []


# ---------------------------------------------------------------- libraries, calls


@pytest.mark.parametrize(
    ("program", "size"),
    [
        (honest.data_parallel, 2),
        (honest.fully_sharded, 2),
        (honest.pipelined, 3),
        (honest.random_program, 3),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_torchs_own_parallelism_gives_no_warning(program: Callable[..., Any], size: int) -> None:
    arguments = (7, 20) if program is honest.random_program else ()
    run = multirank.run(program, size, *arguments)
    assert run.warnings == []


def test_functional_collectives_and_distributed_tensors_give_no_warning() -> None:
    def program() -> None:
        import torch.distributed._functional_collectives as functional
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor

        world: Any = dist.group.WORLD
        total = functional.all_reduce(torch.ones(4), "sum", world)
        (total + 1).sum().item()
        mesh = init_device_mesh("cpu", (2,))
        tensor: Any = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
        (tensor @ tensor.redistribute(mesh, [Replicate()])).full_tensor().sum().item()

    assert warned(program).warnings == []


def test_a_call_warns_of_its_own_operations_only() -> None:
    with World(2) as world:
        assert len(world.call(a_dropped_isend).warnings) == 1
        assert world.call(dist.barrier).warnings == []
