"""The programs in examples/: what they make of what they are given, or of what is not written."""

from __future__ import annotations

import importlib
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

SVG = "{http://www.w3.org/2000/svg}"
CURVES = {"one process": [3.0, 2.0, 1.0], "ddp": [3.0, 2.0001, 1.0], "tensor": [3.0, 2.5, 2.0]}


@pytest.fixture
def chart(implementation: str) -> Any:
    return importlib.import_module(f"{implementation}.examples.loss_chart")


@pytest.fixture
def train_mlp(implementation: str) -> Any:
    return importlib.import_module(f"{implementation}.examples.train_mlp")


@pytest.fixture
def block(implementation: str) -> Any:
    return importlib.import_module(f"{implementation}.examples.transformer_block")


def test_curves_are_told_apart_only_where_rounding_cannot_be_why(chart: Any) -> None:
    right = CURVES["one process"]
    assert chart.told(CURVES["ddp"], right) == "the same as one process, to within 5e-05"
    assert chart.told(CURVES["tensor"], right) == "another loss from step 2 on, by up to 100.0%"
    assert chart.told([3.0, 2.0, float("nan")], right) == "another loss from step 3 on"


def test_the_chart_has_a_curve_for_each_training_and_names_what_is_missing(chart: Any) -> None:
    svg = ElementTree.fromstring(chart.draw(CURVES, ["pipeline: left out (5.6 < 6)"]))
    texts = [text.text for text in svg.iter(f"{SVG}text")]
    assert "one process" in texts
    assert "ddp: the same as one process, to within 5e-05" in texts
    assert "pipeline: left out (5.6 < 6)" in texts
    curves = [path for path in svg.iter(f"{SVG}path") if path.get("stroke-dasharray")]
    assert len({path.get("stroke-dashoffset") for path in curves}) == len(CURVES)


def test_one_step_and_losses_that_are_no_numbers_are_drawn(chart: Any) -> None:
    ElementTree.fromstring(chart.draw({"one process": [2.0], "ddp": [2.0]}))
    nan, infinite = float("nan"), float("inf")
    ElementTree.fromstring(chart.draw({"one process": [2.0, 1.0], "ddp": [nan, -infinite]}))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--steps", "0"], "--steps must be at least 1"),
        (["--batch", "30"], "must be multiples of --ranks, 4"),
        (["--layers", "5"], "must be even"),
        (["--layers", "2"], "at least as many as --ranks"),
        (["--batch", "4"], "so many are the micro-batches"),
        (["--parallel", "expert"], "invalid choice"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    train_mlp: Any, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        train_mlp.main(arguments)
    assert told in capsys.readouterr().err


def test_every_training_finds_the_same_losses_or_is_named_as_not_written(
    train_mlp: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--steps", "2", "--batch", "16", "--width", "32"]
    train_mlp.main([*small, "--collectives", "own", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    svg = ElementTree.parse(tmp_path / "losses.svg")
    drawn = [str(text.text) for text in svg.iter(f"{SVG}text")]
    names = [name for variants in train_mlp.MODES.values() for name in variants]
    assert names[0] in drawn
    for name in names[1:]:
        (told,) = [line for line in out.splitlines() if line.startswith(f"{name}:")]
        assert "the same as one process" in told or "not written yet" in told, told
        assert told in drawn
    assert "one process, step" in out
    assert (tmp_path / "none.html").exists()


def test_the_block_agrees_with_the_one_on_a_single_process_or_is_not_written(
    block: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "block.html"
    why = ""
    try:
        block.main(["--ranks", "2", "--out", str(page)])
    except SystemExit as stopped:
        why = str(stopped)
    if why:
        assert "not written yet. It is needed for this." in why
        return
    out = capsys.readouterr().out
    assert "gradient of attention.o_proj.bias" in out
    assert "differs" not in out
    assert "all_reduce" in out
    assert page.exists()


def test_what_differs_is_told_with_its_rank(block: Any) -> None:
    results = [{"output": 1e-7, "mlp.fc2.bias": 1e-7}, {"output": 0.0, "mlp.fc2.bias": 0.75}]
    lines = block.agreement(results)
    assert lines[-2].split() == ["output", "1.0e-07"]
    assert lines[-1].split(maxsplit=3)[:3] == ["gradient", "of", "mlp.fc2.bias"]
    assert lines[-1].endswith("differs, most on rank 1")
