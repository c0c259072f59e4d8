"""Whether the handout that lies in handouts/ was built from the sources as they are now.

`python -m handouts.build` seals what it has built: it notes a digest of the sources that it began
with, and one of each file. A release takes both files, of one build, or none. The page has every
word of the PDF, and can be searched for leaks; the PDF holds numbers of glyphs, and cannot.
"""

from __future__ import annotations

import hashlib
import json

from autograder.paths import ROOT

HANDOUTS = ROOT / "handouts"
FILES = ("handout.pdf", "handout.html")
_SEAL = "handout.json"
_SOURCES = ("handouts", "multirank", "reference", "autograder/manifest.py", "autograder/policy.py")
_BUILT = (*FILES, "staff.pdf", _SEAL)


def sources() -> str:
    """A digest of everything that the handout is built from."""
    digest = hashlib.sha256()
    for source in _SOURCES:
        for path in sorted([ROOT / source, *(ROOT / source).rglob("*")]):
            built = path.parent == ROOT / "handouts" and path.name in _BUILT
            if path.is_file() and "__pycache__" not in path.parts and not built:
                name = path.relative_to(ROOT).as_posix()
                digest.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def seal(built_from: str) -> None:
    """Notes what both files were built from: what `sources` was before."""
    (HANDOUTS / _SEAL).write_text(_seal(built_from, _lying()), encoding="utf-8")


def files() -> dict[str, bytes]:
    """What students get: both files where they are of one build, from the sources as they are."""
    lying = _lying()
    return {} if _wrong(lying) else lying


def wrong() -> str:
    """Why a handout that lies there must not be released, and what to do; "" where all is well."""
    return _wrong(_lying())


def _wrong(lying: dict[str, bytes]) -> str:
    if not lying:
        return ""
    if missing := [name for name in FILES if name not in lying]:
        return f"handouts/{missing[0]} is missing beside {', '.join(lying)}; run make handout"
    seal = HANDOUTS / _SEAL
    if not seal.is_file() or seal.read_text("utf-8") != _seal(sources(), lying):
        return (
            f"handouts/{' and '.join(FILES)} were not both built from the sources as they are now; "
            "run make handout, or remove both to release without a handout"
        )
    return ""


def _lying() -> dict[str, bytes]:
    return {name: (HANDOUTS / name).read_bytes() for name in FILES if (HANDOUTS / name).is_file()}


def _seal(built_from: str, lying: dict[str, bytes]) -> str:
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in lying.items()}
    return json.dumps({"sources": built_from, **digests}, indent=1) + "\n"
