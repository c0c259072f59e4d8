"""The proof itself, on states that are written down; and when it is believed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from multirank import Operation
from multirank.proving.ledger import Ledger, Stuck
from multirank.proving.prover import Prover
from multirank.proving.verdict import deadlock, mismatch

WORLD = (0, 1, 2)
MAIN = 7  # a thread


class Book:
    """A ledger into which operations are entered in short."""

    def __init__(self, world_size: int = 3) -> None:
        self.ledger = Ledger(world_size)
        self._group = tuple(range(world_size))
        self._ids = itertools.count(1)

    def begins(self, rank: int, name: str, peer: int | None = None, **other: Any) -> Operation:
        described: dict[str, Any] = {
            "group": self._group,
            "tag": 0 if name in ("send", "recv") else None,
            "reduce_op": None,
            "dtype": "float32",
            "shape": (100,),
            "nbytes": 400,
            "issued": 0.0,
            "file": "/home/me/train.py",
            "line": 10 * rank,
            "group_name": "0",
        }
        operation = Operation(rank, next(self._ids), name, peer=peer, **(described | other))
        self.ledger.issued(operation)
        return operation

    def waits(self, rank: int, name: str, peer: int | None = None, **other: Any) -> Operation:
        operation = self.begins(rank, name, peer, **other)
        self.ledger.waits(operation, MAIN, 1)
        return operation

    def over(self, *ranks: int) -> None:
        for rank in ranks:
            self.ledger.over(rank, "finished")

    @property
    def doomed(self) -> list[int]:
        return [one.operation.rank for one in self.ledger.doomed()]


@pytest.fixture
def book() -> Book:
    return Book()


# ---------------------------------------------------------------- messages


def test_a_message_that_is_on_its_way_dooms_nobody(book: Book) -> None:
    book.waits(0, "recv", 1)
    book.waits(1, "send", 0)
    book.over(2)
    assert book.doomed == []


def test_who_waits_for_a_rank_that_runs_is_not_doomed(book: Book) -> None:
    book.waits(0, "recv", 1)
    assert book.doomed == []
    book.over(1)
    assert book.doomed == [0]


def test_a_chain_that_ends_at_a_rank_that_runs_is_not_doomed(book: Book) -> None:
    book.waits(0, "recv", 1)
    book.waits(1, "recv", 2)
    assert book.doomed == []
    book.over(2)
    assert book.doomed == [0, 1]


def test_messages_are_counted_by_link_and_tag(book: Book) -> None:
    book.begins(1, "send", 0, tag=1)
    book.begins(1, "send", 0)
    book.begins(0, "recv", 1)
    book.waits(0, "recv", 1)
    book.over(1)
    assert book.doomed == [0]
    assert "it sends with tag 1 (train.py:10), and this is tag 0" in deadlock(
        book.ledger.doomed()
    ).story.replace("\n      ", " ")


def test_a_receive_from_anybody_may_be_served_though_more_receives_than_sends_were_begun(
    book: Book,
) -> None:
    book.begins(0, "recv", 2)
    book.begins(0, "recv", 2)
    book.waits(0, "recv")
    book.begins(1, "send", 0)
    book.over(1, 2)
    assert book.doomed == []


def test_a_receive_from_anybody_is_not_served_by_what_another_receive_has_taken(
    book: Book,
) -> None:
    taken = book.begins(0, "recv", 1)
    book.begins(1, "send", 0)
    taken.completed = 1.0
    book.waits(0, "recv")
    book.over(1, 2)
    assert book.doomed == [0]


def test_nothing_is_said_of_messages_that_anybody_may_have_taken(book: Book) -> None:
    book.begins(0, "recv")
    book.begins(1, "send", 0)
    book.waits(0, "recv", 1)
    book.over(1, 2)
    assert book.doomed == []
    book = Book()
    book.begins(0, "recv")
    book.waits(1, "send", 0)
    book.over(0, 2)
    assert book.doomed == []


def test_a_message_whose_handle_was_dropped_never_comes(book: Book) -> None:
    sent = book.begins(1, "send", 0)
    book.waits(0, "recv", 1)
    assert book.doomed == []
    sent.dropped = 1.0
    assert book.doomed == [0]  # though rank 1 runs
    sent.completed = 0.5
    assert book.doomed == []


# ---------------------------------------------------------------- collectives


def test_the_calls_of_a_collective_are_counted(book: Book) -> None:
    for rank in WORLD:
        book.begins(rank, "barrier")
    book.waits(0, "barrier")
    book.waits(1, "barrier")
    book.over(2)
    assert book.doomed == [0, 1]


def test_groups_are_counted_apart(book: Book) -> None:
    for rank in (0, 1):
        book.begins(rank, "all_reduce", group=(0, 1), group_name="1")
    book.waits(0, "all_reduce")
    book.over(1, 2)
    assert book.doomed == [0]


def test_a_contributor_to_a_gather_needs_its_root_only(book: Book) -> None:
    book.waits(1, "gather", 0)
    book.over(2)
    assert book.doomed == []
    book.over(0)
    assert book.doomed == [1]


def test_a_collective_without_elements_dooms_nobody(book: Book) -> None:
    book.waits(0, "all_reduce", nbytes=0, shape=(0,))
    book.over(1, 2)
    assert book.doomed == []


# ---------------------------------------------------------------- ranks


def test_a_rank_with_a_thread_that_does_not_wait_is_not_doomed(book: Book) -> None:
    book.over(1, 2)
    first, second = book.begins(0, "recv", 1), book.begins(0, "recv", 2)
    book.ledger.waits(first, MAIN, 2)
    assert book.doomed == []
    book.ledger.waits(second, MAIN + 1, 2)
    assert book.doomed == [0, 0]


def test_one_thread_that_waits_for_two_operations_is_one(book: Book) -> None:
    book.over(1, 2)
    for _ in range(2):
        book.ledger.waits(book.begins(0, "all_reduce"), MAIN, 2)
    assert book.doomed == []


def test_a_rank_is_doomed_only_if_nothing_that_it_waits_for_can_come(book: Book) -> None:
    book.over(1)
    book.ledger.waits(book.begins(0, "recv", 1), MAIN, 2)
    served = book.begins(0, "recv", 2)
    book.ledger.waits(served, MAIN + 1, 2)
    assert book.doomed == []
    book.over(2)
    assert book.doomed == [0, 0]


def test_an_operation_that_raised_holds_nobody(book: Book) -> None:
    operation = book.waits(0, "recv", 1)
    book.over(1, 2)
    book.ledger.left(operation)
    assert book.doomed == []


def test_who_may_still_act_unseen_is_not_over(book: Book) -> None:
    book.waits(0, "recv", 1)
    book.ledger.unsure(1)
    book.over(1, 2)
    assert book.doomed == []
    book.ledger.begin_call()
    book.waits(0, "recv", 1)
    book.over(1, 2)
    assert book.doomed == [0]


def test_nothing_is_said_of_a_rank_whose_record_ends(book: Book) -> None:
    book.waits(0, "recv", 1)
    book.ledger.lost(0)
    book.over(1, 2)
    assert book.doomed == []
    book.ledger.begin_call()
    book.waits(1, "recv", 0)
    book.over(0, 2)
    assert book.doomed == []
    book.begins(0, "barrier")
    book.begins(1, "all_reduce")
    assert book.ledger.mismatch is None


def test_a_new_call_forgets_who_waited_and_keeps_the_count(book: Book) -> None:
    book.waits(0, "recv", 1)
    book.over(1, 2)
    book.ledger.begin_call()
    assert book.doomed == []
    book.begins(1, "send", 0)  # takes the place of the one that waits
    book.waits(0, "recv", 1)
    book.over(1, 2)
    assert book.doomed == [0]


def test_a_destroyed_group_is_left_for_good(book: Book) -> None:
    operation = book.waits(0, "all_reduce")
    destroyed = book.begins(1, "destroy_process_group")
    assert book.doomed == [0]  # though rank 1 runs
    assert list(book.ledger.deserted()) == [(operation, destroyed)]
    assert "rank 1 has destroyed the group (train.py:10)" in deadlock(book.ledger.doomed()).story


# ---------------------------------------------------------------- mismatch


def test_partners_that_differ_are_a_mismatch_and_all_are_told(book: Book) -> None:
    book.begins(0, "all_reduce")
    book.begins(1, "all_reduce", nbytes=8)
    book.begins(2, "all_reduce")
    found = book.ledger.mismatch
    assert found is not None
    assert (found.what, [one.rank for one in found.operations]) == ("size", [0, 1, 2])
    assert "ranks 0 and 2 call all_reduce" not in mismatch(found).story  # on different lines


def test_only_the_first_mismatch_is_told(book: Book) -> None:
    for rank, name in ((0, "barrier"), (1, "all_reduce"), (0, "broadcast"), (1, "gather")):
        book.begins(rank, name, 0 if name in ("broadcast", "gather") else None)
    found = book.ledger.mismatch
    assert found is not None
    assert [one.name for one in found.operations] == ["barrier", "all_reduce"]


# ---------------------------------------------------------------- belief


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def looks(book: Book, clock: Clock, changed: bool = False) -> list[float]:
    """After how many seconds of looks every 0.03 s there is a verdict."""
    prover = Prover(book.ledger, clock)
    began = clock.now
    while clock.now < began + 2:
        clock.now += 0.03
        if prover.look(changed) is not None:
            return [round(clock.now - began, 2)]
    return []


def test_a_deadlock_is_believed_at_second_sight(book: Book) -> None:
    book.waits(0, "recv", 1)
    book.over(1, 2)
    assert looks(book, Clock()) == [0.06]


def test_while_others_are_under_way_a_deadlock_is_believed_later(book: Book) -> None:
    book.waits(0, "recv", 1)
    book.over(1)
    (seconds,) = looks(book, Clock())
    assert 0.3 <= seconds < 0.5
    (seconds,) = looks(book, Clock(), changed=True)
    assert 0.3 <= seconds < 0.5


def test_a_withdrawn_message_is_believed_later(book: Book) -> None:
    book.begins(1, "send", 0).dropped = 1.0
    book.waits(0, "recv", 1)
    book.over(1, 2)
    (seconds,) = looks(book, Clock())
    assert 0.3 <= seconds < 0.5


def test_a_suspicion_that_changes_begins_anew(book: Book) -> None:
    clock = Clock()
    prover = Prover(book.ledger, clock)
    operation = book.waits(0, "recv", 1)
    book.over(1, 2)
    assert prover.look(True) is None
    book.ledger.completed(operation)
    book.waits(0, "recv", 2)
    clock.now += 0.03
    assert prover.look(True) is None
    clock.now += 0.03
    assert prover.look(False) is not None


def test_records_that_pour_in_are_read_four_times_a_second_and_quiet_ones_at_once() -> None:
    clock = Clock()
    prover = Prover(Ledger(1), clock)
    reads = 0
    for recorded in range(100):
        clock.now += 0.03
        reads += prover.due(recorded)
    assert 10 <= reads <= 13  # in 3 seconds
    clock.now += 0.03
    assert prover.due(99)
    clock.now += 0.01
    assert not prover.due(99)  # it is no time yet


def test_a_stuck_rank_is_told_once_for_each_of_its_lines() -> None:
    book = Book(2)
    book.over(1)
    for thread in (1, 2):
        book.ledger.waits(book.begins(0, "recv", 1, tag=thread), thread, 2)
    stuck: list[Stuck] = book.ledger.doomed()
    verdict = deadlock(stuck)
    assert verdict.ranks == (0,)
    assert verdict.story.startswith("Deadlock: rank 0 can never go on.")
