"""A class of twelve, for real: right submissions, stubs, mistakes, attacks, broken archives."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

from autograder.selfcheck.mutants import MUTANTS
from tests.autograder.attacks.corpus import load
from tests.autograder.submissions import reference_files, stub_files

_MUTANTS = ("broadcast", "shard_batch", "partition_layers", "vocab_embedding")
_ATTACKS = {
    "leaves": "ends_with_success_when_it_is_imported",
    "compares": "replaces_what_compares_and_returns_nothing_right",
    "nan": "returns_nan_everywhere",
}


def write(at: Path) -> Path:
    """Puts the class into a folder that does not exist yet."""
    at.mkdir()
    _folder(at / "reference", reference_files())
    _zip(at / "reference-zipped.zip", reference_files())
    _folder(at / "stub", stub_files())
    for problem in _MUTANTS:
        mutant = next(one for one in MUTANTS if one.problem == problem)
        _folder(at / f"mutant-{problem}", mutant.files)
    known = {attack.name: attack for attack in load()}
    for name, attack in _ATTACKS.items():
        known[attack].write(at / f"attack-{name}", at, "CANARY-0000000000")
    (at / "broken.zip").write_bytes((at / "reference-zipped.zip").read_bytes()[:-500])
    (at / "empty.tar.gz").write_bytes(b"")
    return at


def _folder(at: Path, files: Mapping[str, bytes]) -> None:
    at.mkdir()
    for name, content in files.items():
        (at / name).write_bytes(content)


def _zip(at: Path, files: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(at, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"homework/assignment/{name}", content)
