"""What the tests that students run say of typical first mistakes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autograder.paths import ROOT

from .submissions import stub_files

_AVERAGES_OVER_ALL = """
    others = [torch.empty_like(flat) for _ in ranks]
    handles = [dist.isend(flat.clone(), peer) for peer in ranks if peer != ranks[rank]]
    for other, peer in zip(others, ranks, strict=True):
        if peer == ranks[rank]:
            other.copy_(flat)
        else:
            dist.recv(other, peer)
    for handle in handles:
        handle.wait()
    total = others[0].clone()
    for other in others[1:]:
        combine(total, other, out=total)
    flat.copy_(total / dist.get_world_size() if op == ReduceOp.AVG else total)
"""
_BLOCKING_RING = """
    right, left = ranks[(rank + 1) % n], ranks[(rank - 1) % n]
    for _ in range(n - 1):
        dist.send(flat, right)
        dist.recv(flat, left)
"""
_TO_ITSELF_TOO = """
    if rank == root:
        for peer in ranks:
            dist.send(flat, peer)
    else:
        dist.recv(flat, src)
"""
_PLACES_FOR_RANKS = """
    if rank == root:
        for peer in range(n):
            if peer != src:
                dist.send(flat, peer)
    else:
        dist.recv(flat, src)
"""


def said(tmp_path: Path, body: dict[str, str], *arguments: str) -> str:
    """What pytest prints, in one line, when these functions are written and no others."""
    package = tmp_path / "tried"
    package.mkdir()
    text = stub_files()["collectives.py"].decode()
    for name, lines in body.items():
        stub = rf'    raise NotImplementedError\("Problem [\d.]+, {name}: not written yet"\)\n'
        text, found = re.subn(stub, lines, text)
        assert found == 1
    (package / "collectives.py").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "tests/assignment/test_collectives.py"),
            *("--implementation=tried", "-q", "-p", "no:cacheprovider", *arguments),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return " ".join(done.stdout.split())


_PLACE = "a place in the group being taken for a rank"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "test", "told", "not_told"),
    [
        ({"all_reduce": _BLOCKING_RING}, "in_a_subgroup", "everybody sends before", _PLACE),
        ({"broadcast": _TO_ITSELF_TOO}, "from_any_root", "being its own partner", _PLACE),
        ({"broadcast": _PLACES_FOR_RANKS}, "in_a_subgroup", _PLACE, "own partner"),
        ({"all_reduce": _AVERAGES_OVER_ALL}, "in_a_subgroup", "divided by 4", "passed"),
    ],
    ids=["blocking ring", "to itself", "places for ranks", "average over all ranks"],
)
def test_a_first_mistake_is_told_its_cause_and_no_other(
    tmp_path: Path, body: dict[str, str], test: str, told: str, not_told: str
) -> None:
    text = said(tmp_path, body, "-k", f"{next(iter(body))}_ and {test}")
    assert told in text
    assert not_told not in text


@pytest.mark.slow
def test_random_cases_try_one_function_while_others_are_not_written(tmp_path: Path) -> None:
    body = {"all_reduce": _AVERAGES_OVER_ALL}
    text = said(
        tmp_path, body, "-k", "random and all_reduce", "--fuzz", "2", "--fuzz-seed", "490554"
    )
    assert "all_reduce is wrong on rank" in text
    assert "[all_reduce]' --fuzz 1 --fuzz-seed" in text
    assert "1 failed" in text
