"""What a rank may do once it runs a submission's code, and what it can get at."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autograder import uids
from autograder.confine import modes, namespaces
from autograder.confine.attempt import attempt
from autograder.failure import CheckFailed
from autograder.inputs import Seed, known_secret
from autograder.judge import Judge
from autograder.paths import ROOT
from autograder.scenario import Scenario

from .submissions import Files, patched, reference_files

PAIR = Scenario("broadcast", 2, (3,))
root_only = pytest.mark.root


def found(body: str, scenario: Scenario = PAIR, reference: Files | None = None) -> list[Any]:
    """What each rank finds: `body` puts it, as JSON can hold it, into `found`."""
    judge = Judge(
        patched({"broadcast": telling(body)}),
        reference or reference_files(),
        Seed.of(known_secret(1), "a test"),
        lambda: 60.0,
    )
    drawn = scenario.draw(judge.seed.generator())
    case = replace(drawn.case, allowed=None)
    judge.run_reference(case, [drawn.inputs])
    judge.run(case, [drawn.inputs], timeout=30.0)
    lines = [line for line in judge.log.splitlines() if line.startswith("FOUND ")]
    assert len(lines) == scenario.world_size
    return [json.loads(line.removeprefix("FOUND ")) for line in lines]


def telling(body: str) -> str:
    return f"import json\n{textwrap.dedent(body).strip()}\nprint('FOUND', json.dumps(found))"


# --- What works here -----------------------------------------------------------------------------


@root_only
@pytest.mark.parametrize("step", ["_start_loopback", "_mount_proc", "_make_private"])
def test_where_any_step_into_the_namespaces_is_refused_the_mode_without_them_is_chosen(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def refuse(*_: str) -> None:
        raise OSError(1, f"{step}: Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(namespaces, step, refuse)
        patch.setattr(modes, "probed", modes.probed.__wrapped__)
        chosen = modes.choose.__wrapped__()
        reasons = modes.why_not(modes.Isolation.FULL)
    assert chosen.mode is modes.Isolation.CONTAINER
    assert f"{step}: Operation not permitted" in reasons


@root_only
def test_who_dies_on_the_way_into_the_namespaces_has_not_got_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(namespaces, "_mount_proc", lambda: os._exit(3))
    assert "ended with status" in attempt(lambda: namespaces.probe("mount namespace"))


# --- The user ------------------------------------------------------------------------------------


@root_only
def test_ranks_are_a_user_of_no_rights() -> None:
    ranks = found(
        """
        import os
        status = dict(
            line.split(":", 1) for line in open("/proc/self/status").read().splitlines()
        )
        found = {
            "users": os.getresuid(), "groups": [*os.getresgid(), *os.getgroups()],
            "capabilities": int(status["CapEff"], 16) | int(status["CapPrm"], 16),
            "no new privileges": status["NoNewPrivs"].strip(),
            "home": os.environ["HOME"], "directory": os.getcwd(),
        }
        """
    )
    assert ranks[0] == ranks[1]
    (user,) = set(ranks[0]["users"])
    assert user in range(20000, 30000)
    assert set(ranks[0]["groups"]) == {user}
    assert ranks[0]["capabilities"] == 0
    assert ranks[0]["no new privileges"] == "1"
    assert (ranks[0]["home"], ranks[0]["directory"]) == ("/nonexistent", "/")


@root_only
def test_ranks_cannot_touch_their_leader() -> None:
    (ranks, _) = found(
        """
        import os
        found = []
        for number in (0, 9, 19):
            try:
                os.kill(os.getppid(), number)
                found.append("done")
            except PermissionError:
                found.append("refused")
        """
    )
    assert ranks == ["refused"] * 3


@root_only
def test_what_is_imported_late_can_be_imported() -> None:
    """The interpreter may lie where the new user cannot go (such as root's home)."""
    (ranks, _) = found(
        """
        import importlib, sys
        late = [
            "xml.etree.ElementTree", "sqlite3", "csv", "http.client", "email.mime.text", "wave",
            "multiprocessing.pool", "curses", "gradescope_utils", "jinja2", "torch.onnx",
        ]
        found = {}
        for name in late:
            if name not in sys.modules:
                try:
                    importlib.import_module(name)
                    found[name] = "imported"
                except ImportError as error:
                    found[name] = str(error)
        """
    )
    assert len(ranks) > 6, "most of these are meant to be new to a rank"
    assert {name: what for name, what in ranks.items() if what != "imported"} == {}


@root_only
def test_a_world_makes_no_new_groups_and_is_told_so() -> None:
    with pytest.raises(CheckFailed, match="can make no process groups beside those that it finds"):
        found("found = []\ndist.new_group([0, 1])")


# --- The lease -----------------------------------------------------------------------------------


@pytest.fixture
def leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Leases apart from those of whoever else grades on this machine: other locks, other users."""
    monkeypatch.setattr(uids, "_LOCKS", tmp_path / "locks")
    monkeypatch.setattr(uids, "_FIRST", APART)
    return tmp_path / "locks"


APART = 31_000


@root_only
def test_worlds_side_by_side_have_different_users(leases: Path) -> None:
    with uids.lease() as first, uids.lease() as second:
        assert first != second
        program = (
            "from pathlib import Path\nfrom autograder import uids\n"
            f"uids._FIRST, uids._LOCKS = {APART}, Path({str(leases)!r})\n"
            "with uids.lease() as uid: print(uid)"
        )
        third = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(third.stdout) not in (first, second)


@root_only
def test_a_user_that_runs_something_already_is_not_leased(
    leases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uids, "_COUNT", 1)
    with subprocess.Popen(["sleep", "60"], user=APART, group=APART, extra_groups=[]) as somebodys:
        with pytest.raises(uids.NoUserLeft), uids.lease():
            pass
        assert somebodys.poll() is None
        somebodys.kill()


@root_only
def test_a_tree_deeper_than_any_stack_is_counted_and_removed(leases: Path) -> None:
    with uids.lease() as uid:
        deep = Path(tempfile.mkdtemp(prefix="autograder-test-"))
        os.chown(deep, uid, uid)
        child = os.fork()
        if child == 0:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.chdir(deep)
            for _ in range(2500):
                Path("folder").mkdir()
                os.chdir("folder")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        count, size = uids.files_held(uid)
        assert count > 400
        assert size >= 0
    assert not deep.exists()
    assert uids.files_held(uid) == (0, 0), "files and bytes that are left of the user's"


@root_only
def test_a_user_who_is_a_person_or_a_service_is_not_leased(
    leases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = pwd.getpwall()[-1].pw_uid
    monkeypatch.setattr(uids, "_FIRST", person)
    monkeypatch.setattr(uids, "_COUNT", 1)
    with pytest.raises(uids.NoUserLeft), uids.lease():
        pass


@root_only
def test_a_lease_ends_with_every_process_of_its_user(leases: Path) -> None:
    with uids.lease() as uid:
        child = os.fork()
        if child == 0:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            for _ in range(5):
                os.fork()
            time.sleep(20)
            os._exit(0)
        deadline = time.monotonic() + 10
        while len(uids.memory_held(uid)) < 32 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(uids.memory_held(uid)) == 32
    assert uids.memory_held(uid) == {}
    os.waitpid(child, 0)


@root_only
def test_a_lease_ends_with_every_public_file_of_its_user(
    leases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(leases.parent))
    public = leases.parent / "public"
    public.mkdir()
    public.chmod(0o1777)
    with uids.lease() as uid:
        for folder in (leases.parent, public, Path("/dev/shm")):
            (folder / f"of-{uid}" / "deep").mkdir(parents=True)
            (folder / f"of-{uid}" / "deep" / "file").write_text("kept for later")
            (folder / f"link-of-{uid}").symlink_to("/etc/hostname")
            os.chown(folder / f"of-{uid}", uid, uid)
            os.lchown(folder / f"link-of-{uid}", uid, uid)
        (public / "of-another").write_text("")
    for folder in (leases.parent, public, Path("/dev/shm")):
        assert list(folder.glob(f"*of-{uid}")) == []
    assert (public / "of-another").exists()
    assert Path("/etc/hostname").exists()


@root_only
def test_with_no_user_left_it_says_so(leases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uids, "_COUNT", 1)
    with uids.lease() as first:
        pass
    with uids.lease() as again:
        assert again == first, "a lease ends with its block"
    with (
        uids.lease(),
        pytest.raises(uids.NoUserLeft, match=f"all 1 users from {APART} on are in use"),
        uids.lease(),
    ):
        pass


@root_only
def test_a_list_of_leases_that_somebody_else_owns_is_not_trusted(leases: Path) -> None:
    leases.mkdir()
    os.chown(leases, 20000, 20000)
    with pytest.raises(uids.NoUserLeft, match="belongs to another user"), uids.lease():
        pass


# --- What is not there ----------------------------------------------------------------------------

MARKER = "MARKER-8d1f-OF-THE-REFERENCE"

SEARCH = """
import ctypes, gc, re, sys
wanted = "-OF-THE-".join(["MARKER-8d1f", "REFERENCE"])
me = {id(globals()), id(locals())}
found = []
for thing in gc.get_objects():
    texts = []
    if isinstance(thing, dict):
        texts = [v for v in list(thing.values()) if isinstance(v, (str, bytes))]
    elif isinstance(thing, (list, tuple)):
        texts = [v for v in thing if isinstance(v, (str, bytes))]
    for text in texts:
        if text is not wanted and wanted in (text if isinstance(text, str) else str(text)):
            found.append(f"{type(thing).__name__}: {str(text)[:80]}")
for name, module in list(sys.modules.items()):
    if wanted in str(getattr(module, "__doc__", "")):
        found.append(name)
found = [what for what in found if not what.startswith("dict: " + wanted)]
"""


def test_the_reference_is_not_in_the_memory_of_a_submissions_rank() -> None:
    reference = reference_files()
    reference["collectives.py"] += f"\nMARKER = {MARKER!r}\n".encode()
    assert found(SEARCH, reference=reference) == [[], []]


def test_the_search_would_find_it() -> None:
    """It does where the marker is in the submission itself."""
    files = patched({"broadcast": telling(SEARCH)})
    files["collectives.py"] += f"\nMARKER = 'here: {MARKER}'\n".encode()
    judge = Judge(files, files, Seed.of(known_secret(1), "a test"), lambda: 60.0)
    drawn = PAIR.draw(judge.seed.generator())
    judge.run(drawn.case, [drawn.inputs], timeout=30.0)
    assert MARKER in judge.log


def test_the_environment_of_a_rank_holds_nothing_of_the_graders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AUTOGRADER_PRIVATE", "/a/private/place")
    (environment, _) = found("import os\nfound = dict(os.environ)")
    assert not any("private" in value for value in environment.values())
    assert "MULTIRANK_ZYGOTE" not in environment


@root_only
@pytest.mark.slow
def test_what_lies_in_roots_own_folders_cannot_be_read_or_imported(tmp_path: Path) -> None:
    """The layout of a grading machine: everything of the grader's under one folder of mode 0700."""
    home = tmp_path / "grader"
    home.mkdir(mode=0o700)
    for room in ("multirank", "autograder", "reference"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / room, home / room, ignore=ignore)
    private = home / "private"
    (tmp_path / "work").mkdir()
    body = f"""
    import importlib, os, sys
    found = []
    for path in (
        "{home}", "{home}/private/course-secret", "{home}/out/results.json",
        "{home}/reference/collectives.py", "{home}/autograder/judge.py", "/root",
    ):
        try:
            os.listdir(path) if os.path.isdir(path) else open(path).read()
            found.append("read " + path)
        except OSError:
            pass
    sys.path += ["{home}", "", "."]
    for name in ("autograder", "autograder.judge", "reference", "reference.collectives"):
        try:
            importlib.import_module(name)
            found.append("imported " + name)
        except ImportError:
            pass
    """
    for name, content in patched({"broadcast": telling(body)}).items():
        (tmp_path / "work" / name).write_bytes(content)
    environment = {k: v for k, v in os.environ.items() if k != "MULTIRANK_ZYGOTE"}
    environment |= {"AUTOGRADER_PRIVATE": str(private), "PYTHONPATH": str(home)}
    graded = subprocess.run(
        [
            *(sys.executable, "-m", "autograder", "grade", str(tmp_path / "work")),
            *("--out", str(home / "out"), "--only", "broadcast/from_rank_0"),
        ],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert graded.returncode == 0, graded.stdout + graded.stderr
    record = json.loads((home / "out" / "grade.json").read_text())
    assert record["unofficial_because"] == ["only some of the checks were asked for"]
    (row,) = [row for row in record["checks"] if row["id"] == "broadcast/from_rank_0"]
    assert "FOUND []" in row["log"]
    secret = (private / "course-secret").read_bytes()
    assert private.stat().st_mode & 0o777 == 0o700
    for output in [*(home / "out").iterdir()]:
        assert secret not in output.read_bytes()
        assert secret.hex() not in output.read_text()
    assert secret.hex() not in graded.stdout + graded.stderr


# --- What is left running -------------------------------------------------------------------------

DAEMONS = """
import ctypes, os, sys, time
found = []
for _ in range(3):
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        ctypes.CDLL(None).prctl(15, b"hostile-daemon")
        os.write(writing, b"here")
        while True:
            time.sleep(1)
    os.close(writing)
    found.append(os.read(reading, 20).decode())
"""


def test_daemons_do_not_outlive_their_world() -> None:
    assert found(DAEMONS) == [["here"] * 3] * 2
    assert [comm for comm in names_of_processes() if comm == "hostile-daemon"] == []


def names_of_processes() -> list[str]:
    found = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            found.append(comm.read_text().strip())
    return found
