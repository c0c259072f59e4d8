"""Programs that hang, or whose operations do not fit each other: each a mistake that people make.

A comment `# waits: 0, 2` says which ranks a verdict must name, and on which line. `HANGS` and
`MISFITS` say what else it must tell.
"""

from __future__ import annotations

import inspect
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from multirank import context

GROUPS = {"odd": [1, 3], "most": [3, 0, 2]}


def x(elements: int = 4) -> torch.Tensor:
    return torch.ones(elements)


def me() -> tuple[int, int]:
    return dist.get_rank(), dist.get_world_size()


def every() -> list[torch.Tensor]:
    return [x() for _ in range(dist.get_world_size())]


# ---------------------------------------------------------------- sends and receives


def a_ring_of_receives() -> None:
    r, n = me()
    dist.recv(x(), (r - 1) % n)  # waits: 0, 1, 2
    dist.send(x(), (r + 1) % n)


def two_that_receive_first() -> None:
    r, _n = me()
    dist.recv(x(), 1 - r)  # waits: 0, 1
    dist.send(x(), 1 - r)


def two_that_send_first() -> None:
    r, _n = me()
    dist.send(x(), 1 - r)  # waits: 0, 1
    dist.recv(x(), 1 - r)


def a_ring_of_four_sends() -> None:
    r, n = me()
    dist.send(x(), (r + 1) % n)  # waits: 0, 1, 2, 3
    dist.recv(x(), (r - 1) % n)


def a_large_ring_of_sends() -> None:
    r, n = me()
    dist.send(x(1 << 20), (r + 1) % n)  # waits: 0, 1, 2
    dist.recv(x(1 << 20), (r - 1) % n)


def receives_in_a_sub_group() -> None:
    if group := context().groups["odd"]:
        dist.recv(x(), 4 - dist.get_rank(), group=group)  # waits: 1, 3
        dist.send(x(), 4 - dist.get_rank(), group=group)


def sends_in_a_sub_group() -> None:
    after = {0: 2, 2: 3, 3: 0}
    before = {2: 0, 3: 2, 0: 3}
    if group := context().groups["most"]:
        dist.send(x(), after[dist.get_rank()], group=group)  # waits: 0, 2, 3
        dist.recv(x(), before[dist.get_rank()], group=group)


def a_cycle_of_a_send_and_receives() -> None:
    r, _ = me()
    if r == 0:
        dist.send(x(), 1)  # waits: 0
        dist.recv(x(), 2)
    if r == 1:
        dist.recv(x(), 2)  # waits: 1
        dist.recv(x(), 0)
    if r == 2:
        dist.recv(x(), 0)  # waits: 2
        dist.send(x(), 1)


def two_messages_in_different_order() -> None:
    if me()[0] == 0:
        dist.send(x(), 1, tag=1)  # waits: 0
        dist.send(x(), 1, tag=2)
    else:
        dist.recv(x(), 0, tag=2)  # waits: 1
        dist.recv(x(), 0, tag=1)


def a_wrong_tag() -> None:
    if me()[0] == 0:
        dist.send(x(), 1, tag=1)  # waits: 0
    else:
        dist.recv(x(), 0, tag=2)  # waits: 1


def a_wrong_peer() -> None:
    r, _ = me()
    if r == 0:
        dist.send(x(), 2)  # waits: 0
    if r == 1:
        dist.recv(x(), 0)  # waits: 1


def the_other_group() -> None:
    group = context().groups["odd"]
    if me()[0] == 1:
        dist.send(x(), 3)  # waits: 1
    if me()[0] == 3:
        dist.recv(x(), 1, group=group)  # waits: 3


def one_send_too_many() -> None:
    for _ in range(3 if me()[0] == 0 else 2):
        if me()[0] == 0:
            dist.send(x(), 1)  # waits: 0
        else:
            dist.recv(x(), 0)


def one_receive_too_many() -> None:
    for _ in range(3 if me()[0] == 1 else 2):
        if me()[0] == 0:
            dist.send(x(), 1)
        else:
            dist.recv(x(), 0)  # waits: 1


def a_receive_that_is_waited_for_before_the_send() -> None:
    r, n = me()
    handle = dist.irecv(x(), (r - 1) % n)  # waits: 0, 1
    assert handle is not None
    dist.barrier()
    handle.wait()
    dist.send(x(), (r + 1) % n)


def a_dropped_isend() -> None:
    if me()[0] == 0:
        dist.isend(x(), 1)
    else:
        time.sleep(0.1)
        dist.recv(x(), 0)  # waits: 1


def a_dropped_isend_while_its_sender_goes_on() -> None:
    if me()[0] == 0:
        dist.isend(x(), 1)
        dist.barrier()  # waits: 0
    else:
        time.sleep(0.1)
        dist.recv(x(), 0)  # waits: 1
        dist.barrier()


def a_dropped_irecv() -> None:
    if me()[0] == 0:
        dist.send(x(), 1)
    else:
        dist.irecv(x(), 0)  # takes the only message
        dist.recv(x(), 0)  # waits: 1


def from_anybody_while_all_others_wait() -> None:
    if me()[0] == 0:
        dist.recv(x())  # waits: 0
    else:
        dist.barrier()  # waits: 1, 2


def from_anybody_when_all_others_have_finished() -> None:
    if me()[0] == 0:
        dist.recv(x())  # waits: 0


def from_anybody_once_too_often() -> None:
    r, n = me()
    if r == 0:
        for _ in range(n):
            dist.recv(x())  # waits: 0
    else:
        dist.send(x(), 0)


def a_batch_without_its_receive() -> None:
    r, n = me()
    batch = [dist.P2POp(dist.isend, x(), (r + 1) % n)]
    if r != 1:
        batch.append(dist.P2POp(dist.irecv, x(), (r - 1) % n))
    for work in dist.batch_isend_irecv(batch):  # waits: 0
        work.wait()


def a_batch_in_which_everybody_only_sends() -> None:
    r, n = me()
    batch = [dist.P2POp(dist.isend, x(), (r + 1) % n)]
    for work in dist.batch_isend_irecv(batch):  # waits: 0, 1, 2
        work.wait()


def one_f_one_b_with_one_warm_up_too_few() -> None:
    """The last stage asks for the next forward before it sends a backward."""
    warm_up, batches = 0, 4  # right: one warm-up
    if me()[0] == 0:
        for _ in range(warm_up):
            dist.send(x(), 1)
        for _ in range(batches):
            forward = dist.isend(x(), 1)
            dist.recv(x(), 1)  # waits: 0
            assert forward is not None
            forward.wait()
    else:
        dist.recv(x(), 0)
        for _ in range(batches):
            dist.recv(x(), 0)  # waits: 1
            dist.send(x(), 0)


def two_threads_that_both_wait() -> None:
    if me()[0] == 0:

        def other() -> None:
            dist.recv(x(), 1, tag=1)  # waits: 0

        thread = threading.Thread(target=other)
        thread.start()
        dist.recv(x(), 1, tag=2)  # waits: 0
        thread.join()


# ---------------------------------------------------------------- collectives


def missing(collective: Callable[[], Any], rank: int) -> Callable[[], None]:
    """A program in which one rank does not come to a collective."""

    def program() -> None:
        if me()[0] != rank:
            collective()

    program.__name__ = f"{collective.__name__}_without_rank_{rank}"
    return program


def all_reduce() -> None:
    dist.all_reduce(x())  # here


def broadcast() -> None:
    dist.broadcast(x(), 0)  # here


def reduce() -> None:
    dist.reduce(x(), 0)  # here


def gather() -> None:
    dist.gather(x(), every() if me()[0] == 0 else None, dst=0)  # here


def scatter() -> None:
    dist.scatter(x(), every() if me()[0] == 0 else None, src=0)  # here


def all_gather() -> None:
    dist.all_gather(every(), x())  # here


def all_gather_into_tensor() -> None:
    dist.all_gather_into_tensor(x(12), x())  # here


def reduce_scatter() -> None:
    dist.reduce_scatter_tensor(x(), x(12))  # here


def all_to_all() -> None:
    dist.all_to_all_single(x(12), x(12))  # here


def barrier() -> None:
    dist.barrier()  # here


def monitored_barrier() -> None:
    dist.monitored_barrier()  # here


def objects() -> None:
    dist.all_gather_object([None] * dist.get_world_size(), {"rank": me()[0]})  # here


def asynchronous() -> None:
    work = dist.all_reduce(x(), async_op=True)  # here
    assert work is not None
    work.wait()


COLLECTIVES = (
    all_reduce,
    broadcast,
    reduce,
    gather,
    scatter,
    all_gather,
    all_gather_into_tensor,
    reduce_scatter,
    all_to_all,
    barrier,
    monitored_barrier,
    objects,
    asynchronous,
)


def uneven_batches() -> None:
    for _ in range(2 if me()[0] == 1 else 3):
        dist.all_reduce(x())  # waits: 0, 2


def the_whole_group_instead_of_the_sub_group() -> None:
    if context().groups["odd"]:
        dist.all_reduce(x())  # waits: 1, 3


def two_groups_in_different_order() -> None:
    first, second = (dist.new_group(list(range(dist.get_world_size()))) for _ in range(2))
    if me()[0] == 0:
        dist.all_reduce(x(), group=first)  # waits: 0
        dist.all_reduce(x(), group=second)
    else:
        dist.all_reduce(x(), group=second)  # waits: 1
        dist.all_reduce(x(), group=first)


def a_collective_against_a_receive() -> None:
    if me()[0] == 0:
        dist.barrier()  # waits: 0
        dist.send(x(), 1)
    else:
        dist.recv(x(), 0)  # waits: 1
        dist.barrier()


def a_root_that_sends_before_it_scatters() -> None:
    if me()[0] == 0:
        dist.send(x(), 1)  # waits: 0
        dist.scatter(x(), every(), src=0)
    else:
        dist.scatter(x(), None, src=0)  # waits: 1
        dist.recv(x(), 0)


def a_collective_in_one_branch() -> None:
    if me()[0] == 0:
        dist.broadcast(x(), 0)  # waits: 0
    dist.send(x(), 0) if me()[0] == 1 else None  # waits: 1


def an_unused_parameter_on_one_rank() -> None:
    model = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])

    class Branch(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = model

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            for layer in self.layers if me()[0] == 0 else self.layers[1:]:
                value = layer(value)
            return value

    parallel = DistributedDataParallel(Branch(), bucket_cap_mb=0.0001)
    parallel(torch.ones(2, 4)).sum().backward()  # waits: 0


# ---------------------------------------------------------------- groups


def sub_groups_in_different_order() -> None:
    groups = [[0, 1], [1, 2]]
    if me()[0] == 1:
        groups.reverse()
    for ranks in groups:
        dist.new_group(ranks)  # waits: 0, 1


def a_sub_group_that_one_member_does_not_make() -> None:
    if me()[0] != 1:
        dist.new_group([0, 1])  # waits: 0


def a_sub_group_that_an_outsider_does_not_make() -> None:
    if me()[0] != 2:
        dist.new_group([0, 1])  # not named: they have left it
    dist.new_group([0, 2])


def a_start_without_one_rank() -> None:
    if context().rank != 1:
        dist.init_process_group("gloo")  # waits: 0, 2


@dataclass(frozen=True)
class Hang:
    """A program that hangs, and what its verdict must say."""

    program: Callable[[], Any]
    size: int
    cause: str = ""
    process_group: bool = True


HANGS = (
    Hang(a_ring_of_receives, 3, "everybody receives before anybody sends"),
    Hang(two_that_receive_first, 2, "everybody receives before anybody sends"),
    Hang(two_that_send_first, 2, "everybody sends before anybody receives"),
    Hang(a_ring_of_four_sends, 4, "everybody sends before anybody receives"),
    Hang(a_large_ring_of_sends, 3, "everybody sends before anybody receives"),
    Hang(receives_in_a_sub_group, 4, "everybody receives before anybody sends"),
    Hang(sends_in_a_sub_group, 4, "everybody sends before anybody receives"),
    Hang(a_cycle_of_a_send_and_receives, 3, "in different orders"),
    Hang(two_messages_in_different_order, 2, "tags"),
    Hang(a_wrong_tag, 2, "tags"),
    Hang(a_wrong_peer, 3),
    Hang(the_other_group, 4, "a send in one group and its recv in another"),
    Hang(one_send_too_many, 2, "loop"),
    Hang(one_receive_too_many, 2, "loop"),
    Hang(a_receive_that_is_waited_for_before_the_send, 2, "everybody receives before"),
    Hang(a_dropped_isend, 2, "the handle that isend returns must be kept"),
    Hang(a_dropped_isend_while_its_sender_goes_on, 2, "the handle that isend returns must be kept"),
    Hang(a_dropped_irecv, 2, "irecv"),
    Hang(from_anybody_while_all_others_wait, 3, "more receives from any rank than sends"),
    Hang(from_anybody_when_all_others_have_finished, 3, "more receives from any rank than sends"),
    Hang(from_anybody_once_too_often, 3, "more receives from any rank than sends"),
    Hang(a_batch_without_its_receive, 3, "loop|branch"),
    Hang(a_batch_in_which_everybody_only_sends, 3, "everybody sends before anybody receives"),
    Hang(one_f_one_b_with_one_warm_up_too_few, 2, "everybody receives before anybody sends"),
    Hang(two_threads_that_both_wait, 2, "loop|branch"),
    Hang(uneven_batches, 3, "branch on the rank|loop"),
    Hang(the_whole_group_instead_of_the_sub_group, 4, "group="),
    Hang(two_groups_in_different_order, 2, "groups in different orders"),
    Hang(a_collective_against_a_receive, 2, "one side is in a collective"),
    Hang(a_root_that_sends_before_it_scatters, 2, "one side is in a collective"),
    Hang(a_collective_in_one_branch, 2, "one side is in a collective"),
    Hang(an_unused_parameter_on_one_rank, 2, "branch on the rank"),
    Hang(a_sub_group_that_one_member_does_not_make, 3, "every rank must call new_group"),
    Hang(a_start_without_one_rank, 3, "init_process_group", process_group=False),
)


# ---------------------------------------------------------------- what does not fit


def another_operation() -> None:
    if me()[0] == 1:
        dist.barrier()  # waits: 1
    else:
        dist.all_reduce(x())  # waits: 0, 2


def another_root() -> None:
    dist.broadcast(x(), 1 if me()[0] == 2 else 0)  # waits: 0, 1, 2


def another_size() -> None:
    dist.all_reduce(x(5 if me()[0] == 2 else 8))  # waits: 0, 1, 2


def another_size_of_a_gather() -> None:
    r, _n = me()
    dist.gather(x(3 if r == 2 else 4), every() if r == 0 else None, dst=0)  # waits: 0, 1, 2


def another_size_of_a_scatter() -> None:
    r, _n = me()
    dist.scatter(x(3 if r == 2 else 4), every() if r == 0 else None, src=0)  # waits: 0, 1, 2


def another_dtype() -> None:
    dist.all_reduce(x() if me()[0] else x().int())  # waits: 0, 1, 2


def another_reduction() -> None:
    dist.all_reduce(x(), dist.ReduceOp.MAX if me()[0] else dist.ReduceOp.SUM)  # waits: 0, 1, 2


def another_order() -> None:
    if me()[0] == 0:
        dist.all_reduce(x())  # waits: 0
        dist.broadcast(x(), 0)
    else:
        dist.broadcast(x(), 0)  # waits: 1, 2
        dist.all_reduce(x())


def another_barrier() -> None:
    if me()[0] == 0:
        dist.monitored_barrier(timeout=timedelta(seconds=30))  # waits: 0
    else:
        dist.barrier()  # waits: 1, 2


def a_longer_message() -> None:
    if me()[0] == 0:
        dist.send(x(8), 1)  # waits: 0
    elif me()[0] == 1:
        dist.recv(x(4), 0)  # waits: 1


def a_shorter_message() -> None:
    if me()[0] == 0:
        dist.send(x(4), 1)  # waits: 0
    elif me()[0] == 1:
        dist.recv(x(8), 0)  # waits: 1


def a_message_of_another_dtype() -> None:
    if me()[0] == 0:
        dist.send(x(8).int(), 1)  # waits: 0
    elif me()[0] == 1:
        dist.recv(x(8), 0)  # waits: 1


def a_message_of_another_dtype_in_a_sub_group() -> None:
    group = context().groups["most"]
    if me()[0] == 3:
        dist.send(x(8).double(), 0, group=group)  # waits: 3
    elif me()[0] == 0:
        dist.recv(x(8), 3, group=group)  # waits: 0


@dataclass(frozen=True)
class Misfit:
    """A program whose operations do not fit each other; `what` is said to differ."""

    program: Callable[[], Any]
    what: str
    size: int = 3


MISFITS = (
    Misfit(another_operation, "operation"),
    Misfit(another_root, "root"),
    Misfit(another_size, "size"),
    Misfit(another_size_of_a_gather, "size"),
    Misfit(another_size_of_a_scatter, "size"),
    Misfit(another_dtype, "dtype"),
    Misfit(another_reduction, "reduce operation"),
    Misfit(another_order, "operation"),
    Misfit(another_barrier, "operation"),
    Misfit(a_longer_message, "size"),
    Misfit(a_shorter_message, "size"),
    Misfit(a_message_of_another_dtype, "dtype"),
    Misfit(a_message_of_another_dtype_in_a_sub_group, "dtype", 4),
    Misfit(sub_groups_in_different_order, "group"),
    Misfit(a_sub_group_that_an_outsider_does_not_make, "group"),
)


def named(program: Callable[..., Any]) -> dict[int, set[int]]:
    """The ranks that a verdict on the program must name, with their lines."""
    lines, first = inspect.getsourcelines(program)
    found: dict[int, set[int]] = {}
    for number, line in enumerate(lines, first):
        if comment := re.search(r"# waits: ([\d, ]+)$", line.rstrip()):
            for rank in comment[1].split(","):
                found.setdefault(int(rank), set()).add(number)
    return found


def line_of(program: Callable[..., Any], text: str = "# here") -> int:
    """The number of the program's line that holds `text`."""
    lines, first = inspect.getsourcelines(program)
    (place,) = [place for place, line in enumerate(lines) if text in line]
    return first + place
