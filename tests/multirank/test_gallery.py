"""The gallery of hangs: each ends at once, with an explanation of its own lines."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import multirank
from multirank.gallery import GALLERY, WORLD_SIZE, main, show
from multirank.proving.verdict import WIDTH


@pytest.mark.parametrize("function", GALLERY, ids=lambda function: function.__name__)
def test_each_hang_is_shown_with_its_code_and_explained_within_a_second(
    function: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    run = show(function)
    shown = capsys.readouterr().out
    assert run.verdict is not None, run.story
    assert run.seconds < max(1.0, 2 * os.getloadavg()[0] / (os.cpu_count() or 1))
    lines, first = inspect.getsourcelines(function)
    named = {int(line) for line in re.findall(r"gallery\.py:(\d+)", run.verdict.story)}
    assert named
    assert named < set(range(first, first + len(lines)))
    for line in named:
        assert re.search(rf"^ +{line} .*dist\.", shown, re.MULTILINE)
    assert run.verdict.story in shown
    assert (function.__doc__ or "") in " ".join(shown.split())
    assert all(len(line) <= WIDTH for line in shown.splitlines())


def test_there_are_eleven() -> None:
    assert len(GALLERY) == len({function.__name__ for function in GALLERY}) == 11


def test_those_that_are_named_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    main(["only_rank_0_logs"])
    shown = capsys.readouterr().out
    assert "only_rank_0_logs" in shown
    assert "different_order" not in shown


def test_each_can_be_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "pictures"
    main(["different_tags", "uneven_batches", "--timeline", str(folder)])
    assert sorted(file.name for file in folder.iterdir()) == [
        *("different_tags.html", "uneven_batches.html")
    ]
    picture = (folder / "uneven_batches.html").read_text(encoding="utf-8")
    assert "<title>Uneven batches</title>" in picture
    assert "waits for ever" in picture
    assert f"Drawn in {folder / 'uneven_batches.html'}" in capsys.readouterr().out


def test_a_name_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nothing"])
    told = capsys.readouterr().err
    assert "'nothing' is not in the gallery" in told
    assert "everybody_sends_first" in told


def test_the_gallerys_hangs_hang_on_other_numbers_of_ranks_too() -> None:
    for function in GALLERY[:2]:
        run = multirank.run(function, WORLD_SIZE + 2, timeout=10, check=False)
        assert run.verdict is not None
        assert len(run.verdict.ranks) == WORLD_SIZE + 2
