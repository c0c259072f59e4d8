"""Calling a function on every rank: worlds, arguments, state, context."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import multirank
from multirank import Source, World, context, per_rank
from multirank.processes.leading import descendants
from tests.multirank.processes import state

LIMIT = 7


def rank() -> int:
    return dist.get_rank()


def give_back(*args: Any, **kwargs: Any) -> Any:
    return [list(args), kwargs]


def rank_plus(number: int) -> int:
    return dist.get_rank() + number


def summed() -> torch.Tensor:
    tensor = torch.full((3,), float(dist.get_rank()))
    dist.all_reduce(tensor)
    return tensor


# ---------------------------------------------------------------- worlds


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_a_world_of_any_size_communicates(size: int) -> None:
    expected = torch.full((3,), float(sum(range(size))))
    for result in multirank.run(summed, size).results:
        assert torch.equal(result, expected)


@pytest.mark.slow
@pytest.mark.parametrize("size", [4, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16])
def test_a_world_of_up_to_16_ranks_communicates(size: int) -> None:
    assert multirank.run(summed, size).results[-1][0] == sum(range(size))


@pytest.mark.slow
def test_the_largest_world_allowed_starts() -> None:
    from multirank.world import MAX_WORLD_SIZE

    run = multirank.run(lambda: context().rank, MAX_WORLD_SIZE, process_group=False)
    assert run.results == list(range(MAX_WORLD_SIZE))


@pytest.mark.parametrize("size", [0, -1, 1000])
def test_a_world_size_out_of_range_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"world_size is {size}; it must be from 1"):
        multirank.run(rank, size)


def test_results_come_in_order_of_rank() -> None:
    def late_first() -> int:
        time.sleep(0.1 * (3 - dist.get_rank()) / 3)
        return dist.get_rank()

    assert multirank.run(late_first, 3).results == [0, 1, 2]


def test_a_run_says_that_all_is_well_and_how_long_it_took() -> None:
    run = multirank.run(lambda: time.sleep(0.1), 2)
    assert run.ok
    assert run.story == "all 2 ranks finished"
    assert 0.1 <= run.seconds < 5
    assert [entry.rank for entry in run.ranks] == [0, 1]
    assert {entry.ending for entry in run.ranks} == {multirank.Ending.FINISHED}


def test_every_run_has_fresh_processes() -> None:
    first = multirank.run(os.getpid, 2).results
    second = multirank.run(os.getpid, 2).results
    assert len({*first, *second, os.getpid()}) == 5


def test_a_world_serves_several_calls_in_the_same_processes() -> None:
    with World(2) as world:
        first = world.call(os.getpid)
        second = world.call(os.getpid)
        assert first.results == second.results
        assert world.call(summed).results[0][0] == 1.0


def test_state_is_kept_between_the_calls_of_a_world() -> None:
    def count() -> int:
        state = context().state
        state["calls"] = state.get("calls", 0) + 1
        return int(state["calls"])

    with World(2) as world:
        assert [world.call(count).results for _ in range(3)] == [[1, 1], [2, 2], [3, 3]]


def test_a_closed_world_refuses_calls_and_may_be_closed_again() -> None:
    with World(2) as world:
        world.call(rank)
    world.close()
    for use in (lambda: world.call(rank), world.hold, world.release):
        with pytest.raises(RuntimeError, match="this world is closed"):
            use()


def test_a_world_is_closed_after_a_failed_call() -> None:
    with World(2) as world:
        run = world.call(int, "not a number", check=False)
        assert not run.ok
        with pytest.raises(RuntimeError, match="an earlier call failed"):
            world.call(rank)


def test_two_worlds_live_at_once() -> None:
    with World(2) as one, World(3) as other:
        assert one.call(rank).results == [0, 1]
        assert other.call(rank).results == [0, 1, 2]
        assert one.call(rank).results == [0, 1]


def test_a_held_world_stands_still_until_it_is_released() -> None:
    def count_on() -> None:
        def forever() -> None:
            while True:
                context().state["ticks"] += 1
                time.sleep(0.001)

        context().state["ticks"] = 0
        threading.Thread(target=forever, daemon=True).start()

    def ticks() -> int:
        return int(context().state["ticks"])

    with World(1, process_group=False) as held, World(1, process_group=False) as busy:
        held.call(count_on)
        before = held.call(ticks).results[0]
        held.hold()
        busy.call(time.sleep, 0.5)
        held.release()
        after = held.call(ticks).results[0]
    assert after - before < 200  # and not 500


def test_held_ranks_are_stopped_processes() -> None:
    def keep_busy() -> int:
        def count() -> None:
            while True:
                pass

        threading.Thread(target=count, daemon=True).start()
        return os.getpid()

    with World(2) as world:
        pids = world.call(keep_busy).results
        for _ in range(10):
            world.hold()
            assert [state(pid) for pid in pids] == ["T", "T"]
            world.release()
        assert world.call(rank).results == [0, 1]
        assert "T" not in [state(pid) for pid in pids]


def test_what_ranks_have_started_is_held_with_them() -> None:
    def start_two() -> list[int]:
        """A child with an odd name, and an orphan of its own session, both busy."""
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            if (orphan := os.fork()) == 0:
                os.setsid()
                while True:
                    pass
            os.write(writing, b"%d" % orphan)
            os._exit(0)
        os.waitpid(child, 0)
        orphan = int(os.read(reading, 20))
        if (child := os.fork()) == 0:
            Path("/proc/self/comm").write_bytes(b"\xff) T 1 (")
            while True:
                pass
        return [child, orphan]

    with World(2) as world:
        pids = [pid for own in world.call(start_two).results for pid in own]
        for _ in range(3):
            world.hold()
            assert [state(pid) for pid in pids] == ["T"] * 4
            world.release()
            assert "T" not in [state(pid) for pid in pids]


def test_a_rank_that_keeps_forking_is_held_all_the_same() -> None:
    def fork_on() -> int:
        def forever() -> None:
            while True:
                if os.fork() == 0:
                    time.sleep(0.05)
                    os._exit(0)
                with contextlib.suppress(ChildProcessError):
                    while os.waitpid(-1, os.WNOHANG) != (0, 0):
                        pass

        threading.Thread(target=forever, daemon=True).start()
        return os.getpid()

    with World(1) as world:
        pid = world.call(fork_on).results[0]
        time.sleep(0.1)
        for _ in range(10):
            world.hold()
            states = descendants([pid]).values()
            assert states
            assert not {"R", "S"} & {*states}
            world.release()
        assert world.call(rank).results == [0]


def test_worlds_may_be_used_from_several_threads() -> None:
    answers: dict[int, list[int]] = {}

    def use(number: int) -> None:
        answers[number] = multirank.run(rank_plus, 2, number).results

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: [number, number + 1] for number in range(4)}


def test_a_rank_cannot_start_ranks_of_its_own() -> None:
    run = multirank.run(lambda: multirank.run(rank, 2).results, 1, check=False)
    assert "multirank was asked for ranks inside a rank" in run.story


# ---------------------------------------------------------------- groups and context


def test_the_context_says_where_the_function_runs() -> None:
    def look() -> list[Any]:
        here = context()
        return [here.rank, here.world_size, str(here.device), dist.get_rank()]

    assert multirank.run(look, 3).results == [[r, 3, "cpu", r] for r in range(3)]


def test_declared_groups_exist_and_are_none_where_a_rank_is_no_member() -> None:
    def use() -> Any:
        group = context().groups["odd"]
        if group is None:
            return None
        tensor = torch.tensor([dist.get_rank()])
        dist.all_reduce(tensor, group=group)
        return [tensor.item(), dist.get_process_group_ranks(group), dist.get_rank(group)]

    results = multirank.run(use, 4, groups={"odd": [3, 1]}).results
    assert results == [None, [4, [1, 3], 0], None, [4, [1, 3], 1]]


def test_group_ranks_are_known_to_all_ranks() -> None:
    run = multirank.run(lambda: context().group_ranks, 3, groups={"a": [0, 2], "b": [1]})
    assert run.results == [{"a": [0, 2], "b": [1]}] * 3


@pytest.mark.parametrize("ranks", [[], [0, 0], [2], [-1, 0]])
def test_an_impossible_group_is_refused_by_name(ranks: list[int]) -> None:
    with pytest.raises(ValueError, match=r"group 'pair' is .* different ranks from 0 to 1"):
        multirank.run(rank, 2, groups={"pair": ranks})


def test_outside_a_rank_there_is_no_context() -> None:
    with pytest.raises(RuntimeError, match="inside a function that multirank runs"):
        context()


def test_ports_are_not_those_that_the_system_gives_to_others() -> None:
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    run = multirank.run(lambda: os.environ["MASTER_PORT"], 1, process_group=False)
    assert 1024 < int(run.results[0]) < low


def test_starting_ranks_leaves_the_callers_random_numbers_alone() -> None:
    random.seed(1)
    before = random.getstate()
    multirank.run(lambda: None, 1, process_group=False)
    assert random.getstate() == before


def test_without_a_process_group_the_environment_is_torchruns() -> None:
    def start_it_myself() -> list[Any]:
        before = dist.is_initialized()
        dist.init_process_group("gloo")
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
        return [before, tensor.item(), *(os.environ[name] for name in names)]

    run = multirank.run(start_it_myself, 2, process_group=False)
    assert run.results == [
        [False, 2.0, "0", "0", "2", "2", "127.0.0.1"],
        [False, 2.0, "1", "1", "2", "2", "127.0.0.1"],
    ]
    assert [op.name for op in run.trace.of_rank(1)] == ["all_reduce"]


# ---------------------------------------------------------------- functions


def test_lambdas_closures_and_module_functions_travel() -> None:
    number = 10

    def closure() -> int:
        return rank_plus(number) + LIMIT

    assert multirank.run(closure, 2).results == [17, 18]
    assert multirank.run(lambda: closure() + 1, 2).results == [18, 19]


def test_partial_functions_and_bound_methods_travel() -> None:
    @dataclass
    class Adder:
        number: int

        def add(self, more: int) -> int:
            return dist.get_rank() + self.number + more

    assert multirank.run(functools.partial(rank_plus, 5), 2).results == [5, 6]
    assert multirank.run(Adder(3).add, 2, 4).results == [7, 8]
    assert multirank.run(functools.partial(Adder(3).add, 4), 2).results == [7, 8]


def test_builtins_and_functions_of_installed_packages_travel_by_name() -> None:
    assert multirank.run(len, 1, [1, 2, 3]).results == [3]
    assert multirank.run(torch.add, 1, torch.ones(1), 2).results == [torch.tensor([3.0])]


def test_a_function_of_a_test_module_does_not_import_pytest_in_the_rank() -> None:
    def imported() -> list[bool]:
        return [name in sys.modules for name in ("pytest", "_pytest", __name__)]

    assert multirank.run(imported, 1).results == [[False, False, False]]


def test_a_function_may_be_given_as_source_text() -> None:
    text = "import torch\nSTEP = 2\ndef twice(x, *, plus=0):\n    return torch.add(x, x) + plus\n"
    source = Source(text, "twice", "somewhere/twice.py", arguments={"plus": 1})
    assert torch.equal(multirank.run(source, 1, torch.ones(2)).results[0], torch.full((2,), 3.0))


def test_source_may_hold_dataclasses_with_postponed_annotations() -> None:
    text = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Pair:\n    a: int\n    b: int = 2\n"
        "def total():\n    pair = Pair(1)\n    return pair.a + pair.b\n"
    )
    assert multirank.run(Source(text, "total", "pairs.py"), 1).results == [3]


def test_source_is_compiled_as_it_stands() -> None:
    text = "def f(x: int): pass\ndef kind():\n    return f.__annotations__['x'] is int\n"
    assert multirank.run(Source(text, "kind"), 1).results == [True]


def test_a_source_without_its_function_is_told() -> None:
    run = multirank.run(Source("x = 1", "f", "case.py"), 1, check=False)
    assert "case.py defines no function 'f'" in run.story


# ---------------------------------------------------------------- arguments


def test_positional_and_keyword_arguments_arrive() -> None:
    results = multirank.run(give_back, 2, 1, "two", three=[3.0, None], four={"f": True}).results
    assert results == [[[1, "two"], {"three": [3.0, None], "four": {"f": True}}]] * 2


def test_the_functions_own_arguments_may_have_any_name_in_a_world() -> None:
    with World(1) as world:
        assert world.call(give_back, groups=1, world_size=2).results == [
            [[], {"groups": 1, "world_size": 2}]
        ]


def test_per_rank_gives_every_rank_its_own_item() -> None:
    mine = per_rank([torch.tensor([float(r)]) for r in range(3)])
    results = multirank.run(give_back, 3, mine, label=per_rank("abc")).results
    assert results == [
        [[torch.tensor([float(r)])], {"label": letter}] for r, letter in enumerate("abc")
    ]


@pytest.mark.parametrize("items", [[1], [1, 2, 3]])
def test_per_rank_with_a_wrong_number_of_items_is_refused(items: list[int]) -> None:
    message = rf"per_rank was given {len(items)} item\(s\) for 2 ranks"
    with World(2) as world:
        with pytest.raises(ValueError, match=message):
            world.call(give_back, 0, per_rank(items))
        with pytest.raises(ValueError, match=message):
            world.call(give_back, name=per_rank(items))
        assert world.call(rank).results == [0, 1]


def test_per_rank_inside_another_argument_is_refused() -> None:
    with pytest.raises(ValueError, match="per_rank is an argument by itself"):
        multirank.run(give_back, 2, [per_rank([1, 2])])


def test_tensors_arrive_as_private_copies() -> None:
    def overwrite(tensor: torch.Tensor) -> torch.Tensor:
        tensor += dist.get_rank() + 1
        return tensor

    tensor = torch.zeros(2)
    assert [r.tolist() for r in multirank.run(overwrite, 2, tensor).results] == [[1, 1], [2, 2]]
    assert tensor.tolist() == [0, 0]


def test_a_tensor_given_twice_is_one_tensor_in_the_rank() -> None:
    def same(a: torch.Tensor, b: list[torch.Tensor], c: torch.Tensor) -> list[bool]:
        return [a is b[0], a is c]

    tensor, equal = torch.ones(1), torch.ones(1)
    assert multirank.run(same, 1, tensor, [tensor], equal).results == [[True, False]]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6, dtype=torch.int64).reshape(2, 3),
        torch.arange(12.0).reshape(3, 4).t(),
        torch.ones(1).expand(5),
        torch.empty(0, 3),
        torch.tensor(2.5),
        torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        torch.tensor([1 + 2j]),
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([True, False]),
        torch.nn.Parameter(torch.ones(2)),
        torch.ones(3, requires_grad=True) * 2,
        torch.eye(3).to_sparse(),
    ],
    ids=lambda t: f"{str(t.dtype)[6:]}-{tuple(t.shape)}",
)
def test_every_kind_of_tensor_arrives_unchanged(tensor: torch.Tensor) -> None:
    def describe(given: torch.Tensor) -> list[Any]:
        dense = given.detach().to_dense() if given.is_sparse else given.detach()
        return [
            dense,
            str(given.dtype),
            given.requires_grad,
            type(given).__name__,
            str(given.layout),
        ]

    (got,) = multirank.run(describe, 1, tensor).results
    assert got[1:] == describe(tensor)[1:]
    assert torch.equal(got[0], describe(tensor)[0])


def test_parameters_and_modules_arrive() -> None:
    def forward(module: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = module(x)
        torch.autograd.backward(y.sum())
        return y

    module = torch.nn.Linear(3, 2)
    x = torch.randn(4, 3)
    assert torch.allclose(multirank.run(forward, 1, module, x).results[0], module(x))


@dataclass
class Settings:
    rate: float
    names: tuple[str, ...]


def test_objects_of_the_callers_own_classes_arrive() -> None:
    def use(settings: Settings) -> list[Any]:
        return [settings.rate, list(settings.names)]

    assert multirank.run(use, 1, Settings(0.5, ("a", "b"))).results == [[0.5, ["a", "b"]]]


def test_an_argument_that_cannot_be_pickled_is_told_with_what_to_do() -> None:
    with World(2) as world:
        with pytest.raises(TypeError, match=r"cannot be sent to .*lock.*inside the function"):
            world.call(give_back, threading.Lock())
        with pytest.raises(TypeError, match="cannot be sent to the ranks"):
            world.call(give_back, per_rank([1, threading.Lock()]))
        assert world.call(rank).results == [0, 1]


def test_a_large_argument_arrives() -> None:
    def total(tensor: torch.Tensor, text: str) -> list[int]:
        return [int(tensor.sum()), len(text)]

    tensor = torch.ones(8 << 20, dtype=torch.uint8)
    assert multirank.run(total, 2, tensor, "x" * (4 << 20)).results == [[8 << 20, 4 << 20]] * 2


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan")])
def test_an_impossible_timeout_is_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        multirank.run(rank, 1, timeout=timeout)


def test_a_run_may_have_no_deadline() -> None:
    assert multirank.run(rank, 1, timeout=float("inf")).results == [0]


# ---------------------------------------------------------------- a rank is an ordinary process


def test_ranks_work_in_the_callers_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert multirank.run(os.getcwd, 2).results == [str(tmp_path)] * 2


def test_ranks_do_not_share_their_random_numbers() -> None:
    first, second = multirank.run(lambda: random.random(), 2).results
    assert first != second


def test_a_rank_has_pythons_own_signals_and_warnings() -> None:
    def look() -> list[Any]:
        import signal
        import warnings

        return [
            signal.getsignal(signal.SIGINT) is signal.default_int_handler,
            signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL,
            signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
            any(entry[2] is DeprecationWarning for entry in warnings.filters),
        ]

    assert multirank.run(look, 1).results == [[True, True, True, True]]


def test_a_rank_may_run_programs_and_sees_how_they_end() -> None:
    def call() -> int:
        import subprocess

        return subprocess.run(["sh", "-c", "echo from below; exit 3"], check=False).returncode

    run = multirank.run(call, 1)
    assert run.results == [3]
    assert run.ranks[0].log == "from below\n"


def test_a_rank_holds_nothing_of_its_leaders() -> None:
    def held() -> list[str]:
        found = []
        for entry in Path("/proc/self/fd").iterdir():
            try:
                found.append(str(entry.readlink()).split(":")[0])
            except OSError:
                continue  # the listing's own
        return found

    found = multirank.run(held, 1, process_group=False).results[0]
    assert found.count("pipe") == 2  # standard output and error
    assert found.count("socket") == 1


def test_a_child_that_returns_from_the_function_does_not_answer_for_the_rank() -> None:
    def fork() -> int:
        return os.fork()

    with World(1) as world:
        assert world.call(fork).results[0] > 0
        time.sleep(0.1)
        assert world.call(rank).results == [0]
        assert world.call(rank_plus, 5).results == [5]


def test_what_a_rank_prints_is_its_log() -> None:
    def talk() -> None:
        print("one")
        print("two", file=sys.stderr)
        sys.stdout.write("three ")
        sys.stdout.flush()
        os.write(1, b"\xff four")

    logs = [entry.log for entry in multirank.run(talk, 2).ranks]
    assert sorted(logs[0].split()) == sorted(["one", "two", "three", "\ufffd", "four"])
    assert logs[0].startswith("one\ntwo\n")
    assert logs[0] == logs[1]


def test_every_call_has_a_log_of_its_own() -> None:
    with World(1) as world:
        assert world.call(print, "first").ranks[0].log == "first\n"
        assert world.call(print, "second").ranks[0].log == "second\n"
