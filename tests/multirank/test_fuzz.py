"""A rank may answer and record anything: the parent takes it, or says what it is not."""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import struct
from collections.abc import Iterator
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import multirank
from multirank import Ending, Fabric, ReplayError, Run, Trace
from multirank.processes.memory import DTYPES, AnswerError, Arena, build, describe, shared_file
from multirank.proving.ledger import Ledger
from multirank.proving.prover import Prover
from multirank.recording.misuse import warnings
from multirank.recording.trace import _AGAIN, _AGAIN_BYTE, TRACE_BYTES
from multirank.world import _Link

SIZE = 1 << 12
lenient = settings(deadline=None)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["tensor", "list", "int", "float", "0x10", "nan", "inf", "-0x0p0", *DTYPES]),
    st.sampled_from([1 << 31, 1 << 63, -1, 10**30, 1e308]),
)
shapes = st.lists(st.one_of(st.integers(-1, 5), st.sampled_from([1 << 31, 1 << 62])), max_size=70)
tensors = st.tuples(
    st.just("tensor"), st.sampled_from([*DTYPES, "no"]), shapes, st.integers(-9, SIZE + 9)
).map(list)
trees = st.recursive(
    st.one_of(scalars, tensors, st.tuples(st.sampled_from(["int", "float"]), st.text()).map(list)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(lambda items: ["list", *items]),
        st.dictionaries(st.one_of(st.text(max_size=5), st.just("result")), inner, max_size=4),
    ),
    max_leaves=12,
)


@contextlib.contextmanager
def link() -> Iterator[_Link]:
    """The parent's end of a rank that is nobody, in the middle of a call."""
    one = _Link(0, 2, Ledger(2), None)
    one.begin()
    one.send(b"", None, SIZE)
    try:
        yield one
    finally:
        one.close()
        one.give_away()


def told(one: _Link) -> str:
    return Run(1, [one.run], timeout=1.0).story


@lenient
@given(trees)
def test_any_tree_is_a_result_or_none(tree: Any) -> None:
    arena = Arena(shared_file(SIZE, "fuzz"), writable=False)
    try:
        found = build(json.loads(json.dumps(tree)), arena)
    except AnswerError:
        return
    finally:
        os.close(arena.descriptor)
    require_plain(found)


def require_plain(value: Any) -> None:
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            require_plain(one)
    else:
        assert value is None or type(value) in (bool, int, float, str, torch.Tensor)


@lenient
@given(
    st.one_of(
        st.binary(max_size=300),
        trees.map(lambda tree: json.dumps(tree).encode()),
        trees.map(lambda tree: json.dumps({"result": tree}).encode()),
        trees.map(lambda tree: json.dumps({"raised": tree}).encode()),
        st.fixed_dictionaries(
            {"type": st.text(), "message": st.text(), "traceback": st.text()}
        ).map(lambda raised: json.dumps({"raised": raised}).encode()),
    ),
    st.one_of(st.none(), st.integers(0, (1 << 64) - 1)),
)
def test_any_frame_is_an_answer_or_the_ranks_own_failure(
    payload: bytes, length: int | None
) -> None:
    with link() as one:
        header = struct.pack("!Q", len(payload) if length is None else length)
        one._owned[0].sendall(header + payload)
        one.hear()
        one.exited(0)
        assert one.run.ending in (Ending.FINISHED, Ending.RAISED, Ending.DIED)
        told(one).encode()


@lenient
@given(st.integers(), st.floats(), st.text(max_size=9), st.lists(st.floats(), max_size=5))
def test_what_an_honest_rank_describes_comes_back(
    whole: int, real: float, text: str, numbers: list[float]
) -> None:
    arena = Arena(shared_file(SIZE, "fuzz"), writable=True)
    given_back = [whole, real, {"a key": text.encode("utf-8", "replace").decode()}]
    tree = describe([*given_back, torch.tensor(numbers, dtype=torch.float64)], arena)
    *rest, tensor = build(json.loads(json.dumps(tree)), Arena(arena.descriptor, writable=False))
    os.close(arena.descriptor)
    assert repr(rest) == repr(given_back)
    assert torch.equal(tensor.nan_to_num(), torch.tensor(numbers, dtype=torch.float64).nan_to_num())
    assert math.isnan(real) or rest[1] == real


# --- The record ---------------------------------------------------------------------------------

odd = st.one_of(scalars, st.integers(0, 3), st.lists(st.integers(0, 3), max_size=3))
times = st.one_of(st.floats(0, 1e12), odd)
numbers = st.one_of(st.integers(0, 5), odd)
operations = st.tuples(
    st.just("issue"),
    times,
    numbers,
    st.one_of(st.sampled_from(["send", "recv", "all_reduce", "barrier", "new_group"]), odd),
    st.one_of(st.just(0), odd),
    st.one_of(st.integers(0, 1), st.none(), odd),
    st.one_of(st.integers(0, 2), odd),
    st.one_of(st.none(), st.sampled_from(["SUM", "<b>"]), odd),
    st.one_of(st.none(), st.sampled_from(["float32", "no"]), odd),
    st.one_of(st.lists(st.integers(0, 1 << 40), max_size=3), odd),
    st.one_of(st.integers(0, 1 << 50), odd),
    st.one_of(st.sampled_from(["m.py", "\ud800", "<script>"]), odd),
    st.one_of(st.integers(1, 99), odd),
)
waiting = st.lists(st.one_of(st.integers(1, 2), odd), max_size=2)
records = st.one_of(
    st.tuples(operations, waiting).map(lambda both: [*both[0], *both[1]]),
    st.tuples(
        st.sampled_from(["wait", "complete", "leave", "change", "end", "drop"]), times, numbers
    ).map(list),
    st.tuples(st.just("wait"), times, numbers, numbers, numbers).map(list),
    st.tuples(st.sampled_from(["mark", "begin", "end", "compute"]), times, odd, times).map(list),
    st.tuples(st.sampled_from(["mark", "begin", "end", "unsure", "lost", "full"]), times, odd).map(
        list
    ),
    st.tuples(st.just("group"), times, numbers, odd, odd).map(list),
    st.lists(odd, max_size=5),
)
again = st.tuples(*[st.one_of(st.integers(0, 5), st.integers(0, (1 << 64) - 1))] * 7).map(
    lambda fields: _AGAIN.pack(_AGAIN_BYTE, *fields)
)
lines = st.one_of(records.map(lambda one: json.dumps(one).encode() + b"\n"), again, st.binary())


@lenient
@given(st.lists(lines, max_size=25), st.one_of(st.none(), st.integers(0, (1 << 64) - 1)))
def test_any_record_can_be_read_explained_drawn_and_replayed(
    written: list[bytes], committed: int | None
) -> None:
    content = b'["group",0.0,0,"g",[0,1]]\n' + b"".join(written)
    with link() as one:
        with mmap.mmap(one._lent[2], TRACE_BYTES) as memory:
            memory[8 : 8 + len(content)] = content
            end = 8 + len(content) if committed is None else committed
            memory[:8] = struct.pack("=Q", end)
        trace = Trace()
        ledger = one._trace._follower
        assert isinstance(ledger, Ledger)
        prover = Prover(ledger)
        one.read_trace(trace)
        for _ in range(3):
            if verdict := prover.look(True):
                verdict.story.encode("utf-8", "replace")
        one.exited(1)
        run = Run(2, [one.run, multirank.RankRun(1, Ending.STOPPED)], trace, timeout=1.0)
        run.warnings = warnings(trace, {0}, ledger.deserted())
        assert isinstance(run.story, str)
        with contextlib.suppress(ValueError):  # too large to be drawn so small
            assert "<script" not in multirank.timeline(run, titles=["x"]).svg(60_000)
        with contextlib.suppress(ReplayError):
            multirank.replay(trace, Fabric("any", latency=1e-6, bandwidth=1e9))
