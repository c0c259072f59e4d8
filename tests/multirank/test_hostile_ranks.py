"""A rank says what it likes: the parent neither crashes, nor hangs, nor believes it."""

from __future__ import annotations

import json
import mmap
import os
import pickle
import resource
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import multirank
from multirank import Ending, Run, World


def control_socket() -> socket.socket:
    """The calling rank's own end of what connects it with the parent."""
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if str(entry.readlink()).startswith("socket:"):
                return socket.socket(fileno=os.dup(int(entry.name)))
        except OSError:
            continue
    raise LookupError


def file_called(name: str) -> int:
    """A descriptor of one of the files that the rank shares with the parent."""
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if str(entry.readlink()).startswith(f"/memfd:{name}"):
                return int(entry.name)
        except OSError:
            continue
    raise LookupError


def say(payload: bytes, length: int | None = None) -> None:
    header = struct.pack("!Q", len(payload) if length is None else length)
    control_socket().sendall(header + payload)
    time.sleep(60)


def told(payload: bytes, length: int | None = None) -> Run:
    """The run of a rank that sends `payload` as its answer, and then nothing more."""
    return multirank.run(say, 1, payload, length, process_group=False, timeout=10, check=False)


def result(tree: Any) -> bytes:
    return json.dumps({"result": tree}).encode()


@pytest.mark.parametrize(
    ("payload", "length"),
    [
        (b"", None),
        (b"\x00\xff\xfe garbage", None),
        (b"{", None),
        (b"5", None),
        (b"[]", None),
        (b"null", None),
        (b"{}", None),
        (b'"result"', None),
        (b"x", 1 << 40),
        (b"x", 2**64 - 1),
        (b"[" * 1_000_000, None),
        (b'{"result":' + b'["list",' * 200_000 + b"]" * 200_000 + b"}", None),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, None),
        (pickle.dumps(os.getcwd), None),
        (b"1" * 1_000_000, None),
        (b'{"ready": true}', None),
        (b'{"raised": 5}', None),
        (b'{"raised": {"type": 1, "message": 2, "traceback": 3}}', None),
        (result(5), None),
        (b'{"result": NaN}', None),
        (result(["unknown"]), None),
        (result([]), None),
        (result({"a": {"b": 1.5}}), None),
        (result(["int", "five"]), None),
        (result(["int", 5]), None),
        (result(["float", "five"]), None),
        (result(["float", "0x1p99999"]), None),
        (result(["tensor", "float32", [4], -16]), None),
        (result(["tensor", "float32", [4], (1 << 30) - 12]), None),
        (result(["tensor", "float32", [4], 1 << 62]), None),
        (result(["tensor", "float32", [4], 1 << 70]), None),
        (result(["tensor", "float32", [1 << 40], 0]), None),
        (result(["tensor", "float32", [1 << 62, 1 << 62, 4], 0]), None),
        (result(["tensor", "float32", [0, 1 << 70], 0]), None),
        (result(["tensor", "float32", [0, 1 << 62, 1 << 62], 0]), None),
        (result(["tensor", "float32", [1] * 5000, 0]), None),
        (result(["tensor", "float32", [-1], 0]), None),
        (result(["tensor", "float32", [-2, -2], 0]), None),
        (result(["tensor", "float32", [True], 0]), None),
        (result(["tensor", "float32", [1.5], 0]), None),
        (result(["tensor", "float32", 4, 0]), None),
        (result(["tensor", "object", [4], 0]), None),
        (result(["tensor", "float32", [4]]), None),
        (result(["tensor", "float32", [4], 0, 0]), None),
        (result(["list", ["tensor", "bool", [1], 0], ["tensor", "int64", [1 << 27], 0]]), None),
    ],
    ids=lambda value: repr(value)[:44],
)
def test_an_answer_that_is_none_is_the_ranks_failure(payload: bytes, length: int | None) -> None:
    started = time.monotonic()
    run = told(payload, length)
    assert time.monotonic() - started < 5
    assert run.ranks[0].ending is Ending.DIED
    assert run.story.startswith("rank 0 of 1 sent something that is no answer")
    assert len(run.story) < 1000
    assert run.results == [None]


def test_an_unfinished_answer_ends_at_the_deadline() -> None:
    run = multirank.run(say, 1, b"half", 4000, timeout=0.4, check=False, process_group=False)
    assert run.ranks[0].ending is Ending.TIMED_OUT


def test_nothing_that_a_rank_sends_is_unpickled(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "unpickled"),)

    told(pickle.dumps(Evil()))
    assert not (tmp_path / "unpickled").exists()


def test_a_forged_exception_of_any_length_is_cut() -> None:
    text = "x" * (1 << 20)
    run = told(json.dumps({"raised": {"type": text, "message": text, "traceback": text}}).encode())
    error = run.ranks[0].exception
    assert error is not None
    assert len(error.type) + len(error.message) + len(error.traceback) < 200_000


def test_the_bytes_of_a_boolean_tensor_are_read_as_truth_values() -> None:
    def forge() -> None:
        os.pwrite(file_called("multirank-output"), bytes([0, 1, 2, 255]), 0)
        say(json.dumps({"result": ["tensor", "bool", [4], 0]}).encode())

    (got,) = multirank.run(forge, 1, process_group=False).results
    assert got.view(torch.uint8).tolist() == [0, 1, 1, 1]


def test_answers_beyond_the_first_are_ignored() -> None:
    def twice() -> int:
        first = json.dumps({"result": ["int", "0x1"]}).encode()
        frame = struct.pack("!Q", len(first)) + first
        control_socket().sendall(frame + frame + struct.pack("!Q", 3) + b"???")
        return 2

    with World(1, process_group=False) as world:
        assert world.call(twice).results == [1]


def test_a_flood_of_frames_does_not_hold_the_parent_beyond_the_deadline() -> None:
    def flood() -> None:
        connection = control_socket()
        frame = struct.pack("!Q", 2) + b"{}"
        first = json.dumps({"result": None}).encode()
        connection.sendall(struct.pack("!Q", len(first)) + first)
        while True:
            connection.sendall(frame * 10_000)

    def flood_or_sleep() -> None:
        if multirank.context().rank:
            time.sleep(60)
        flood()

    started = time.monotonic()
    run = multirank.run(flood_or_sleep, 2, timeout=0.5, process_group=False, check=False)
    assert time.monotonic() - started < 2.5
    assert run.ranks[1].ending is Ending.TIMED_OUT


def test_a_rank_that_never_reads_does_not_block_the_next_call() -> None:
    def say_finished() -> None:
        first = json.dumps({"result": None}).encode()
        control_socket().sendall(struct.pack("!Q", len(first)) + first)
        time.sleep(60)

    with World(1, process_group=False) as world:
        assert world.call(say_finished).ok
        started = time.monotonic()
        run = world.call(len, "x" * (8 << 20), timeout=0.5, check=False)
        assert time.monotonic() - started < 2
        assert run.ranks[0].ending is Ending.TIMED_OUT


def test_descriptors_that_a_rank_sends_are_not_taken() -> None:
    def send() -> None:
        answer = json.dumps({"result": None}).encode()
        frame = struct.pack("!Q", len(answer)) + answer
        socket.send_fds(control_socket(), [frame], [0, 1, 2])
        time.sleep(60)

    with World(1, process_group=False) as world:
        before = len(list(Path("/proc/self/fd").iterdir()))
        assert world.call(send).ok
        after = len(list(Path("/proc/self/fd").iterdir()))
        assert after == before


def test_the_files_that_a_rank_shares_can_be_neither_shrunk_nor_grown() -> None:
    def resize() -> list[bool]:
        refused = []
        for name in ("output", "trace", "stacks"):
            descriptor = file_called(f"multirank-{name}")
            for size in (0, 1 << 31):
                try:
                    os.ftruncate(descriptor, size)
                    refused.append(False)
                except PermissionError:
                    refused.append(True)
        return refused

    assert multirank.run(resize, 1, process_group=False).results == [[True] * 6]


def test_a_rank_cannot_write_to_the_inputs_of_others() -> None:
    def write(tensor: torch.Tensor) -> list[bool]:
        refused = []
        descriptor = file_called("multirank-input")
        try:
            os.pwrite(descriptor, b"x", 0)
            refused.append(False)
        except PermissionError:
            refused.append(True)
        try:
            mmap.mmap(descriptor, 64)
            refused.append(False)
        except PermissionError:
            refused.append(True)
        return refused

    assert multirank.run(write, 2, torch.ones(4), process_group=False).results == [[True] * 2] * 2


# ---------------------------------------------------------------- the trace


def write_trace(content: bytes, committed: int | None = None) -> None:
    """Overwrites the calling rank's trace."""
    with mmap.mmap(file_called("multirank-trace"), 1 << 26) as trace:
        end = max(8, *struct.unpack_from("<Q", trace))
        trace[end : end + len(content)] = content
        struct.pack_into("<Q", trace, 0, end + len(content) if committed is None else committed)


@pytest.mark.parametrize(
    "content",
    [
        b"garbage\n",
        b"\xff\xfe\n",
        b"[]\n",
        b'["issue"]\n',
        b'["issue",1.0,1,"send",99,0,0,null,null,[],0,"",0]\n',
        b'["group",1.0,5,[7]]\n',
        b'["group",1.0,5,["0"]]\n',
        b'["group",1.0,5,[0]]\n["issue",1.0,1,"send",5,9,0,null,null,[],0,"",0]\n',
        b'["group",1.0,5,[0]]\n["issue",1.0,1,"send",5,0,0,null,null,[-1],0,"",0]\n',
        b'["group",1.0,5,[0]]\n["issue",1.0,1,"send",5,0,0,null,null,["4"],0,"",0]\n',
        b'["group",1.0,5,[0]]\n["issue",1.0,1,"send",5,0,0,null,null,[],-5,"",0]\n',
        b'["group",1.0,5,[0]]\n["issue",NaN,1,"send",5,0,0,null,null,[],0,"",0]\n',
        b'["mark",Infinity,"label"]\n',
        b'["mark",1e999,"label"]\n',
        b'["mark",-1.0,"label"]\n',
        b'["compute",1.0,"label",NaN]\n',
        b'["mark",1.0,5]\n',
        b"[" * 100_000 + b"\n",
        b"1" * 100_000 + b"\n",
    ],
    ids=lambda value: repr(value)[:40],
)
def test_garbage_in_the_trace_marks_it_damaged(content: bytes) -> None:
    run = multirank.run(write_trace, 1, content, process_group=False)
    assert run.trace.damaged
    assert not run.trace.operations
    assert not run.trace.marks


@pytest.mark.parametrize("committed", [0, 3, (1 << 26) + 1, 2**64 - 1])
def test_an_impossible_length_of_the_trace_harms_nothing(committed: int) -> None:
    run = multirank.run(write_trace, 1, b"", committed, process_group=False)
    assert run.ok
    assert run.trace.operations == []


def test_a_trace_damaged_between_two_calls_stays_damaged() -> None:
    """Else whatever a program did from then on would be neither seen nor missed."""

    def damage_later() -> None:
        threading.Timer(0.1, write_trace, [b"garbage\n"]).start()

    with multirank.World(1, process_group=False) as world:
        assert not world.call(damage_later).trace.damaged
        time.sleep(0.4)
        for _ in range(2):
            assert world.call(lambda: multirank.mark("unseen")).trace.damaged


def test_an_undamaged_trace_says_so() -> None:
    run = multirank.run(lambda: multirank.mark("here"), 1)
    assert not run.trace.damaged
    assert not run.trace.truncated


@pytest.mark.parametrize("line", [b"\n", b'["full",0]\n'], ids=["empty", "valid"])
def test_a_trace_full_of_short_lines_is_read_in_bounded_time_and_memory(line: bytes) -> None:
    def fill(line: bytes) -> None:
        with mmap.mmap(file_called("multirank-trace"), 1 << 26) as trace:
            room = (1 << 26) - 8
            content = (line * (room // len(line) + 1))[:room]
            trace[8:] = content
            struct.pack_into("<Q", trace, 0, 1 << 26)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    run = multirank.run(fill, 1, line, process_group=False)
    assert time.monotonic() - started < 4
    assert run.trace.damaged or run.trace.truncated
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000


def test_garbage_among_the_stacks_is_shown_as_text_at_most() -> None:
    def scribble() -> None:
        os.pwrite(file_called("multirank-stacks"), b"Thread\n" + b"\xff\x00 File" * 9000, 0)
        time.sleep(60)

    run = multirank.run(scribble, 1, timeout=0.3, check=False, process_group=False)
    assert run.ranks[0].ending is Ending.TIMED_OUT
    assert len(run.story) < 100_000
