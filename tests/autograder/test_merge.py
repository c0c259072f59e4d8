"""The CPU and the GPU result of one submission come together, and no others."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autograder import cli, merge
from autograder.grade import About, Grade, Outcome, Row
from autograder.manifest import Problem
from autograder.policy import Decision
from autograder.report import gradescope
from autograder.report.record import grade_record


def graded(
    backend: str,
    points: int,
    earned: int,
    *,
    digest: str = "d" * 64,
    torch: str = "2.13.0+cpu",
    grader: str = "abc",
    inputs: str = "fingerprint",
    factor: Fraction = Fraction(1),
    added: Fraction = Fraction(0),
) -> Grade:
    problem = Problem("one", "1.1", "one", "One", Fraction(points), "m", ("one",))
    rows = [
        Row(f"one/{at}", "one", "1.1", f"1.1.{at}", "A check", "values", Fraction(1))
        for at in range(points)
    ]
    about = About(
        course="A course",
        digest=digest,
        backend=backend,
        versions={"grader": grader, "torch": torch},
        decision=Decision(factor),
        added=added,
        secret_fingerprint=inputs,
        finished="2026-01-01T00:01:00+00:00",
    )
    grade = Grade([problem], rows, about)
    for at in range(earned):
        grade.record(f"one/{at}", Outcome.PASSED)
    return grade


def put(folder: Path, grade: Grade, *, platforms: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ("results.json" if platforms else "grade.json")
    raw = gradescope.results(grade) if platforms else grade_record(grade)
    path.write_text(json.dumps(raw))
    return path


def cpu(folder: Path, **more: Any) -> Path:
    return put(folder, graded("gloo", 10, 8, **more))


def gpu(folder: Path, **more: Any) -> Path:
    return put(folder, graded("nccl", 4, 3, **{"torch": "2.13.0+cu130", **more}))


def test_the_points_of_both_add_up(tmp_path: Path) -> None:
    (one,) = merge.merge([cpu(tmp_path / "cpu"), gpu(tmp_path / "gpu")])
    assert (one.total, one.good, one.note) == (Fraction(11), True, "")


def test_it_does_not_matter_which_is_named_first(tmp_path: Path) -> None:
    places = [gpu(tmp_path / "gpu"), cpu(tmp_path / "cpu")]
    assert merge.merge(places) == merge.merge(places[::-1])


def test_what_is_late_is_late_on_gpus_too(tmp_path: Path) -> None:
    first = cpu(tmp_path / "cpu", factor=Fraction(1, 2))
    (one,) = merge.merge([first, gpu(tmp_path / "gpu")])
    assert one.total == Fraction(11, 2)


def test_results_as_a_platform_gives_them_back_will_do(tmp_path: Path) -> None:
    first = put(tmp_path / "cpu", graded("gloo", 10, 8), platforms=True)
    (one,) = merge.merge([first, gpu(tmp_path / "gpu")])
    assert one.total == 11


@pytest.mark.parametrize("platforms", [False, True])
def test_points_that_people_added_are_kept(tmp_path: Path, platforms: bool) -> None:
    late = graded("gloo", 10, 8, factor=Fraction(1, 2), added=Fraction(3, 4))
    first = put(tmp_path / "cpu", late, platforms=platforms)
    (one,) = merge.merge([first, gpu(tmp_path / "gpu")])
    assert one.total == Fraction(11, 2) + Fraction(3, 4)
    taken = cpu(tmp_path / "taken", added=Fraction(-100))
    (one,) = merge.merge([taken, gpu(tmp_path / "gpu")])
    assert one.total == 0


def test_points_that_were_added_to_the_gpus_result_are_named_and_not_counted(
    tmp_path: Path,
) -> None:
    first = cpu(tmp_path / "cpu", added=Fraction(1))
    (one,) = merge.merge([first, gpu(tmp_path / "gpu", added=Fraction(1))])
    assert one.total == 12
    assert one.note == (
        "1 points of adjustments lie with the result of the GPU machine and do not count: write "
        "them into adjustments.csv beside that of the CPU machine"
    )


@pytest.mark.parametrize(
    ("other", "note"),
    [
        ({"digest": "e" * 64}, "they are results of different submissions"),
        ({"grader": "xyz"}, "different versions of grader: abc and xyz"),
        ({"torch": "2.14.0+cu130"}, "different versions of torch: 2.13.0 and 2.14.0"),
        ({"inputs": "another"}, "different versions of inputs: fingerprint and another"),
    ],
    ids=["submission", "grader", "torch", "secret"],
)
def test_results_that_do_not_belong_together_have_no_total(
    tmp_path: Path, other: dict[str, Any], note: str
) -> None:
    (one,) = merge.merge([cpu(tmp_path / "cpu"), gpu(tmp_path / "gpu", **other)])
    assert (one.total, one.good) == (None, False)
    assert note in one.note


def test_two_of_one_kind_are_refused(tmp_path: Path) -> None:
    (one,) = merge.merge([cpu(tmp_path / "a"), cpu(tmp_path / "b")])
    assert not one.good
    assert "two results of one kind" in one.note


def test_what_could_not_be_judged_is_noted(tmp_path: Path) -> None:
    grade = graded("gloo", 10, 8)
    grade.record("one/9", Outcome.GRADER_FAULT, message="not your fault")
    (one,) = merge.merge([put(tmp_path / "cpu", grade), gpu(tmp_path / "gpu")])
    assert one.good
    assert one.note == "1 points could not be judged yet"


def results(tmp_path: Path) -> list[Path]:
    """A class, graded on two machines: one as it should be, one without, one mixed up."""
    for name in ("ann", "bob", "=cy"):
        cpu(tmp_path / "cpu" / name)
    gpu(tmp_path / "gpu" / "ann")
    gpu(tmp_path / "gpu" / "=cy", digest="e" * 64)
    return [tmp_path / "cpu", tmp_path / "gpu"]


def test_a_class_is_merged_by_the_names_of_its_folders(tmp_path: Path) -> None:
    out = tmp_path / "grades.csv"
    arguments = ["merge", *map(str, results(tmp_path)), "--out", str(out)]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 2
    assert "3 submissions, 2 of them merged" in done.output
    rows = {row["submission"]: row for row in csv.DictReader(io.StringIO(out.read_text()))}
    ann, bob, cy = rows["ann"], rows["bob"], rows["'=cy"]
    assert [ann[name] for name in ("points", "out_of", "gpu_points", "gpu_out_of", "total")] == [
        *("8", "10", "3", "4", "11")
    ]
    assert (bob["gpu_points"], bob["adjustment"], bob["total"]) == ("", "", "8")
    assert bob["note"] == "there is no result of a GPU machine"
    assert (cy["total"], cy["note"]) == ("", "they are results of different submissions")


def test_it_is_json_too(tmp_path: Path) -> None:
    out = tmp_path / "grades.json"
    arguments = ["merge", str(cpu(tmp_path / "a")), str(gpu(tmp_path / "b")), "--out", str(out)]
    assert CliRunner().invoke(cli.app, arguments).exit_code == 0
    (one,) = json.loads(out.read_text())
    assert one["total"] == "11"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: folder / "none", "there is no grade.json and no results.json in there"),
        (lambda folder: folder, "there is no grade.json and no results.json in there"),
        (lambda folder: _written(folder, "{}"), "is no finished result of this grader"),
        (lambda folder: _written(folder, "[1]"), "is no finished result of this grader"),
    ],
    ids=["nothing", "an empty folder", "another file", "a list"],
)
def test_what_is_no_result_is_named(
    tmp_path: Path, make: Callable[[Path], Path], said: str
) -> None:
    arguments = ["merge", str(make(tmp_path)), "--out", str(tmp_path / "out.csv")]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 2
    assert said in done.output.replace("\n", "")


def _written(folder: Path, text: str) -> Path:
    (folder / "grade.json").write_text(text)
    return folder


def test_the_file_must_be_one_of_two_kinds(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.app, ["merge", str(tmp_path), "--out", "x.txt"])
    assert done.exit_code == 2
    assert "name a file that ends in .csv or .json" in done.output
