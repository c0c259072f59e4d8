"""What the trace says of every operation, and of the program's own marks."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import multirank
from multirank import Operation, Run, Trace, World, context
from multirank.processes.memory import shared_file
from multirank.proving.ledger import Ledger
from multirank.recording.trace import MOST_RECORDS, TRACE_BYTES, Recorder, TraceReader

MEMBERS = [1, 3]  # the sub-group that programs find as "pair"


def observed(
    program: Callable[..., Any] | multirank.Source, *args: Any, size: int = 4, **options: Any
) -> Run:
    return multirank.run(program, size, *args, groups={"pair": MEMBERS}, **options)


def only(run: Run, rank: int) -> Operation:
    (operation,) = run.trace.of_rank(rank)
    return operation


def line_of(program: Callable[..., Any], text: str) -> int:
    """The number of the line in `program` that holds `text`."""
    import inspect

    lines, first = inspect.getsourcelines(program)
    (place,) = [place for place, line in enumerate(lines) if text in line]
    return first + place


# ---------------------------------------------------------------- what


def whole() -> Any:
    return dist.group.WORLD


def pair() -> Any:
    return context().groups["pair"]


def send_and_receive(tag: int) -> None:
    tensor = torch.zeros(2, 3, dtype=torch.float64)
    if dist.get_rank() == 1:
        dist.send(tensor, 3, tag=tag)
    if dist.get_rank() == 3:
        dist.recv(tensor, 1, tag=tag)


def test_a_send_and_its_receive_name_each_other() -> None:
    run = observed(send_and_receive, 7)
    sent, received = only(run, 1), only(run, 3)
    assert (sent.name, sent.rank, sent.peer, sent.tag) == ("send", 1, 3, 7)
    assert (received.name, received.rank, received.peer, received.tag) == ("recv", 3, 1, 7)
    for operation in (sent, received):
        assert operation.group == (0, 1, 2, 3)
        assert (operation.dtype, operation.shape, operation.nbytes) == ("float64", (2, 3), 48)
        assert operation.reduce_op is None
    assert run.trace.of_rank(0) == run.trace.of_rank(2) == []


def test_peers_in_a_sub_group_are_global_ranks() -> None:
    def program() -> None:
        group = context().groups["pair"]
        if group is None:
            return
        tensor = torch.zeros(1)
        if dist.get_rank() == 1:
            dist.send(tensor, 3, group=group)
            dist.send(tensor, group=group, group_dst=1)
        else:
            dist.recv(tensor, 1, group=group)
            dist.recv(tensor, group=group, group_src=0)

    run = observed(program)
    assert [(op.peer, op.group) for op in run.trace.of_rank(1)] == [(3, (1, 3))] * 2
    assert [(op.peer, op.group) for op in run.trace.of_rank(3)] == [(1, (1, 3))] * 2


def test_a_receive_from_anybody_has_no_peer() -> None:
    def program() -> int | None:
        tensor = torch.zeros(1)
        if dist.get_rank() == 0:
            return dist.recv(tensor, tag=5)
        if dist.get_rank() == 2:
            dist.send(tensor, 0, tag=5)
        return None

    run = observed(program)
    assert run.results[0] == 2
    assert (only(run, 0).name, only(run, 0).peer, only(run, 0).tag) == ("recv", None, 5)


def all_reduce(group: Any) -> None:
    dist.all_reduce(torch.ones(5, dtype=torch.int32), dist.ReduceOp.MAX, group=group)


def reduce(group: Any) -> None:
    dist.reduce(torch.ones(5), 3, dist.ReduceOp.PRODUCT, group=group)


def broadcast(group: Any) -> None:
    dist.broadcast(torch.ones(5, dtype=torch.bfloat16), 3, group=group)


def gather(group: Any) -> None:
    size = dist.get_world_size(group)
    into = [torch.empty(5) for _ in range(size)] if dist.get_rank() == 3 else None
    dist.gather(torch.ones(5), into, dst=3, group=group)


def scatter(group: Any) -> None:
    size = dist.get_world_size(group)
    parts = [torch.ones(5) for _ in range(size)] if dist.get_rank() == 3 else None
    dist.scatter(torch.empty(5), parts, src=3, group=group)


def all_gather(group: Any) -> None:
    size = dist.get_world_size(group)
    dist.all_gather([torch.empty(5) for _ in range(size)], torch.ones(5), group=group)


def all_gather_into_tensor(group: Any) -> None:
    size = dist.get_world_size(group)
    dist.all_gather_into_tensor(torch.empty(size * 5), torch.ones(5), group=group)


def reduce_scatter(group: Any) -> None:
    size = dist.get_world_size(group)
    dist.reduce_scatter(torch.empty(5), [torch.ones(5) for _ in range(size)], group=group)


def reduce_scatter_tensor(group: Any) -> None:
    size = dist.get_world_size(group)
    dist.reduce_scatter_tensor(torch.empty(5), torch.ones(size * 5), dist.ReduceOp.AVG, group=group)


def all_to_all(group: Any) -> None:
    size = dist.get_world_size(group)
    dist.all_to_all(
        [torch.empty(5) for _ in range(size)], [torch.ones(5) for _ in range(size)], group=group
    )


def all_to_all_single(group: Any) -> None:
    size = dist.get_world_size(group)
    dist.all_to_all_single(torch.empty(size * 5), torch.ones(size * 5), group=group)


def barrier(group: Any) -> None:
    dist.barrier(group=group)


SIZE = {"whole": 4, "pair": 2}


@pytest.mark.parametrize("where", ["whole", "pair"])
@pytest.mark.parametrize(
    ("program", "name", "peer", "reduce_op", "dtype", "elements", "nbytes"),
    [
        (all_reduce, "all_reduce", None, "MAX", "int32", 1, 20),
        (reduce, "reduce", 3, "PRODUCT", "float32", 1, 20),
        (broadcast, "broadcast", 3, None, "bfloat16", 1, 10),
        (gather, "gather", 3, None, "float32", 1, None),
        (scatter, "scatter", 3, None, "float32", 1, None),
        (all_gather, "all_gather", None, None, "float32", 1, "W"),
        (all_gather_into_tensor, "all_gather", None, None, "float32", "W", "W"),
        (reduce_scatter, "reduce_scatter", None, "SUM", "float32", 1, "W"),
        (reduce_scatter_tensor, "reduce_scatter", None, "AVG", "float32", 1, "W"),
        (all_to_all, "all_to_all", None, None, "float32", 1, "W"),
        (all_to_all_single, "all_to_all", None, None, "float32", "W", "W"),
        (barrier, "barrier", None, None, None, 0, 0),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_collective_is_recorded_in_full_on_every_member(
    program: Callable[[Any], None],
    name: str,
    peer: int | None,
    reduce_op: str | None,
    dtype: str | None,
    elements: int | str,
    nbytes: int | str | None,
    where: str,
) -> None:
    find = {"whole": whole, "pair": pair}[where]

    def main() -> None:
        if (group := find()) is not None:
            program(group)

    run = observed(main)
    members = list(range(4)) if where == "whole" else MEMBERS
    size = SIZE[where]
    assert sorted({operation.rank for operation in run.trace.operations}) == members
    for rank in members:
        operation = only(run, rank)
        assert operation.name == name
        assert operation.group == tuple(members)
        assert (operation.peer, operation.tag) == (peer, None)
        assert (operation.reduce_op, operation.dtype) == (reduce_op, dtype)
        assert operation.shape == (() if elements == 0 else (5 * (size if elements == "W" else 1),))
        if nbytes is None:  # the root's other buffer holds everybody's
            assert operation.nbytes == (20 * size if rank == 3 else 20)
        else:
            assert operation.nbytes == (20 * size if nbytes == "W" else nbytes)
        assert operation.file == __file__
        assert operation.waited is not None
        assert operation.completed is not None
        assert operation.dropped is not None
        assert operation.issued <= operation.waited <= operation.completed <= operation.dropped


def test_a_tensor_without_elements_has_no_bytes() -> None:
    run = observed(lambda: dist.all_reduce(torch.empty(0, 3)))
    assert (only(run, 2).shape, only(run, 2).nbytes) == ((0, 3), 0)


def test_new_groups_are_recorded_on_their_members() -> None:
    run = observed(lambda: dist.new_group([2, 0]).__class__ and None)
    for rank in (0, 2):
        operation = only(run, rank)
        assert (operation.name, operation.group) == ("new_group", (0, 2))
        assert operation.file == __file__
        assert operation.completed is not None


def test_operations_of_groups_that_the_program_makes_name_their_ranks() -> None:
    def program() -> None:
        group = dist.new_group([3, 2])
        if dist.get_rank() >= 2:
            dist.broadcast(torch.ones(1), 3, group=group)

    run = observed(program)
    assert [(op.name, op.group, op.peer) for op in run.trace.of_rank(2)] == [
        ("new_group", (2, 3), None),
        ("broadcast", (2, 3), 3),
    ]


# ---------------------------------------------------------------- when


def test_a_handle_that_is_never_waited_for_says_so() -> None:
    def program() -> None:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        assert work is not None
        while not work.is_completed():
            time.sleep(0.001)
        del work

    operation = only(observed(program), 0)
    assert operation.waited is None
    assert operation.completed is not None
    assert operation.dropped is not None


def test_a_handle_that_is_dropped_at_once_was_never_seen_complete() -> None:
    def program() -> None:
        dist.all_reduce(torch.ones(1), async_op=True)
        time.sleep(0.05)

    operation = only(observed(program), 0)
    assert operation.waited is None
    assert operation.completed is None
    assert operation.dropped is not None


def test_a_handle_that_is_kept_is_not_dropped() -> None:
    def program() -> None:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        assert work is not None
        context().state["work"] = work
        work.wait()

    operation = only(observed(program), 0)
    assert operation.waited is not None
    assert operation.completed is not None
    assert operation.dropped is None


def test_waiting_for_what_was_polled_complete_is_recorded_once() -> None:
    def program() -> None:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        assert work is not None
        while not work.is_completed():
            time.sleep(0.001)
        multirank.mark("polled")
        work.wait()
        multirank.mark("waited")
        work.wait()

    run = multirank.run(program, 2, timeout=20)
    operation, (polled, waited) = only(run, 1), [m for m in run.trace.marks if m.rank == 1]
    assert operation.completed is not None
    assert operation.waited is not None
    assert operation.completed <= polled.time <= operation.waited <= waited.time


def test_a_handle_is_waited_for_later_than_it_is_issued() -> None:
    def program() -> None:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        assert work is not None
        time.sleep(0.1)
        work.wait()
        work.wait()

    operation = only(observed(program), 0)
    assert operation.waited is not None
    assert operation.waited - operation.issued >= 0.1


def test_a_future_completes_its_operation() -> None:
    def program() -> list[Any]:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        assert work is not None
        return list(work.get_future().wait())

    run = observed(program)
    assert run.results[0] == [torch.tensor([4.0])]
    assert only(run, 0).completed is not None


def test_an_operation_that_never_completes_is_pending() -> None:
    def program() -> None:
        if dist.get_rank() == 0:
            dist.recv(torch.zeros(1), 1)
        else:
            time.sleep(60)

    run = observed(program, size=4, timeout=0.4, check=False)
    (pending,) = run.trace.pending(0)
    assert (pending.name, pending.peer, pending.completed) == ("recv", 1, None)
    assert pending.waited is not None
    assert run.trace.pending(1) == []


def test_times_are_of_the_clock_that_all_processes_share() -> None:
    before = time.monotonic()
    run = observed(lambda: dist.barrier())
    after = time.monotonic()
    for operation in run.trace.operations:
        assert operation.completed is not None
        assert before < operation.issued < operation.completed < after


def test_handles_that_die_in_a_garbage_collection_are_recorded() -> None:
    def program() -> None:
        gc.set_threshold(1, 1, 1)  # collections inside the recorder too
        for _ in range(300):
            circle: list[Any] = [dist.all_reduce(torch.ones(1), async_op=True)]
            circle.append(circle)
            circle[0].wait()
        del circle
        gc.collect()

    run = observed(program, size=2 + 2, timeout=30)
    for rank in range(4):
        operations = run.trace.of_rank(rank)
        assert len(operations) == 300
        assert all(operation.dropped is not None for operation in operations)
    assert not run.trace.damaged


def test_a_handle_that_is_dropped_while_a_record_is_written_waits_for_it() -> None:
    descriptor = shared_file(TRACE_BYTES, "trace")
    recorder, reader = Recorder(descriptor), TraceReader(0, 1, descriptor, Ledger(1))
    recorder.write("group", 1, "0", [0])
    recorder.write("issue", 2, "barrier", 1, None, None, None, None, [], 0, "", 0)

    def collect_garbage_in_the_middle_of_a_record() -> None:
        with recorder._lock:
            recorder.drop(2)

    thread = threading.Thread(target=collect_garbage_in_the_middle_of_a_record, daemon=True)
    thread.start()
    thread.join(timeout=5)
    assert not thread.is_alive()
    recorder.flush()
    trace = Trace()
    reader.read_into(trace)
    os.close(descriptor)
    assert trace.operations[0].dropped is not None


# ---------------------------------------------------------------- where


def lines(tensor: torch.Tensor) -> None:
    dist.all_reduce(tensor)  # first
    work = dist.all_reduce(tensor, async_op=True)  # second
    assert work is not None
    work.wait()
    helper(tensor)


def helper(tensor: torch.Tensor) -> None:
    dist.broadcast(tensor, 0)  # third


def test_an_operation_names_the_callers_own_file_and_line() -> None:
    operations = observed(lines, torch.ones(1)).trace.of_rank(1)
    assert [operation.line for operation in operations] == [
        line_of(lines, "# first"),
        line_of(lines, "# second"),
        line_of(helper, "# third"),
    ]
    assert {operation.file for operation in operations} == {__file__}


def train() -> None:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()  # here


def test_an_all_reduce_of_ddp_names_the_line_of_backward() -> None:
    operations = observed(train).trace.of_rank(0)
    reduced = [operation for operation in operations if operation.name == "all_reduce"]
    assert reduced
    for operation in reduced:
        assert (operation.file, operation.line) == (__file__, line_of(train, "# here"))


def test_a_functional_collective_names_the_callers_line() -> None:
    def functional() -> None:
        import torch.distributed._functional_collectives as functional_collectives

        functional_collectives.all_reduce(torch.ones(1), "sum", whole())  # here

    operation = only(observed(functional), 0)
    assert (operation.file, operation.line) == (__file__, line_of(functional, "# here"))


def test_an_operation_of_a_source_names_its_file() -> None:
    text = (
        "import torch, torch.distributed as dist\n\ndef f():\n    dist.all_reduce(torch.ones(1))\n"
    )
    run = observed(multirank.Source(text, "f", "case.py"))
    assert (only(run, 0).file, only(run, 0).line) == ("case.py", 4)


def test_operations_of_other_threads_are_recorded() -> None:
    def program() -> None:
        thread = threading.Thread(target=lambda: dist.barrier())
        thread.start()
        thread.join()

    assert only(observed(program), 1).name == "barrier"


# ---------------------------------------------------------------- calls, marks, limits


def test_every_call_has_a_trace_of_its_own() -> None:
    with World(2, groups={"pair": [0, 1]}) as world:
        first = world.call(lambda: dist.all_reduce(torch.ones(1), group=context().groups["pair"]))
        second = world.call(lambda: dist.broadcast(torch.ones(1), 0, context().groups["pair"]))
    assert [op.name for op in first.trace.operations] == ["all_reduce"] * 2
    assert [op.name for op in second.trace.operations] == ["broadcast"] * 2
    assert {op.group for op in second.trace.operations} == {(0, 1)}


def test_the_start_of_a_world_is_not_part_of_a_trace() -> None:
    assert observed(lambda: None).trace.operations == []


def test_operations_are_in_order_within_a_rank() -> None:
    def program() -> None:
        for _ in range(20):
            dist.barrier()

    for rank in range(4):
        issued = [op.issued for op in observed(program).trace.of_rank(rank)][:20]
        assert issued == sorted(issued)
        break


def test_marks_spans_and_declared_work_are_recorded_in_order() -> None:
    def program() -> None:
        multirank.mark("start")
        with multirank.span("forward"):
            multirank.compute("matmul", 0.25)
        multirank.mark("end")

    marks = [mark for mark in observed(program).trace.marks if mark.rank == 2]
    assert [(mark.kind, mark.label, mark.seconds) for mark in marks] == [
        ("mark", "start", 0.0),
        ("begin", "forward", 0.0),
        ("compute", "matmul", 0.25),
        ("end", "forward", 0.0),
        ("mark", "end", 0.0),
    ]
    times = [mark.time for mark in marks]
    assert times == sorted(times)


def test_a_span_ends_when_its_block_raises() -> None:
    def program() -> None:
        with multirank.span("block"):
            raise ValueError

    run = observed(program, check=False)
    assert [mark.kind for mark in run.trace.marks if mark.rank == 0] == ["begin", "end"]


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_impossible_work_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds must be finite"):
        multirank.compute("matmul", seconds)


def test_marks_do_nothing_outside_a_rank() -> None:
    multirank.mark("nobody hears")
    multirank.compute("nothing", 1)
    with multirank.span("nowhere"):
        pass


def test_a_mark_of_any_length_and_any_text_is_no_damage() -> None:
    def program() -> None:
        multirank.mark("x" * 1_000_000)
        multirank.mark('"],\n\x00 \ud800')

    run = multirank.run(program, 1, process_group=False)
    assert [len(mark.label) for mark in run.trace.marks] == [1000, 7]
    assert not run.trace.damaged


def test_the_trace_survives_a_crash() -> None:
    def program() -> None:
        dist.all_reduce(torch.ones(1))
        multirank.mark("last words")
        if dist.get_rank() == 2:
            os.abort()
        dist.barrier()

    run = observed(program, check=False)
    assert [op.name for op in run.trace.of_rank(2)] == ["all_reduce"]
    assert [mark.label for mark in run.trace.marks if mark.rank == 2] == ["last words"]
    assert [op.name for op in run.trace.pending(0)] == ["barrier"]


@pytest.mark.slow
def test_a_rank_that_records_too_much_is_cut_and_says_so() -> None:
    def program() -> None:
        for number in range(MOST_RECORDS + 10 if multirank.context().rank else 10):
            multirank.mark(str(number))

    run = multirank.run(program, 2, process_group=False)
    assert run.ok
    assert run.trace.truncated
    assert not run.trace.damaged
    assert len([mark for mark in run.trace.marks if mark.rank == 1]) == MOST_RECORDS - 1
    assert len([mark for mark in run.trace.marks if mark.rank == 0]) == 10


def test_a_child_that_the_program_forks_leaves_the_trace_alone() -> None:
    def program() -> None:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        assert work is not None
        work.wait()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(reading, 1)
            multirank.mark("from the child")
            del work
            gc.collect()
            os._exit(0)
        dist.barrier()
        os.write(writing, b"!")
        os.waitpid(child, 0)

    run = observed(program)
    assert not run.trace.damaged
    assert run.trace.marks == []
    assert [op.name for op in run.trace.of_rank(0)] == ["all_reduce", "barrier"]
