"""Checks of problem barrier."""

from __future__ import annotations

from autograder.failure import CheckFailed
from autograder.judge import Answer, Case, Judge
from autograder.problem import problem
from autograder.scenario import ALLOWED

LATE_BY = 0.05  # seconds


@problem("barrier", share="3/5")
def test_waits_for_the_last(judge: Judge) -> None:
    """No rank leaves before the last has entered, whoever comes late; on 2, 3 and 4 ranks."""
    for world_size in (2, 4, 3):
        _require_barrier(judge, Case("collectives", "barrier", world_size, allowed=ALLOWED))


@problem("barrier", share="1/4")
def test_sub_group(judge: Judge) -> None:
    """In a sub-group, and only there."""
    case = Case("collectives", "barrier", 4, members=(0, 2, 3), allowed=ALLOWED)
    _require_barrier(judge, case)


@problem("barrier", share="3/20", kind="edges")
def test_alone_and_often(judge: Judge) -> None:
    """On one rank, and several times in a row on five."""
    for world_size in (1, 5):
        _require_barrier(judge, Case("collectives", "barrier", world_size, allowed=ALLOWED))


def _require_barrier(judge: Judge, case: Case) -> None:
    """In each round another member comes late, and nobody may leave before."""
    members = case.members or tuple(range(case.world_size))
    judge.facts["world size"] = str(case.world_size)
    inputs = [{"late_by": LATE_BY} if rank in members else None for rank in range(case.world_size)]
    (answer,) = judge.run(case, [inputs])
    for turn, late in enumerate(members):
        entered, left = (
            {rank: _time(answer, rank, what, turn) for rank in members}
            for what in ("entered", "left")
        )
        last = max(entered.values())
        early = [rank for rank in members if left[rank] < last]
        if early:
            raise CheckFailed(
                f"of the group {list(members)}, rank {early[0]} left the barrier before the last "
                f"rank, {late}, had entered it"
            )
    _require_messages(answer, members)


def _require_messages(answer: Answer, members: tuple[int, ...]) -> None:
    """In each barrier everybody hears from somebody and tells somebody: times can be made up.

    There was one barrier for each member, and one before.
    """
    for rank in members if len(members) > 1 else ():
        names = [one.name for one in answer.trace.operations if one.rank == rank]
        for name, what in (("recv", "heard from nobody"), ("send", "told nobody")):
            if names.count(name) <= len(members):
                raise CheckFailed(
                    f"of the group {list(members)}, rank {rank} {what} in some barrier, so it, or "
                    "another, cannot know when all have entered"
                )


def _time(answer: Answer, rank: int, what: str, turn: int) -> float:
    times = answer.plain(rank, what)
    if len(times) <= turn or not isinstance(time := times[turn], float):
        raise CheckFailed(f"rank {rank} gave no answer")
    return time
