"""Whatever is handed in, and whatever a rank answers, the grader itself never breaks."""

from __future__ import annotations

import io
import json
import stat
import tarfile
import zipfile
from fractions import Fraction
from pathlib import Path

import jsonschema
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autograder import policy, report
from autograder.flags import suspicions
from autograder.grade import Grade, Outcome
from autograder.intake import UnusableSubmission, take
from autograder.paths import ROOT
from autograder.platforms import gradescope
from tests.autograder.fuzzed import Recorded

from .submissions import MANIFEST, SMALL

SCHEMA = json.loads((ROOT / "tests" / "autograder" / "gradescope_schema.json").read_text())
KNOWN = ["launch", "collectives"]
FEW, MANY = 10, 150

# --- Answers ------------------------------------------------------------------------------------


def require_no_fault(grade: Grade, out: Path) -> None:
    """The grader has not failed, and every report can be written and read."""
    for row in grade.rows:
        assert row.outcome is not Outcome.GRADER_FAULT, f"{row.check_id}: {row.staff}"
    report.write_all(grade, out)
    for name in (report.RESULTS, report.RECORD):
        json.loads((out / name).read_text())
    jsonschema.validate(json.loads((out / report.RESULTS).read_text()), SCHEMA)
    assert "<script>alert" not in (out / report.PAGE).read_text()


@pytest.fixture(scope="module")
def small() -> Recorded:
    return Recorded(SMALL)


@pytest.fixture(scope="module")
def everything() -> Recorded:
    return Recorded(MANIFEST)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FEW))
def test_no_answer_of_a_rank_breaks_a_check(seed: int, small: Recorded, tmp_path: Path) -> None:
    require_no_fault(small.grade(seed), tmp_path)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(MANY))
def test_no_answer_breaks_any_check(seed: int, everything: Recorded, tmp_path: Path) -> None:
    require_no_fault(everything.grade(seed), tmp_path)


OTHERS = {
    "a tensor": torch.arange(5),
    "an empty tensor": torch.zeros(2, 0),
    "no number": torch.full((3,), float("nan")),
    "nothing": None,
    "a text": "text",
    "a number": -1,
    "a list": [[torch.arange(5)], "text"],
    "a dictionary": {"": torch.arange(5)},
}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("other", OTHERS)
def test_nothing_in_the_place_of_anything_breaks_a_check(
    other: str, everything: Recorded, tmp_path: Path
) -> None:
    for number in range(everything.most_places):
        require_no_fault(everything.grade_with(OTHERS[other], number), tmp_path)


# --- What is handed in --------------------------------------------------------------------------

names = st.one_of(
    st.sampled_from(
        ["collectives.py", "assignment/launch.py", "a/b/c.py", "../up.py", "/top.py", "C:\\x.py"]
    ),
    st.sampled_from(["", ".", "..", "./collectives.py", ".git/x", "assignment", "launch.py/x"]),
    st.text(max_size=120),
)
contents = st.one_of(st.binary(max_size=200), st.just(b"\0" * 300_000), st.just(b"def f(): ...\n"))


def taken(path: Path) -> None:
    """Reads what was handed in: a submission, or a sentence why it is none."""
    try:
        submission = take(path, KNOWN)
    except UnusableSubmission as error:
        assert str(error).endswith(".") and str(error).isprintable()  # noqa: PT017, PT018
        return
    assert all(name.endswith(".py") and name.isascii() for name in submission.files)
    suspicions(submission.files, [item.name for item in submission.ignored])


members = st.lists(st.tuples(names, contents, st.integers(0, 0xFFFF)), max_size=8)
lenient = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.filterwarnings("ignore:Duplicate name")
@lenient
@given(members, st.booleans())
def test_a_zip_of_any_members_is_read_or_refused(
    tmp_path: Path, held: list[tuple[str, bytes, int]], packed: bool
) -> None:
    path = tmp_path / "x.zip"
    how = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, content, mode in held:
            member = zipfile.ZipInfo(name.encode("utf-8", "replace").decode() or "x")
            member.external_attr = mode << 16
            archive.writestr(member, content)
    taken(path)


kinds = st.sampled_from([tarfile.REGTYPE, *(bytes([kind]) for kind in b"01234567gxLKSV\xff")])


@lenient
@given(st.lists(st.tuples(names, contents, kinds, st.integers(-1, 1 << 40)), max_size=8))
def test_a_tar_of_any_members_is_read_or_refused(
    tmp_path: Path, held: list[tuple[str, bytes, bytes, int]]
) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", errors="surrogateescape") as archive:
        for name, content, kind, size in held:
            member = tarfile.TarInfo(name.encode("utf-8", "replace").decode())
            member.type, member.linkname = kind, name[:99].encode("utf-8", "replace").decode()
            member.size = size if kind != tarfile.REGTYPE and size > 0 else len(content)
            packed.write(member.tobuf(tarfile.GNU_FORMAT, errors="replace"))
            packed.write(content + b"\0" * (-len(content) % 512))
        archive.close()
    path = tmp_path / "x.tar"
    path.write_bytes(packed.getvalue())
    taken(path)


beginnings = st.sampled_from(
    [b"", b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b\x08", b"\0" * 257 + b"ustar"]
)


@lenient
@given(beginnings, st.binary(max_size=2000))
def test_any_bytes_are_read_or_refused(tmp_path: Path, beginning: bytes, rest: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(beginning + rest)
    taken(path)


file_names = st.binary(min_size=1, max_size=60).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
)


@lenient
@given(st.dictionaries(file_names, st.one_of(contents, st.none()), max_size=6))
def test_a_folder_of_any_names_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, held: dict[bytes, bytes | None]
) -> None:
    folder = tmp_path_factory.mktemp("folder")
    for name, content in held.items():
        path = bytes(folder) + b"/" + name
        if content is None:
            Path(path.decode("utf-8", "surrogateescape")).mkdir()
        else:
            with open(path, "wb") as file:
                file.write(content)
    taken(folder)
    assert stat.S_ISDIR(folder.stat().st_mode)


# --- When it was handed in ----------------------------------------------------------------------

moments = st.one_of(
    st.datetimes().map(lambda when: when.isoformat()),
    st.datetimes(timezones=st.timezones()).map(lambda when: when.isoformat()),
    st.sampled_from(
        [
            *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "2026-02-30T00:00:00Z"),
            *("0001-01-01T00:00:00", "9999-12-31T23:59:59.999999", "now", "", None, 0, 1e308),
        ]
    ),
)
junk = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), moments),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
results = st.one_of(
    junk,
    st.fixed_dictionaries(
        {},
        optional={
            "score": junk,
            "output": junk,
            "tests": junk,
            "extra_data": st.one_of(
                junk,
                st.fixed_dictionaries(
                    {},
                    optional={
                        "counted": st.lists(moments),
                        "grader_fault": junk,
                        "refused": junk,
                    },
                ),
            ),
        },
    ),
)
previous = st.one_of(
    junk,
    st.fixed_dictionaries(
        {"submission_time": moments},
        optional={"score": junk, "autograder_error": junk, "results": results},
    ),
)
metadata = st.one_of(
    junk,
    st.fixed_dictionaries(
        {"created_at": moments},
        optional={
            "assignment": st.one_of(junk, st.fixed_dictionaries({"due_date": moments})),
            "previous_submissions": st.one_of(junk, st.lists(previous, max_size=4)),
            "users": junk,
        },
    ),
)
STRICT = policy.Policy(
    policy.Lateness(percent_per_day=Fraction(10), grace_minutes=5, most_days=3),
    policy.RateLimit(submissions=1, hours=24),
)


def require_a_decision(path: Path) -> None:
    """Whatever the metadata says, the rules decide, or it is said that it cannot be read."""
    try:
        handed_in, last = gradescope.read(path, MANIFEST.course)
    except gradescope.UnknownMetadata as error:
        assert path.name in str(error)  # noqa: PT017
        return
    decision = policy.apply(STRICT, handed_in)
    assert 0 <= decision.factor <= 1
    refused = gradescope.refused("why", last, handed_in)
    for told in (refused, gradescope.failed(last, handed_in)):
        json.dumps(told)


@lenient
@given(metadata)
def test_any_metadata_is_read_or_refused(tmp_path: Path, told: object) -> None:
    path = tmp_path / "submission_metadata.json"
    path.write_text(json.dumps(told))
    require_a_decision(path)


@lenient
@given(st.binary(max_size=400))
def test_any_bytes_of_metadata_are_read_or_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "submission_metadata.json"
    path.write_bytes(content)
    require_a_decision(path)


@pytest.mark.parametrize("year", ["0001-01-01", "9999-12-31"])
def test_times_at_the_ends_of_the_calendar_are_refused(tmp_path: Path, year: str) -> None:
    path = tmp_path / "submission_metadata.json"
    times = [f"{year}T{hour}:00:00+00:00" for hour in ("01", "02")]
    told = {"created_at": times[1], "previous_submissions": [{"submission_time": times[0]}]}
    path.write_text(json.dumps(told))
    with pytest.raises(gradescope.UnknownMetadata, match="no time at which anybody"):
        gradescope.read(path, MANIFEST.course)


def test_metadata_that_is_nested_very_deeply_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "submission_metadata.json"
    deep = "[" * 100_000 + "]" * 100_000
    for text in (deep, f'{{"created_at": "2026-01-01T00:00:00Z", "users": {deep}}}'):
        path.write_text(text)
        require_a_decision(path)
    path.write_text(
        '{"created_at": "2026-01-01T00:00:00Z", "previous_submissions": '
        f'[{{"submission_time": "2025-01-01T00:00:00Z", "results": {{"x": {deep}}}}}]}}'
    )
    require_a_decision(path)
