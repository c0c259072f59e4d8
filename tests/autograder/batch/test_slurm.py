"""Through a real Slurm of one node: the same grades as on one machine, whatever is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from autograder.batch import conduct
from autograder.batch.commands import Options, on_slurm, on_this_machine, run
from autograder.batch.executor import Executor, NoSlurm, SlurmOptions
from autograder.batch.slurm import JOB, SlurmExecutor
from autograder.batch.store import Place, Status, Store
from autograder.digest import grader_digest
from autograder.paths import ROOT
from tests.autograder.submissions import SMALL

from . import cluster, klass
from .batches import Batch, settings

# Run by .ci/slurm, in about two minutes.
pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.root]
ONE_CORE = {"cpus-per-task": "1", "mem": "1GB"}
FAKE = f"{sys.executable} {Path(__file__).with_name('fake.py')}"


@pytest.fixture(scope="module", autouse=True)
def slurm() -> Iterator[None]:
    """The cluster, for all tests of this file."""
    if why := cluster.why_not():
        pytest.skip(f"NO SLURM HERE: {why}")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    changed = {"PYTHONPATH": str(ROOT)}
    with cluster.running(folder / "cluster", cores=2) as environment:
        before = {name: os.environ.get(name) for name in (*environment, *changed)}
        os.environ.update(environment | changed)
        yield
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
    shutil.rmtree(folder)


class OnSlurm(Batch):
    """A batch whose gradings the fake grader does, in jobs."""

    def executor(self, store: Store, *_: object) -> Executor:
        options = SlurmOptions(command=FAKE, extra=ONE_CORE)
        return SlurmExecutor(store.out / "slurm", settings().needs, options)


@pytest.fixture
def batch(tmp_path: Path) -> OnSlurm:
    (tmp_path / "class").mkdir()
    return OnSlurm(tmp_path / "class", tmp_path / "out")


def test_jobs_grade_a_class_and_what_fails_is_tried_again(batch: OnSlurm) -> None:
    batch.submit("anna", score="1/2")
    batch.submit("bert", faults=1)
    batch.submit("carl", dies=1)
    assert batch.run().code == 0
    assert batch.finals() == {"anna": "2.0", "bert": "4.0", "carl": "4.0"}
    assert batch.attempts("bert") == batch.attempts("carl") == [2]
    assert "has ended before the grading had" in batch.store.of("carl")[0].state().faults[0].text


def test_an_option_that_slurm_refuses_is_said(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    batch = OnSlurm(tmp_path / "class", tmp_path / "out")
    batch.submit("anna")
    options = SlurmOptions("nowhere", FAKE)
    executor = SlurmExecutor(tmp_path / "slurm", settings().needs, options)
    with pytest.raises(NoSlurm, match="partition"):
        executor.submit([Place(tmp_path)])


# --- The real grader ------------------------------------------------------------------------------

_COMMAND = """
import sys
from pathlib import Path
from tests.autograder.batch import test_slurm
test_slurm.graded(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
"""


def graded(path: Path, out: Path, where: str) -> dict[str, str]:
    """Grades the class; what everybody earned in every problem."""
    slurm = SlurmOptions(extra=ONE_CORE)
    options = Options(path, out, conduct.Asked(), seed=1, slurm=slurm)
    with (out.parent / f"{where}.txt").open("a") as shown:
        real = settings(SMALL, grader_digest())
        make = on_slurm if where == "slurm" else on_this_machine
        run(Console(file=shown), options, real, make)
    rows = Batch(path, out).rows()
    kept = ("final", "standing", *(problem.id for problem in SMALL.problems))
    return {name: " ".join(row[column] for column in kept) for name, row in rows.items()}


def killed(path: Path, out: Path, where: str, done: int, also: Callable[[], None]) -> None:
    """Starts to grade the class, and kills the batch when so many gradings are done."""
    process = subprocess.Popen([sys.executable, "-c", _COMMAND, path, out, where], cwd=ROOT)
    deadline = time.monotonic() + 90
    while process.poll() is None and count_done(out) < done:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    also()
    process.send_signal(signal.SIGKILL)
    process.wait()


def count_done(out: Path) -> int:
    return sum(Place(file.parent).state().status is Status.DONE for file in tasks(out))


def tasks(out: Path) -> list[Path]:
    return sorted(out.glob("gradings/*/*/task.json"))


def kill_a_job(out: Path) -> None:
    """One that runs, as a node that dies would: without a word to it."""
    running = [Place(file.parent) for file in tasks(out)]
    running = [place for place in running if place.state().status is Status.RUNNING]
    assert running
    job = (running[0].path / JOB).read_text()
    subprocess.run(["scancel", "--signal=KILL", "--full", job], check=True)


def test_a_class_gets_the_same_grades_here_and_on_slurm_whatever_is_killed(tmp_path: Path) -> None:
    path = klass.write(tmp_path / "class")
    here, there = tmp_path / "here", tmp_path / "there"
    killed(path, here, "local", 4, lambda: None)
    done_before = count_done(here)
    local = graded(path, here, "local")
    assert 4 <= done_before < 12
    killed(path, there, "slurm", 3, lambda: kill_a_job(there))
    on_the_cluster = graded(path, there, "slurm")
    assert local == on_the_cluster
    assert len(local) == 12
    assert local["reference"].startswith("9.0 graded")
    assert local["reference"] == local["reference-zipped"]
    assert local["stub"].startswith("0.0 graded")
    assert local["broken"].startswith("0.0 unusable")
    assert all(
        not line.startswith("9.0") for name, line in local.items() if "reference" not in name
    )
    assert graded(path, there, "slurm") == local
