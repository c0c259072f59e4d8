"""Grading on GPUs, with all of NCCL pretended but its kernels: see tests/multirank."""

from __future__ import annotations

import ast
import csv
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from typer.testing import CliRunner

from autograder import backend as backends
from autograder import cli, judge
from autograder import manifest as manifests
from autograder.backend import GLOO, Backend, BackendName
from autograder.confine import counters, hooks, landlock, limits, privacy, process, seccomp, user
from autograder.confine.boundary import Boundary
from autograder.confine.modes import Confinement, Isolation
from autograder.failure import CheckFailed
from autograder.grade import About, Grade, Outcome
from autograder.grading import Grading
from autograder.inputs import known_secret
from autograder.manifest import Course, Manifest, load
from autograder.measured import setting
from autograder.paths import CASES, REFERENCE, ROOT
from benchmarks import gpus as gpu_benchmark
from tests.multirank.pretended_gpus import PRETEND

from .submissions import patched, reference_files

MANIFEST = load(REFERENCE)
FACTORIES = {"zeros", "ones", "empty", "full", "arange", "tensor", "eye", "rand", "randn"}


def gpus(count: int) -> Backend:
    return Backend(BackendName.NCCL, count, "a pretended GPU")


@contextmanager
def pretended(*_: Any) -> Iterator[Boundary]:
    yield Boundary(before_ranks=PRETEND)


def graded_on(
    count: int, only: list[str], monkeypatch: pytest.MonkeyPatch, files: Any = None
) -> Grade:
    monkeypatch.setattr(judge, "boundary", pretended)
    manifest = worth(20).on_gpus()
    files, reference = files or reference_files(), reference_files()
    about, secret = About(course="x"), known_secret(1)
    return Grading(manifest, files, reference, secret, about, only=only, backend=gpus(count)).run()


def worth(points: int) -> Manifest:
    return replace(MANIFEST, course=Course(MANIFEST.course.name, Fraction(points)))


# --- Which checks run ---------------------------------------------------------------------------


@pytest.mark.slow
def test_checks_run_on_as_many_gpus_as_they_need_and_the_others_need_hardware(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grade = graded_on(4, ["reduce"], monkeypatch)
    outcomes = [row.outcome for row in grade.rows_of("reduce")]
    assert outcomes.count(Outcome.PASSED) >= 4
    assert set(outcomes) == {Outcome.PASSED, Outcome.NEEDS_HARDWARE}
    (traffic,) = [row for row in grade.rows if row.check_id == "reduce/traffic"]
    assert traffic.message == "needs 8 GPUs, one for each rank; there are 4 here"


def test_what_is_wrong_on_gpus_is_told_as_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    grade = graded_on(2, ["all_reduce/sum"], monkeypatch, patched({"all_reduce": "return"}))
    (row,) = [row for row in grade.rows if row.check_id == "all_reduce/sum"]
    assert row.outcome is Outcome.FAILED
    assert any("nothing" in cause for cause in row.causes)


def test_nothing_that_is_not_about_gpus_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    grade = graded_on(0, ["bus_bandwidth", "time_op/slowest_rank"], monkeypatch)
    ran = [row for row in grade.rows if row.seconds is not None]
    assert len(ran) > 3
    assert {row.outcome for row in ran} == {Outcome.PASSED}


def test_one_gpu_is_told_of_in_the_singular() -> None:
    with pytest.raises(CheckFailed, match="needs 2 GPUs, one for each rank; there is 1 here"):
        gpus(1).require(2)
    gpus(2).require(2)
    GLOO.require(64)


# --- What it is worth ---------------------------------------------------------------------------


def test_a_grading_on_gpus_is_out_of_a_total_of_its_own() -> None:
    manifest = worth(20).on_gpus()
    assert manifest.total_points == 20
    shares = [problem.points / 20 for problem in manifest.problems]
    assert shares == [problem.points / MANIFEST.total_points for problem in MANIFEST.problems]
    assert worth(0).on_gpus().total_points == 0
    assert MANIFEST.course.gpu_points == 0


def test_without_points_of_their_own_they_are_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "boundary", pretended)
    about, files = About(course="x"), reference_files()
    grade = Grading(
        worth(0).on_gpus(),
        files,
        files,
        known_secret(1),
        about,
        only=["broadcast/from_rank_0"],
        backend=gpus(8),
    ).run()
    assert [grade.points, grade.earned] == [0, 0]
    assert {row.outcome for row in grade.rows if row.seconds is not None} == {Outcome.PASSED}


# --- What is measured ---------------------------------------------------------------------------


def test_gpus_are_measured_with_more_and_held_to_less() -> None:
    assert setting(GLOO).facts == {"world size": "4", "dtype": "float32", "size": "16 MiB"}
    assert setting(gpus(8)).facts == {"world size": "8", "dtype": "float32", "size": "64 MiB"}
    assert setting(gpus(1)).ranks == 2  # so that one needs hardware
    assert [setting(GLOO).room, setting(gpus(8)).room] == [Fraction(3, 2), Fraction(5, 4)]


def test_gpus_are_timed_by_their_own_events_after_a_call_in_which_ranks_meet() -> None:
    done: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            done.append("record")

        def elapsed_time(self, other: Event) -> float:
            return 2000.0

    for file, calls in (("collectives", 3), ("bandwidth", 1)):
        case = case_module(file, Event, done)
        tensor = torch.zeros(1)
        done.clear()
        if file == "collectives":
            seconds = case["seconds_on_gpu"](lambda _: done.append("call"), [tensor] * (calls + 1))
            assert done == ["call", "record", "call", "call", "call", "record", "synchronize"]
        else:
            seconds = case["seconds_on_gpu"](tensor)
            assert done == ["barrier", "record", "call", "record", "synchronize"]
        assert seconds == 2.0


def case_module(file: str, event: type, done: list[str]) -> dict[str, Any]:
    """A file of cases whose GPU is pretended."""
    names: dict[str, Any] = {"__name__": file}
    exec(compile((CASES / f"{file}.py").read_text(), file, "exec"), names)

    class Dist:
        @staticmethod
        def barrier(device_ids: list[int]) -> None:
            done.append("barrier")

        @staticmethod
        def all_reduce(tensor: torch.Tensor) -> None:
            done.append("call")

    names |= {"Event": event, "synchronize": lambda: done.append("synchronize"), "dist": Dist}
    return names


@pytest.mark.parametrize("file", sorted(path.name for path in CASES.glob("*.py")))
def test_every_tensor_that_a_case_makes_is_made_on_the_ranks_device(file: str) -> None:
    for node in ast.walk(ast.parse((CASES / file).read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner = node.func.value
        if isinstance(owner, ast.Name) and owner.id == "torch" and node.func.attr in FACTORIES:
            named = [keyword.arg for keyword in node.keywords]
            assert "device" in named, f"{file}, line {node.lineno}: torch.{node.func.attr}"


def test_bandwidth_is_measured_over_nccl_and_is_0_on_one_gpu() -> None:
    found = gpu_benchmark.rows([1, 2], 1 << 20, before_ranks=PRETEND)
    assert [(row["ranks"], row["of"]) for row in found] == [
        *((1, "torch"), (1, "reference")),
        *((2, "torch"), (2, "reference")),
    ]
    assert [row["gb_s"] > 0 for row in found] == [False, False, True, True]


def test_the_check_of_gpus_says_where_there_is_none(tmp_path: Path) -> None:
    there = tmp_path / "torch.py"
    there.write_text("class cuda:\n    device_count = staticmethod(lambda: 0)\n")
    environment = os.environ | {
        **{"PYTHONPATH": str(tmp_path), "PYTHON": sys.executable},
        **{"OUT": str(tmp_path / "out")},
    }
    done = subprocess.run(
        ["bash", str(ROOT / "benchmarks" / "gpu_check.sh")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.startswith("There is no GPU here")


# --- Confinement --------------------------------------------------------------------------------


def test_on_gpus_addresses_are_not_limited_and_sockets_not_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lowered: dict[int, Any] = {}
    monkeypatch.setattr(resource, "setrlimit", lambda which, to: lowered.update({which: to}))
    limits.lower(2, gpus=True)
    assert resource.RLIMIT_NPROC in lowered
    assert resource.RLIMIT_AS not in lowered
    limits.lower(2)
    assert resource.RLIMIT_AS in lowered
    connect = seccomp.refused(seccomp.REFUSED["connect"][0])
    for connecting in (True, False):
        code = seccomp.program(1, listening=False, arm=False, connecting=connecting)
        refuses = any(code[at : at + 2] == connect for at in range(len(code)))
        assert refuses is not connecting


def test_the_plan_of_a_world_on_gpus_reaches_every_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr(limits, "go_first", lambda: None)
    monkeypatch.setattr(landlock, "restrict", lambda readable, gpus: told.update(landlock=gpus))
    monkeypatch.setattr(limits, "lower", lambda size, gpus: told.update(limits=gpus))
    monkeypatch.setattr(seccomp, "install", lambda listening, gpus: told.update(seccomp=gpus))
    monkeypatch.setattr(user, "drop", lambda uid, home: None)
    monkeypatch.setattr(process, "harden", lambda: None)
    monkeypatch.setattr(os, "chown", lambda *_: None)
    monkeypatch.setattr(counters, "mark", lambda uid, rank: None)
    monkeypatch.setattr(tempfile, "mkdtemp", lambda prefix: "")
    context = SimpleNamespace(rendezvous="", rank=0, world_size=2)
    for gpus in (True, False):
        plan = hooks.Plan(1, False, True, False, gpus, [], [])
        hooks.confine_leader(plan)
        hooks.confine_rank(context, plan)
        assert told == {"landlock": gpus, "limits": gpus, "seccomp": gpus}


def test_where_nccl_could_reach_others_a_result_is_not_official(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    container = Confinement(Isolation.CONTAINER, (landlock.NAME,))
    monkeypatch.setattr(privacy, "_networks", lambda: ["eth0"])
    (why,) = privacy.why_not_official(container, connecting=True)
    assert "this container has a network (eth0)" in why
    assert privacy.why_not_official(container) == []
    assert privacy.why_not_official(Confinement(Isolation.FULL, ()), connecting=True) == []
    monkeypatch.setattr(privacy, "_networks", list)
    assert privacy.why_not_official(container, connecting=True) == []


# --- The command line ---------------------------------------------------------------------------


def test_a_backend_that_does_not_work_here_is_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    out = tmp_path / "out"
    arguments = ["grade", str(REFERENCE), "--backend", "nccl", "--out", str(out)]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 2
    assert "this torch was built without NCCL" in done.output
    assert not out.exists()


def test_the_backend_is_found_with_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(backends.NoSuchBackend, match="sees no GPU here"):
        backends.find(BackendName.NCCL)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a card")
    assert backends.find(BackendName.NCCL) == Backend(BackendName.NCCL, 2, "a card")
    assert backends.find(BackendName.GLOO) == GLOO


@pytest.mark.parametrize(
    ("count", "nccl", "name"),
    [
        (8, True, "nccl"),
        (4, True, "nccl"),
        (3, True, "gloo"),
        (0, True, "gloo"),
        (8, False, "gloo"),
    ],
)
def test_auto_takes_nccl_where_there_are_enough_gpus(
    monkeypatch: pytest.MonkeyPatch, count: int, nccl: bool, name: str
) -> None:
    monkeypatch.setattr(dist, "is_nccl_available", lambda: nccl)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a card")
    assert backends.find(BackendName.AUTO).name == name


def test_a_class_is_graded_on_both_machines_and_merged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The loop of image/README.md: what was exported is graded on GPUs, and merged into a CSV."""
    monkeypatch.setattr(privacy, "why_not_official", lambda *_, **__: [])
    for name in ("submission_1", "submission_2"):
        (tmp_path / "export" / name).mkdir(parents=True)
        for file, content in reference_files().items():
            (tmp_path / "export" / name / file).write_bytes(content)
    with (tmp_path / "export" / "submission_2" / "collectives.py").open("a") as file_:
        file_.write("\ndef broadcast(*_):\n    pass\n")
    grade_all("gloo", tmp_path, "cpu")
    monkeypatch.setattr(judge, "boundary", pretended)
    monkeypatch.setattr(backends, "find", lambda asked: gpus(4))
    monkeypatch.setattr(manifests, "load", lambda _: worth(20))
    grade_all("auto", tmp_path, "gpu")
    out = tmp_path / "grades.csv"
    places = [str(tmp_path / "cpu"), str(tmp_path / "gpu")]
    done = CliRunner().invoke(cli.app, ["merge", *places, "--out", str(out)])
    assert done.exit_code == 0, done.output
    first, second = csv.DictReader(out.open())
    of_all = 20 * MANIFEST.problem("broadcast").points / MANIFEST.total_points / 5
    assert first["submission"] == "submission_1"
    assert Fraction(first["points"]) == MANIFEST.problem("broadcast").points / 5
    assert (first["out_of"], first["gpu_out_of"]) == ("100", "20")
    assert Fraction(first["gpu_points"]) == round(of_all, 2)
    assert Fraction(first["total"]) == Fraction(first["points"]) + round(of_all, 2)
    assert [second["points"], second["gpu_points"], second["total"]] == ["0", "0", "0"]


def grade_all(backend: str, folder: Path, to: str) -> None:
    for path in sorted((folder / "export").iterdir()):
        out = str(folder / to / path.name)
        options = ["--backend", backend, "--only", "broadcast/from_rank_0", "--seed", "1"]
        done = CliRunner().invoke(cli.app, ["grade", str(path), "--out", out, *options])
        assert done.exit_code == 0, done.output
