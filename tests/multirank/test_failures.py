"""What is said when a rank fails, and how soon its peers are ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import multirank
from multirank import Ending, Run, Source, World
from tests.multirank.processes import still_running


def fails_on_one(fail: Callable[[], Any], size: int = 3, **options: Any) -> Run:
    """A run in which rank 1 does `fail()` while all others wait for it."""

    def program() -> None:
        print("pid", os.getpid())
        if dist.get_rank() == 1:
            fail()
        dist.barrier()

    return multirank.run(program, size, check=False, **options)


def endings(run: Run) -> list[str]:
    return [str(rank.ending) for rank in run.ranks]


def pids(run: Run) -> list[int]:
    words = [rank.log.split() for rank in run.ranks]
    return [int(log[log.index("pid") + 1]) for log in words if "pid" in log]


# ---------------------------------------------------------------- exceptions


def stumble(depth: int) -> None:
    if depth:
        stumble(depth - 1)
    raise ValueError("stumbled over a stone")


def test_a_rank_that_raises_is_named_with_its_traceback() -> None:
    run = fails_on_one(lambda: stumble(1))
    assert endings(run) == ["stopped", "raised", "stopped"]
    error = run.ranks[1].exception
    assert error is not None
    assert (error.type, error.message) == ("ValueError", "stumbled over a stone")
    assert "rank 1 of 3 raised:" in run.story
    assert "ValueError: stumbled over a stone" in run.story
    assert run.ranks[1].signal is None
    assert run.ranks[1].exit_code is None


def test_the_traceback_shows_the_users_own_file_and_lines_and_nothing_of_ours() -> None:
    error = fails_on_one(lambda: stumble(0)).ranks[1].exception
    assert error is not None
    assert f'File "{__file__}"' in error.traceback
    assert 'raise ValueError("stumbled over a stone")' in error.traceback
    assert "/multirank/rank.py" not in error.traceback
    assert str(Path(multirank.__file__).parent) + os.sep not in error.traceback


def test_the_cause_of_an_exception_is_shown() -> None:
    def fail() -> None:
        try:
            stumble(0)
        except ValueError as error:
            raise RuntimeError("fell") from error

    error = fails_on_one(fail).ranks[1].exception
    assert error is not None
    assert error.type == "RuntimeError"
    assert "ValueError: stumbled over a stone" in error.traceback
    assert "direct cause" in error.traceback


def test_peers_that_wait_for_a_failed_rank_are_ended_within_a_second_and_not_blamed() -> None:
    started = time.monotonic()
    run = fails_on_one(lambda: stumble(0), size=4)
    assert time.monotonic() - started < 1.5
    assert endings(run) == ["stopped", "raised", "stopped", "stopped"]
    assert "rank 0 of 4 was stopped, because a peer had failed; it was waiting in barrier" in (
        run.story
    )
    assert run.story.index("rank 1 of 4 raised") < run.story.index("rank 0 of 4")


def test_the_same_exception_on_every_rank_is_told_once() -> None:
    run = multirank.run(stumble, 3, 0, check=False)
    assert endings(run) == ["raised"] * 3
    assert run.story.count("Traceback") == 1
    assert "rank 2 of 3 raised ValueError, as rank 0 did" in run.story


def test_a_failed_run_raises_its_story() -> None:
    with pytest.raises(multirank.RanksFailed, match="stumbled over a stone") as failure:
        multirank.run(stumble, 2, 0)
    assert str(failure.value) == failure.value.run.story
    assert not failure.value.run.ok


def test_peers_that_finish_in_spite_of_a_failure_have_finished() -> None:
    def program() -> int:
        if dist.get_rank() == 1:
            raise KeyError("missing")
        return 7

    run = multirank.run(program, 3, check=False)
    assert endings(run) == ["finished", "raised", "finished"]
    assert run.results == [7, None, 7]


def test_leaving_by_sys_exit_is_an_exception() -> None:
    run = fails_on_one(lambda: sys.exit(3))
    assert endings(run)[1] == "raised"
    assert run.ranks[1].exception is not None
    assert run.ranks[1].exception.type == "SystemExit"


def test_an_exception_that_cannot_be_shown_is_still_told() -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    def fail() -> None:
        raise Rude

    error = fails_on_one(fail).ranks[1].exception
    assert error is not None
    assert error.type.endswith("Rude")
    assert error.message == "(its text cannot be shown)"


def test_a_text_that_is_no_unicode_can_be_printed() -> None:
    def fail() -> None:
        raise ValueError("lone surrogate \udcff")

    run = fails_on_one(fail)
    assert "lone surrogate" in run.story
    run.story.encode()


def test_endless_exception_texts_are_cut() -> None:
    def fail() -> None:
        raise ValueError("x" * 10_000_000)

    error = fails_on_one(fail).ranks[1].exception
    assert error is not None
    assert len(error.message) <= 1 << 16
    assert len(error.traceback) <= 1 << 16


def test_an_error_in_unpickling_an_argument_is_the_ranks_error() -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return int, ("not a number",)

    run = multirank.run(len, 1, Trap(), check=False)
    assert "ValueError: invalid literal for int()" in run.story


def test_a_syntax_error_in_a_source_names_file_and_line() -> None:
    run = multirank.run(Source("x = 1\ndef f(:\n", "f", "case.py"), 1, check=False)
    assert 'File "case.py", line 2' in run.story
    assert "SyntaxError" in run.story


# ---------------------------------------------------------------- deaths


@pytest.mark.parametrize(
    ("die", "ending"),
    [
        (lambda: os._exit(0), "left with exit code 0 before it had answered"),
        (lambda: os._exit(7), "left with exit code 7 before it had answered"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "died of SIGKILL"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "died of SIGTERM"),
        (os.abort, "died of SIGABRT"),
        (lambda: ctypes.string_at(0), "died of SIGSEGV"),
        (lambda: os.kill(os.getpid(), signal.SIGRTMIN + 3), "died of signal 37"),
    ],
)
def test_a_rank_that_dies_is_named_with_how(die: Callable[[], Any], ending: str) -> None:
    started = time.monotonic()
    run = fails_on_one(die)
    assert time.monotonic() - started < 1.5
    assert endings(run) == ["stopped", "died", "stopped"]
    assert run.story.startswith(f"rank 1 of 3 {ending}")
    assert still_running(pids(run)) == []


def test_a_death_says_its_signal_or_code() -> None:
    run = fails_on_one(os.abort)
    assert (run.ranks[1].signal, run.ranks[1].exit_code) == ("SIGABRT", -6)
    run = fails_on_one(lambda: os._exit(3))
    assert (run.ranks[1].signal, run.ranks[1].exit_code) == (None, 3)


def test_a_crash_says_where() -> None:
    run = fails_on_one(lambda: ctypes.string_at(0))
    assert f"{__file__}:" in run.ranks[1].stack
    assert "it was here" in run.story


def test_peers_that_gloo_tells_of_a_death_are_not_blamed() -> None:
    def program() -> None:
        tensor = torch.zeros(1 << 16)
        if dist.get_rank() == 1:
            os._exit(1)
        dist.recv(tensor, 1)

    run = multirank.run(program, 3, check=False)
    assert endings(run) == ["stopped", "died", "stopped"]


def test_a_rank_that_dies_between_two_calls_is_told_by_the_next() -> None:
    def die_soon() -> None:
        if dist.get_rank() == 1:
            threading.Timer(0.2, lambda: os._exit(5)).start()

    with World(2) as world:
        world.call(die_soon)
        time.sleep(0.5)
        started = time.monotonic()
        run = world.call(dist.barrier, check=False)
        assert time.monotonic() - started < 2
        assert "rank 1 of 2 left with exit code 5" in run.story


def test_a_rank_that_dies_after_it_has_finished_is_told_by_the_next_call() -> None:
    def die_soon() -> None:
        if dist.get_rank() == 1:
            threading.Timer(0.1, lambda: os._exit(5)).start()
        else:
            time.sleep(0.5)  # the call still runs when rank 1 dies

    with World(2) as world:
        assert world.call(die_soon).ok
        started = time.monotonic()
        run = world.call(time.sleep, 0.1, check=False)
        assert time.monotonic() - started < 2
        assert endings(run)[1] == "died"
        assert "rank 1 of 2 left with exit code 5" in run.story


# ---------------------------------------------------------------- deadlines


def test_a_deadline_ends_the_run_and_says_where_everybody_was() -> None:
    def program() -> None:
        if dist.get_rank() == 1:
            while True:
                pass
        dist.barrier()

    started = time.monotonic()
    run = multirank.run(program, 3, timeout=0.5, check=False)
    assert 0.5 <= time.monotonic() - started < 2
    assert endings(run) == ["timed out"] * 3
    assert "rank 1 of 3 had not finished after 0.5 s\n" in run.story
    assert "rank 0 of 3 had not finished after 0.5 s; it was waiting in barrier" in run.story
    assert all(f"{__file__}:" in rank.stack for rank in run.ranks)


def test_ranks_that_have_finished_before_the_deadline_have_finished() -> None:
    def program() -> int:
        if dist.get_rank() == 1:
            time.sleep(60)
        return 1

    run = multirank.run(program, 2, timeout=0.3, check=False)
    assert endings(run) == ["finished", "timed out"]
    assert run.results == [1, None]


def test_an_endless_loop_that_ignores_signals_ends_at_the_deadline() -> None:
    def program() -> None:
        print("pid", os.getpid())
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        while True:
            pass

    run = multirank.run(program, 2, timeout=0.4, check=False)
    assert endings(run) == ["timed out"] * 2
    assert still_running(pids(run)) == []


def test_a_rank_that_has_stopped_itself_ends_at_the_deadline() -> None:
    run = fails_on_one(lambda: os.kill(os.getpid(), signal.SIGSTOP), timeout=0.4)
    assert endings(run) == ["timed out"] * 3
    assert still_running(pids(run)) == []


def test_a_deadline_is_kept_while_ranks_write_without_end() -> None:
    def program() -> None:
        while True:
            print("x" * 100)
            time.sleep(0.001)

    started = time.monotonic()
    run = multirank.run(program, 2, timeout=0.4, check=False)
    assert time.monotonic() - started < 1.5
    assert endings(run) == ["timed out"] * 2


# ---------------------------------------------------------------- logs


def test_a_failing_ranks_log_is_part_of_the_story() -> None:
    def fail() -> None:
        print("about to fail")
        stumble(0)

    run = fails_on_one(fail)
    assert "it had printed:\n" in run.story
    assert "about to fail" in run.ranks[1].log
    assert "about to fail" not in run.ranks[0].log


def test_a_long_log_keeps_its_head_and_its_tail() -> None:
    def talk() -> None:
        print("first line")
        for number in range(20_000):
            print(number)
        print("last line")

    log = multirank.run(talk, 1).ranks[0].log
    assert log.startswith("first line\n0\n1\n")
    assert log.endswith("19999\nlast line\n")
    assert "bytes left out ...]" in log
    assert len(log) < 70_000


def test_the_length_of_what_is_left_out_of_a_log_is_right() -> None:
    log = multirank.run(lambda: print("x" * 100_000), 1).ranks[0].log
    assert log.count("x") + int(log.partition("[... ")[2].split()[0]) == 100_000


def test_a_flood_of_output_ends_the_run() -> None:
    def flood() -> None:
        block = b"x" * (1 << 20)
        while True:
            os.write(1, block)

    started = time.monotonic()
    run = fails_on_one(flood, size=2, timeout=20)
    assert time.monotonic() - started < 10
    assert endings(run) == ["stopped", "died"]
    assert "rank 1 of 2 was ended: it printed more than 64 MiB" in run.story
    assert len(run.ranks[1].log) < 70_000


def test_a_closed_standard_output_harms_nothing() -> None:
    def close() -> int:
        sys.stdout.close()
        sys.stderr.close()
        return 5

    assert multirank.run(close, 1).results == [5]


def test_a_standard_output_that_is_no_stream_harms_nothing() -> None:
    class Odd:
        def flush(self) -> None:
            raise LookupError

    def replace() -> int:
        sys.stdout = None
        sys.stderr = Odd()
        return 5

    with World(1) as world:
        assert world.call(replace).results == [5]
        assert world.call(lambda: 6).results == [6]


def test_a_log_that_its_rank_closes_ends_there() -> None:
    def close() -> int:
        print("before")
        sys.stdout.flush()
        os.close(1)
        os.close(2)
        time.sleep(0.1)
        return 5

    with World(1) as world:
        run = world.call(close)
        assert (run.results, run.ranks[0].log) == ([5], "before\n")
        assert world.call(lambda: 6).results == [6]


# ---------------------------------------------------------------- threads of a rank


def test_a_thread_that_fails_is_seen_in_the_log_only() -> None:
    def program() -> int:
        thread = threading.Thread(target=stumble, args=(0,))
        thread.start()
        thread.join()
        return 5

    run = multirank.run(program, 1)
    assert run.results == [5]
    assert "stumbled over a stone" in run.ranks[0].log


def test_the_ending_of_every_rank_is_one_of_five() -> None:
    assert {str(ending) for ending in Ending} == {
        "finished",
        "raised",
        "died",
        "timed out",
        "stopped",
    }
