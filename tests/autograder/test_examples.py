"""The examples and the schedule view, on the reference and on the stubs, and on a mistake."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch.distributed as dist

import assignment.examples.train_mlp
import assignment.examples.transformer_block
import assignment.schedule_view
import multirank
import reference.examples.mlp_modes
import reference.examples.train_mlp
import reference.examples.transformer_block
import reference.schedule_view

SMALL = ["--steps", "2", "--batch", "16", "--width", "32"]
NAMES = [
    name
    for kind, variants in reference.examples.mlp_modes.MODES.items()
    if kind != "none"
    for name in variants
]


def told(out: str, name: str) -> str:
    """What is said of a training in the end."""
    (line,) = [line for line in out.splitlines() if line.startswith(f"{name}: ")]
    return line.removeprefix(f"{name}: ")


def test_the_reference_finds_the_same_losses_in_every_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference.examples.train_mlp.main([*SMALL, "--out", str(tmp_path)])
    out = capsys.readouterr().out
    for name in NAMES:
        assert told(out, name).startswith("the same as one process"), name
    pages = {page.name: page.read_text() for page in tmp_path.iterdir()}
    assert sorted(pages) == ["ddp.html", "losses.svg", "none.html", "pipeline.html", "tensor.html"]
    for title in ("ddp, naive", "ddp, flat", "ddp, overlapped"):
        assert title in pages["ddp.html"]


def test_naive_and_flat_can_run_on_the_collectives_of_part_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*SMALL, "--parallel", "ddp", "--collectives", "own", "--out", str(tmp_path)]
    reference.examples.train_mlp.main(arguments)
    out = capsys.readouterr().out
    for name in ("ddp, naive", "ddp, flat", "ddp, overlapped"):
        assert told(out, name).startswith("the same as one process")
    assert "collectives.py" in (tmp_path / "ddp.html").read_text()
    assert not (tmp_path / "tensor.html").exists()


def test_on_the_stubs_every_training_names_what_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assignment.examples.train_mlp.main([*SMALL, "--out", str(tmp_path)])
    out = capsys.readouterr().out
    for name in NAMES:
        assert "not written yet" in told(out, name)
    assert "Traceback" not in out
    ElementTree.parse(tmp_path / "losses.svg")


class Forgetful(reference.examples.mlp_modes.DataParallel):
    """Averages nothing."""

    def synchronize(self) -> None:
        """Forgets it."""


def test_a_training_that_goes_another_way_is_told_from_its_second_step_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    variants = {"ddp, naive": Forgetful}
    monkeypatch.setitem(reference.examples.mlp_modes.MODES, "ddp", variants)
    arguments = [*SMALL, "--parallel", "ddp", "--out", str(tmp_path)]
    reference.examples.train_mlp.main(arguments)
    assert told(capsys.readouterr().out, "ddp, naive").startswith("another loss from step 2 on")


class Broken(Forgetful):
    """Raises on one rank, in its second step."""

    def synchronize(self) -> None:
        """The rest waits for it."""
        self.calls = getattr(self, "calls", 0) + 1
        if multirank.context().rank == 1 and self.calls == 2:
            raise RuntimeError("no bucket left")
        dist.barrier()


def test_a_training_that_fails_is_told_with_its_story_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    overlapped = reference.examples.mlp_modes.OverlappedDataParallel
    variants = {"ddp, naive": Broken, "ddp, overlapped": overlapped}
    monkeypatch.setitem(reference.examples.mlp_modes.MODES, "ddp", variants)
    with pytest.raises(SystemExit, match="1"):
        reference.examples.train_mlp.main([*SMALL, "--parallel", "ddp", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert "ddp, naive fails:\nrank 1 of 4 raised:" in out
    assert told(out, "ddp, overlapped").startswith("the same as one process")
    assert "ddp, naive: left out (it fails)" in (tmp_path / "losses.svg").read_text()
    assert "no bucket left" in (tmp_path / "ddp.html").read_text()


def test_the_block_of_the_reference_sends_one_all_reduce_for_each_half_and_direction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "block.html"
    reference.examples.transformer_block.main(["--out", str(page)])
    out = capsys.readouterr().out
    assert "forward:    2 all_reduce\nbackward:   2 all_reduce\n" in out
    assert "differs" not in out
    assert page.exists()


def test_on_the_stubs_the_block_names_what_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^Problem 4.\d, ParallelAttention.*not written yet"):
        assignment.examples.transformer_block.main(["--out", str(tmp_path / "block.html")])


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_a_real_run_is_drawn_beside_the_plan(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "schedule.svg"
    arguments = [name, "--stages", "3", "--microbatches", "4", "--run", "--out", str(picture)]
    reference.schedule_view.main(arguments)
    out = capsys.readouterr().out
    assert "bubble:     33.3% of the time   ((p-1)/(m+p-1) is 33.3%)" in out
    peaks = "4, 4, 4" if name == "gpipe" else "3, 2, 1"
    assert f"in flight:  at most {peaks} on the stages" in out
    assert "where 12 are planned" in out
    svg = picture.read_text()
    assert svg.count("<title>") == 2 * 2 * 3 * 4
    assert picture.with_suffix(".html").exists()


def test_on_the_stubs_the_schedule_view_names_what_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^Problem 5.\d, one_f_one_b: not written yet"):
        assignment.schedule_view.main(["1f1b", "--out", str(tmp_path / "schedule.svg")])
