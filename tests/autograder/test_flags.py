"""What is flagged in a submission for the staff, and that nothing breaks the search for it."""

from __future__ import annotations

import time

import pytest

from autograder.flags import suspicions

from .submissions import MANIFEST, reference_files, stub_files


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("os._exit(0)", "ends or signals processes"),
        ("import subprocess", "starts processes"),
        ("libc = ctypes.CDLL(None)", "reaches below Python"),
        ("open('/proc/1/mem')", "reaches below Python"),
        ("import socket", "uses the network"),
        ("import requests", "uses the network"),
        ("requests.post(url, data)", "uses the network"),
        ("sys._getframe(1).f_locals", "looks into its callers"),
        ("for x in gc.get_objects(): pass", "looks into its callers"),
        ("torch.equal = lambda *a: True", "replaces what others use"),
        ("    time.monotonic = lambda: 0", "replaces what others use"),
        ("setattr(dist, 'send', fake)", "replaces what others use"),
        ("sys.modules['torch'] = None", "replaces what others use"),
        ("f.__code__ = g.__code__", "replaces what others use"),
        ("with open('cache') as f: pass", "could pass data past the record"),
        ("mmap.mmap(-1, 9)", "could pass data past the record"),
        ("group._inner.broadcast([x])", "could communicate past the record"),
        ("from multirank.recording import watch", "could communicate past the record"),
        ("torch.ops.c10d.allreduce_([x])", "could communicate past the record"),
        ("store = c10d._get_default_store()", "could communicate past the record"),
        ("def __reduce__(self): pass", "packs objects that run code"),
    ],
)
def test_an_odd_line_is_named_with_its_place_and_why(line: str, why: str) -> None:
    found = suspicions({"collectives.py": f"import torch\n\n{line}\n".encode()})
    assert any(why in flag and flag.startswith("collectives.py, line 3: ") for flag in found)


def test_the_reference_and_the_stubs_are_not_odd_nor_is_an_edited_solution() -> None:
    assert suspicions(reference_files()) == []
    assert suspicions(stub_files()) == []
    written = {problem.module for problem in MANIFEST.problems}
    for module in written:
        text = reference_files()[f"{module}.py"]
        assert suspicions({f"{module}.py": text + b"\n"}) == []


def test_what_was_handed_out_is_not_odd_until_it_is_changed() -> None:
    progress = reference_files()["progress.py"]
    assert suspicions({"progress.py": progress}) == []
    odd = suspicions({"progress.py": progress + b"\n"})
    assert any("starts processes" in flag for flag in odd)


@pytest.mark.parametrize(
    "line",
    [
        "x = torch.equal(a, b)",
        "if time.time() == 3:",
        "exits = 1",
        "requests.append(dist.isend(piece, peer))",
    ],
)
def test_ordinary_lines_are_not_odd(line: str) -> None:
    assert suspicions({"m.py": line.encode()}) == []


def test_files_that_other_programs_obey_are_named_although_they_were_not_taken() -> None:
    names = ["a/conftest.py", "sitecustomize.py", "torch.py", "numpy/", "evil.pth", "notes.txt"]
    found = suspicions({}, names)
    assert len(found) == 5
    assert not any("notes" in flag for flag in found)


def test_whatever_the_source_holds_the_search_is_short_and_its_result_harmless() -> None:
    hostile = b"os._exit(0) # \x1b[2J\xff\n" * 200_000 + b" " * 1_000_000 + b"torch." * 200_000
    started = time.monotonic()
    found = suspicions({"m.py": hostile, "n.py": b"\x00" * 1_000_000})
    assert time.monotonic() - started < 2
    assert len(found) == 21
    assert found[-1] == "and more like these"
    assert all("\x1b" not in flag and len(flag) < 300 for flag in found)
