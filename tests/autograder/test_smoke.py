"""The smoke kit says what its submissions score, and they score it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from autograder import smoke
from autograder.grade import points_text
from autograder.intake import take
from autograder.manifest import Manifest
from autograder.selfcheck.alternatives import ALTERNATIVES
from autograder.selfcheck.mutants import MUTANTS
from tests.autograder.submissions import SMALL, graded, small_manifest


def made(manifest: Manifest, out: Path) -> list[dict[str, str]]:
    smoke.write(manifest, out, lambda _: None)
    return list(csv.DictReader(io.StringIO((out / smoke.EXPECTED).read_text())))


@pytest.mark.slow
@pytest.mark.nightly
def test_every_submission_of_the_kit_scores_what_the_kit_says(tmp_path: Path) -> None:
    rows = made(SMALL, tmp_path)
    assert len(rows) == 2 + 5 + 2
    told = (tmp_path / smoke.README).read_text()
    for row in rows:
        submission = take(tmp_path / f"{row['submission']}.zip", SMALL.modules)
        assert submission.ignored == []
        grade = graded(submission.files, manifest=SMALL)
        assert points_text(grade.earned) == row["score"], row
        assert f"| {row['submission']}.zip | {row['score']} of {row['out_of']} |" in told
    scores = {row["submission"]: float(row["score"]) for row in rows}
    full = float(SMALL.total_points)
    assert scores["reference"] == scores["right-1"] == scores["right-2"] == full
    assert scores["stub"] == 0
    assert all(0 < scores[name] < full for name in scores if name.startswith("mistake"))


def test_a_mistake_in_what_a_course_leaves_out_is_left_out(tmp_path: Path) -> None:
    rows = made(small_manifest("partition_layers"), tmp_path)
    assert [row["submission"] for row in rows] == ["reference", "stub", "mistake-5"]
    assert [row["score"] for row in rows] == ["1", "0", "0.15"]


def test_the_kit_names_submissions_that_the_selfcheck_tries() -> None:
    assert set(smoke.MISTAKES) <= {one.name for one in MUTANTS}
    assert set(smoke.RIGHT) <= {one.name for one in ALTERNATIVES}
    assert not any(one.but for one in ALTERNATIVES if one.name in smoke.RIGHT)
