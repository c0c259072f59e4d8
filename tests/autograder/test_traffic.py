"""The record of what was communicated, beside what the kernel counts and what it takes at least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from autograder import traffic
from autograder.confine.counters import Count
from autograder.confine.modes import Isolation, choose
from autograder.inputs import Seed, known_secret
from autograder.judge import Case, Judge, tensor
from autograder.scenario import ALLOWED
from multirank import Operation, Trace

from .submissions import graded, patched, reference_files, small_manifest

MIB = 1 << 20


def message(rank: int, name: str, peer: int, nbytes: int) -> Operation:
    return Operation(
        rank, 0, name, (0, 1), peer, 0, None, "float32", (nbytes // 4,), nbytes, 0.0, "m.py", 1
    )


def one_message(nbytes: int) -> Trace:
    """Rank 0 sends, rank 1 receives."""
    return Trace([message(0, "send", 1, nbytes), message(1, "recv", 0, nbytes)])


@pytest.mark.parametrize("moved", [0.96, 1.0, 1.04])
def test_a_record_within_5_percent_of_the_kernels_count_agrees(moved: float) -> None:
    counted = [Count(int(moved * MIB), 48), Count(48, int(moved * MIB))]
    assert traffic.disagreements(one_message(MIB), counted) == []


@pytest.mark.parametrize("moved", [0.0, 0.94, 1.06, 3.0])
def test_a_record_that_is_further_off_is_odd_and_both_numbers_are_told(moved: float) -> None:
    counted = [Count(MIB, 0), Count(0, int(moved * MIB))]
    (odd,) = traffic.disagreements(one_message(MIB), counted)
    assert "rank 1 has received" in odd
    assert "by its own record 1 MiB in 1 messages" in odd


def test_what_gloo_adds_to_many_small_messages_is_not_odd() -> None:
    trace = Trace([one for _ in range(1000) for one in one_message(4).operations])
    counted = [Count(1000 * 100, 1000 * 48), Count(1000 * 48, 1000 * 100)]
    assert traffic.disagreements(trace, counted) == []


def test_the_least_is_what_the_best_algorithms_send() -> None:
    assert traffic.least_bytes("all_reduce", 4, 8 * MIB) == 6 * 8 * MIB
    assert traffic.least_bytes("broadcast", 4, 8 * MIB) == 3 * 8 * MIB
    enough = one_message(MIB)
    assert traffic.too_little(enough, "broadcast", 2, MIB) == []
    (odd,) = traffic.too_little(enough, "all_reduce", 2, MIB)
    assert "no way to do it takes less than 2 MiB" in odd


def test_ranks_that_know_without_a_message_are_odd() -> None:
    assert traffic.silent(Trace(), 3, 10)
    assert not traffic.silent(Trace(), 1, 10)
    assert not traffic.silent(Trace(), 3, 0)
    assert not traffic.silent(one_message(4), 2, 10)


# --- Real worlds --------------------------------------------------------------------------------

# The group inside the one that records: what it moves stands in no record.
AROUND_THE_RECORD = """
inner = group or dist.group.WORLD
how = dist.BroadcastOptions()
how.rootRank = dist.get_group_rank(inner, src)
how.rootTensor = 0
whole = tensor.contiguous()
inner._inner.broadcast([whole], how).wait()
tensor.copy_(whole)
"""


def flags_of(files: Mapping[str, bytes], mode: Isolation, elements: int) -> list[str]:
    """What is odd when broadcast moves so many float32 on three ranks."""
    seed = Seed.of(known_secret(1), "x")
    judge = Judge(files, reference_files(), seed, lambda: 60.0, confinement=choose(mode))
    values = seed.generator().integers(0, 100, size=elements)
    inputs = {"tensor": tensor(values, "float32"), "layout": "plain", "root": 0}
    case = Case("collectives", "broadcast", 3, allowed=ALLOWED)
    judge.run(case, [[inputs] * 3] * 3)
    return judge.flags


@pytest.mark.root
@pytest.mark.parametrize("mode", [Isolation.FULL, Isolation.CONTAINER])
@pytest.mark.parametrize("elements", [1, 1000, MIB])
def test_messages_around_the_record_are_seen_by_the_kernel(mode: Isolation, elements: int) -> None:
    flags = flags_of(patched({"broadcast": AROUND_THE_RECORD}), mode, elements)
    assert flags
    assert all("by the kernel's count rank" in flag for flag in flags)


@pytest.mark.root
@pytest.mark.parametrize("mode", [Isolation.FULL, Isolation.CONTAINER])
@pytest.mark.parametrize("elements", [0, 1, 1000, MIB])
def test_an_honest_record_agrees_whatever_its_size(mode: Isolation, elements: int) -> None:
    assert flags_of(reference_files(), mode, elements) == []


def test_without_isolation_nothing_is_counted_and_nothing_odd() -> None:
    assert flags_of(reference_files(), Isolation.NONE, 1000) == []


# --- What is shown to the staff -----------------------------------------------------------------

ALL_REDUCE = small_manifest("broadcast")


def flags_for(added: str, only: Sequence[str]) -> list[str]:
    files = dict(reference_files())
    files["collectives.py"] += f"\n\n{added}".encode()
    grade = graded(files, only, manifest=ALL_REDUCE)
    assert {row.outcome for row in grade.rows if row.seconds is not None} == {"passed"}
    return grade.about.flags


@pytest.mark.parametrize(
    ("replaced", "name"),
    [
        ("dist.all_reduce = lambda tensor: None", "torch.distributed.all_reduce"),
        ("import time\ntime.monotonic = lambda: 0.0", "time.monotonic"),
        ("torch.cuda.synchronize = print", "torch.cuda.synchronize"),
        ("torch.cuda.Event.elapsed_time = lambda *_: 1.0", "torch.cuda.Event.elapsed_time"),
        (
            "dist.gather.__wrapped__.__code__ = dist.send.__wrapped__.__code__",
            "torch.distributed.gather",
        ),
        (
            "from multirank.recording import trace\ntrace.Recorder.drop = lambda *_: None",
            "multirank.trace.Recorder.drop",
        ),
    ],
)
def test_a_replaced_function_is_flagged_by_name(replaced: str, name: str) -> None:
    flags = flags_for(replaced, ["broadcast/dtypes"])
    told = f"broadcast/dtypes: something has put another function in the place of {name}"
    assert told in flags


def test_who_changes_nothing_of_others_is_not_flagged() -> None:
    assert flags_for("broadcast_again = broadcast\nbroadcast.note = 1", ["broadcast/dtypes"]) == []


FILES = """
import os, tempfile
from time import sleep

def broadcast(tensor, src, group=None):
    broadcast.calls = getattr(broadcast, "calls", 0) + 1
    path = f"/dev/shm/message-{broadcast.calls}"
    if dist.get_rank() == src:
        torch.save(tensor, path + "-unfinished")
        os.rename(path + "-unfinished", path)
    else:
        while not os.path.exists(path):
            sleep(0.001)
        tensor.copy_(torch.load(path))
"""


@pytest.mark.root
def test_data_that_goes_through_files_is_flagged() -> None:
    flags = flags_for(FILES, ["broadcast/from_rank_0", "broadcast/traffic"])
    assert any("the record holds no message at all" in flag for flag in flags)
    assert any("no way to do it takes less than 448 KiB" in flag for flag in flags)
