"""The students' archive: what is in it, that it is always the same, and that nothing leaks."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autograder import cli, release, stubs
from autograder.inputs import known_secret
from autograder.manifest import load
from autograder.paths import REFERENCE, ROOT
from autograder.release import archive, contents, handout
from autograder.release.leaks import CANARY, leaks

SOLUTION = (REFERENCE / "collectives.py").read_text()
CHECK = (ROOT / "autograder" / "checks" / "test_all_reduce.py").read_text()
CASE = (ROOT / "autograder" / "cases" / "collectives.py").read_text()


@pytest.fixture(scope="module")
def shipped() -> dict[str, bytes]:
    return contents.files()


def region(function: str) -> list[str]:
    """The lines of a function's solution."""
    lines = SOLUTION.split("\n")
    found = stubs.regions(SOLUTION, "collectives.py")
    (one,) = [one for one in found if one.qualname == function]
    return lines[one.begin : one.end - 1]


# --- what is in it --------------------------------------------------------------------------------


def test_a_release_holds_stubs_tests_multirank_and_what_students_need_around_them(
    shipped: dict[str, bytes],
) -> None:
    wanted = {
        *("README.md", "pyproject.toml", "constraints.txt", ".devcontainer/devcontainer.json"),
        *("assignment/collectives.py", "assignment/problems.toml", "assignment/examples/ranks.py"),
        *("multirank/gallery.py", "multirank/processes/zygote.py"),
        *("tests/assignment/conftest.py", "tests/assignment/test_ddp.py"),
    }
    assert wanted <= shipped.keys()
    rooms = {name.partition("/")[0] for name in shipped if "/" in name}
    assert rooms == {"assignment", "multirank", "tests", ".devcontainer"}
    assert not any(CANARY.encode() in data for data in shipped.values())


def test_its_stubs_are_made_from_the_reference_whatever_lies_in_assignment(
    shipped: dict[str, bytes],
) -> None:
    generated = stubs.generate(REFERENCE)
    assert {f"assignment/{name}": data for name, data in generated.items()} == {
        name: data for name, data in shipped.items() if name.startswith("assignment/")
    }


def test_its_problems_are_those_of_the_course_with_the_course_s_points(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    as_it_is = tomllib.loads(contents.files()["assignment/problems.toml"].decode())["problem"]
    assert {one["id"]: one["points"] for one in as_it_is} == {
        one.id: float(one.points) for one in load(REFERENCE).problems
    }
    shutil.copytree(REFERENCE, tmp_path / "reference")
    course = '[problems]\noff = ["launch", "barrier"]\n[weights]\nall_reduce = 8.5\n'
    (tmp_path / "reference" / "course.toml").write_text(f'name = "Ours"\n{course}')
    monkeypatch.setattr(contents, "REFERENCE", tmp_path / "reference")
    files = contents.files()
    changed = tomllib.loads(files["assignment/problems.toml"].decode())["problem"]
    points = {problem["id"]: problem["points"] for problem in changed}
    assert not points.keys() & {"launch", "barrier"}
    assert points["all_reduce"] == 8.5
    assert points["broadcast"] == 2
    assert "| 1.7 All-reduce | 17/2 | collectives.py |" not in files["README.md"].decode()
    assert "| 1.7 All-reduce | 8.5 | collectives.py |" in files["README.md"].decode()


def test_its_packages_are_those_of_our_own_pyproject_and_all_are_pinned(
    shipped: dict[str, bytes],
) -> None:
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    theirs = tomllib.loads(shipped["pyproject.toml"].decode())["project"]
    assert theirs["dependencies"] == ours["dependencies"]
    assert theirs["requires-python"] == ours["requires-python"]
    lines = shipped["constraints.txt"].decode().splitlines()
    pinned = {line.partition("==")[0] for line in lines}
    assert {"torch", "numpy", "pytest", "pytest-xdist", "cloudpickle", "sympy"} <= pinned
    assert not pinned & {"typer", "mypy", "gradescope-utils", "hypothesis"}
    assert set(lines) <= set((ROOT / "constraints.txt").read_text().splitlines())


def test_its_dev_container_installs_what_is_pinned_and_torch_for_cpu(
    shipped: dict[str, bytes],
) -> None:
    container = json.loads(shipped[".devcontainer/devcontainer.json"])
    create = container["postCreateCommand"]
    assert "-c constraints.txt -e ." in create
    assert "--extra-index-url https://download.pytorch.org/whl/cpu" in create


def test_its_readme_lists_every_problem_with_its_points(shipped: dict[str, bytes]) -> None:
    readme = shipped["README.md"].decode()
    for one in load(REFERENCE).problems:
        row = f"| {one.number} {one.title} | {float(one.points):g} | {one.module}.py |\n"
        assert row in readme
    assert "<!--" not in readme


def test_the_same_files_give_the_same_bytes_later_and_elsewhere(
    shipped: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = archive.pack(shipped)
    monkeypatch.setattr(time, "localtime", lambda *_: time.gmtime(0))
    monkeypatch.chdir(tmp_path)
    os.umask(os.umask(0o077))
    assert archive.pack(dict(reversed(shipped.items()))) == first
    assert archive.unpacked(first) == shipped


def test_it_unpacks_into_one_folder_with_plain_permissions(shipped: dict[str, bytes]) -> None:
    with zipfile.ZipFile(io.BytesIO(archive.pack(shipped))) as opened:
        members = opened.infolist()
    assert {member.filename.partition("/")[0] for member in members} == {"distributed-training"}
    assert {member.external_attr >> 16 for member in members} == {0o100644}
    # A day after the first that a zip knows: unpacked and packed in other time zones it is no less.
    assert {member.date_time for member in members} == {(1980, 1, 2, 0, 0, 0)}


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with a handout that has just been built from sources of its own."""
    (tmp_path / "handouts").mkdir()
    (tmp_path / "handouts" / "ddp.typ").write_text("= DDP")
    monkeypatch.setattr(handout, "ROOT", tmp_path)
    monkeypatch.setattr(handout, "HANDOUTS", tmp_path / "handouts")
    before = handout.sources()
    (tmp_path / "handouts" / "handout.pdf").write_bytes(b"%PDF-1.7")
    (tmp_path / "handouts" / "handout.html").write_bytes(b"<p>DDP</p>")
    handout.seal(before)
    return tmp_path / "handouts"


@pytest.mark.usefixtures("built")
def test_the_handout_comes_along_when_it_was_built_from_the_sources_as_they_are() -> None:
    files = contents.files()
    assert handout.wrong() == ""
    assert (files["handout.pdf"], files["handout.html"]) == (b"%PDF-1.7", b"<p>DDP</p>")
    assert "handout.json" not in files


OTHER = ["ddp.typ", "new.typ", "handout.pdf", "handout.html", "handout.json"]


@pytest.mark.parametrize("changed", OTHER)
def test_a_handout_of_other_sources_or_of_two_builds_is_refused(
    built: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    (built / changed).write_text("= FSDP")
    monkeypatch.setattr(release, "uncommitted", list)
    told = "were not both built from the sources as they are now; run make handout"
    with pytest.raises(release.ReleaseError, match=told):
        release.make(solution=False)
    assert handout.files() == {}


@pytest.mark.parametrize("missing", ["handout.pdf", "handout.html"])
def test_half_a_handout_is_refused(
    built: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    (built / missing).unlink()
    monkeypatch.setattr(release, "uncommitted", list)
    with pytest.raises(release.ReleaseError, match=f"handouts/{missing} is missing"):
        release.make(solution=False)


def test_after_the_deadline_the_solution_comes_along_beside_the_stubs() -> None:
    files = contents.files(solution=True)
    assert not leaks(files)
    ours = SOLUTION.splitlines()
    theirs = files["solution/collectives.py"].decode().splitlines()
    assert [line for line in ours if CANARY not in line] == theirs
    assert "solution/course.toml" not in files
    assert files["assignment/collectives.py"] == stubs.generate(REFERENCE)["collectives.py"]
    assert "--implementation solution" in files["README.md"].decode()


# --- what must not be in it -----------------------------------------------------------------------


def test_nothing_leaks(shipped: dict[str, bytes]) -> None:
    assert leaks(shipped, known_secret().value) == []


LINE = max(region("all_reduce"), key=len).strip()
PLANTED = {
    "a whole region": "\n".join(region("all_reduce")),
    "one line of substance": LINE,
    "a line in a comment": f"# {LINE}",
    "a region laid out otherwise": "    " + " ".join("\n".join(region("scatter")).split()),
}


@pytest.mark.parametrize("text", PLANTED.values(), ids=PLANTED)
def test_solution_code_is_found_in_a_test(shipped: dict[str, bytes], text: str) -> None:
    name = "tests/assignment/calls.py"
    planted = shipped[name] + f'\n"""\n{text}\n"""\n'.encode()
    told = "\n".join(map(str, leaks({name: planted})))
    assert re.search(rf"^{name}: holds the solution of \w+ in collectives.py: ", told, re.MULTILINE)


def test_solution_code_is_found_among_its_own_comments_and_without_them() -> None:
    code = "\n".join(f"{line}  # step {i}" for i, line in enumerate(region("all_reduce")))
    (leak, *_) = leaks({"multirank/x.py": f"def f():\n{code}\n".encode()})
    assert "all_reduce in collectives.py" in leak.what


ESCAPED = LINE.replace("<", "&lt;").replace(" ", " <b>", 1) + "</b>"
FIGURE = base64.b64encode(f"<svg><text>{LINE.replace('<', '&lt;')}</text></svg>".encode()).decode()
READ = {
    "the page's words": ("handout.html", ESCAPED),
    "a figure of the page": ("handout.html", f'<img src="data:image/svg+xml;base64,{FIGURE}">'),
    "the README": ("README.md", LINE),
}


@pytest.mark.parametrize(("name", "shown"), READ.values(), ids=READ)
def test_solution_code_is_found_in_what_people_read(name: str, shown: str) -> None:
    leak, *_ = leaks({name: shown.encode()})
    assert "holds the solution of" in leak.what


@pytest.mark.parametrize("name", ["handout.pdf", "assignment/notes.pdf"])
def test_a_pdf_ships_only_beside_the_page_of_the_same_text_for_it_cannot_be_searched(
    name: str,
) -> None:
    (leak,) = leaks({name: b"%PDF-1.7"})
    assert "cannot be searched" in leak.what
    told = leaks({name: b"%PDF-1.7", "handout.html": b"<p>words</p>"})
    assert [leak.file for leak in told] == [one for one in [name] if one != "handout.pdf"]


def test_a_reference_module_in_a_stubs_place_is_found() -> None:
    found = leaks({"assignment/collectives.py": SOLUTION.encode()})
    told = "\n".join(map(str, found))
    for what in ("mark of a solution", "the canary", "all_reduce in collectives.py"):
        assert what in told


@pytest.mark.parametrize("mark", ["# BEGIN SOLUTION", "# end_solution", "# Start-Solution"])
def test_a_mark_is_found_however_it_is_written(mark: str) -> None:
    (leak,) = leaks({"assignment/x.py": mark.encode()})
    assert "mark of a solution" in leak.what


def test_a_graded_check_is_found_and_so_is_a_case() -> None:
    assert any(
        "autograder/checks" in leak.what
        for leak in leaks({"tests/assignment/x.py": CHECK.encode()})
    )
    assert any("autograder/cases" in leak.what for leak in leaks({"multirank/x.py": CASE.encode()}))


def test_every_graded_check_case_and_oracle_would_be_found() -> None:
    rooms = [ROOT / "autograder" / room for room in ("checks", "cases", "oracles")]
    files = [file for room in rooms for file in room.glob("*.py") if file.name != "__init__.py"]
    missed = [
        file.name
        for file in files
        if not any(
            "of autograder/" in leak.what
            for leak in leaks({"tests/assignment/x.py": file.read_bytes()})
        )
    ]
    assert len(files) > 40
    assert missed == []


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("assignment/__pycache__/ddp.cpython-311.pyc", b"", "a cache"),
        (".git/HEAD", b"ref: refs/heads/main", "history"),
        ("assignment/.ipynb_checkpoints/ddp.py", b"", "hidden file"),
        ("assignment/ddp.pyc", b"", "ends in"),
        ("autograder/grade.py", b"", "does not ship"),
        ("reference/course.toml", b"", "does not ship"),
        ("tests/autograder/test_x.py", b"", "ships alone"),
        ("README.md", f"see {ROOT}/x".encode(), "a place on this machine"),
        ("README.md", b"at /home/ada/hw/x.py", "somebody's machine, /home/ada/hw/x.py"),
        ("README.md", rb"at C:\Users\Ada\x", "somebody's machine"),
        ("multirank/x.py", b"from autograder import grade", "imports autograder"),
        ("multirank/x.py", b"    import reference.ddp", "imports reference"),
        ("assignment/x.py", f"# {CANARY}".encode(), "the canary"),
        ("assignment/x.py", known_secret().value.hex().encode(), "the course's secret"),
    ],
)
def test_what_has_no_place_in_a_release_is_named(name: str, data: bytes, told: str) -> None:
    (leak,) = leaks({name: data}, known_secret().value)
    assert leak.file == name
    assert told in leak.what


@pytest.mark.parametrize("root", ["/home/ada/course", "/tmp/tmp.a1/course", "/work/course"])
def test_a_place_on_this_machine_is_named_once_wherever_the_repository_lies(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[leaks.__module__], "ROOT", Path(root))
    (leak,) = leaks({"README.md": f"see {root}/x".encode()}, known_secret().value)
    assert "a place on this machine" in leak.what
    files = {"README.md": f"see {root}/x and /home/eve/x".encode()}
    assert len(leaks(files, known_secret().value)) == 2


def test_the_canary_stands_in_the_reference_the_checks_and_the_cases() -> None:
    rooms = ["reference", "autograder/checks", "autograder/cases", "autograder/oracles"]
    for room in rooms:
        files = [*(ROOT / room).glob("*.py"), *(ROOT / room).glob("course.toml")]
        assert any(CANARY in file.read_text() for file in files), room
    for module in REFERENCE.glob("*.py"):
        if stubs.regions(module.read_text(), module.name):
            assert CANARY in module.read_text(), module.name


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def _committed(shipped: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "uncommitted", list)
    monkeypatch.setattr(release, "files", lambda *, solution: shipped)
    monkeypatch.setattr(handout, "wrong", str)


@pytest.mark.usefixtures("_committed")
def test_the_command_writes_the_archive_and_says_what_it_is(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.app, ["release", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "nothing in them that must not be" in done.output
    assert "sha256" in done.output
    assert zipfile.is_zipfile(tmp_path / "distributed-training.zip")


@pytest.mark.usefixtures("_committed")
def test_with_a_leak_there_is_no_archive_and_the_exit_code_says_so(
    shipped: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"multirank/x.py": f"# {LINE}".encode()}
    monkeypatch.setattr(release, "files", lambda *, solution: shipped | extra)
    done = CliRunner().invoke(cli.app, ["release", "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert "multirank/x.py: holds the solution of" in done.output
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_committed_is_named_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-C", str(tmp_path))
    (tmp_path / "multirank").mkdir()
    (tmp_path / "multirank" / "world.py").touch()
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(contents, "ROOT", tmp_path)
    assert contents.uncommitted() == []
    (tmp_path / "handouts").mkdir()
    (tmp_path / "handouts" / "new.typ").touch()
    assert contents.uncommitted() == ["handouts/new.typ"]
    (tmp_path / "handouts" / "new.typ").unlink()
    (tmp_path / "multirank" / "scratch.py").touch()
    assert contents.uncommitted() == ["multirank/scratch.py"]
    with pytest.raises(release.ReleaseError, match=r"Commit or remove:\n  multirank/scratch\.py"):
        release.make(solution=False)
