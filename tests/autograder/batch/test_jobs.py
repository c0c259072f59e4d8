"""What is asked of Slurm, with programs in the place of its own that note it."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from submitit.core.utils import DelayedSubmission

from autograder.batch import slurm
from autograder.batch.executor import NoSlurm, SlurmOptions
from autograder.batch.slurm import SlurmExecutor
from autograder.batch.store import Place, Status

from .batches import settings

_PROGRAMS = {
    "srun": "exit 0",
    "sbatch": """
        if [ -e refuse ]; then
            echo "sbatch: error: Batch job submission failed: too many jobs" >&2
            exit 1
        fi
        job=$((101 + $(ls script-* 2>/dev/null | wc -l)))
        cp "$1" script-$job
        echo "Submitted batch job $job"
    """,
    "squeue": 'echo "$@" >> squeue.txt; cat queue 2>/dev/null || true',
    "scancel": 'echo "$@" >> scancel.txt; rm queue',
}


@dataclass
class Cluster:
    """The folder that the programs note everything in."""

    folder: Path

    def executor(self, **options: Any) -> SlurmExecutor:
        out = self.folder.parent / "the out"
        return SlurmExecutor(out / "slurm", settings().needs, SlurmOptions(**options))

    def refuses(self, refuses: bool) -> None:
        (self.folder / "refuse").touch() if refuses else (self.folder / "refuse").unlink()

    def runs(self, *jobs: str) -> None:
        (self.folder / "queue").write_text("".join(f"{job} RUNNING\n" for job in jobs))

    def arrays(self) -> list[str]:
        """What jobs there are, by the scripts that were handed in."""
        scripts = sorted(self.folder.glob("script-*"))
        lines = [line for one in scripts for line in one.read_text().splitlines()]
        return [line.partition("=")[2] for line in lines if line.startswith("#SBATCH --array=")]

    def script(self) -> str:
        (one,) = self.folder.glob("script-*")
        return one.read_text()

    def cancelled(self) -> list[str]:
        file = self.folder / "scancel.txt"
        return file.read_text().split() if file.exists() else []


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    programs, folder = tmp_path / "bin", tmp_path / "cluster"
    programs.mkdir()
    folder.mkdir()
    for name, body in _PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\ncd '{folder}'\n{body}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(slurm, "_LOOK", 0.0)
    return Cluster(folder)


@pytest.fixture
def places(tmp_path: Path) -> list[Place]:
    found = [Place(tmp_path / f"student-{number}" / "key") for number in range(4)]
    for place in found:
        place.path.mkdir(parents=True)
    return found


def test_our_jobs_are_found_whatever_the_login_is_called(
    cluster: Cluster, places: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "somebody-else")
    assert getpass.getuser() == "somebody-else"
    cluster.executor().submit(places)
    assert f"--user {os.geteuid()} " in (cluster.folder / "squeue.txt").read_text()


def test_only_the_jobs_of_this_batch_are_cancelled(cluster: Cluster, places: list[Place]) -> None:
    first = cluster.executor()
    first.submit(places[:2])
    cluster.runs("101_0", "101_1")
    second = cluster.executor()
    second.submit(places)
    assert cluster.arrays() == ["0-1%2", "0-1%2"], "the first one's jobs do the rest"
    cluster.runs("101_0", "101_1", "102_0", "102_1")
    second.wait(0)
    assert set(second.running()) == set(places)
    second.close()
    assert cluster.cancelled() == ["102_0", "102_1"]


def test_what_slurm_refuses_is_handed_in_later_where_anything_runs(
    cluster: Cluster, places: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = cluster.executor()
    executor.submit(places[:2])
    cluster.runs("101_0", "101_1")
    cluster.refuses(True)
    executor.submit(places[2:])
    executor.wait(0)
    cluster.refuses(False)
    executor.wait(0)
    assert len(cluster.arrays()) == 1, "it is not asked all the time"
    monkeypatch.setattr(slurm, "_AGAIN", 0.0)
    cluster.refuses(True)
    executor._again = 0.0
    executor.wait(0)
    cluster.refuses(False)
    executor.wait(0)
    assert len(cluster.arrays()) == 2
    cluster.runs("101_0", "101_1", "102_0", "102_1")
    executor.wait(0)
    assert set(executor.running()) == set(places)


def test_what_slurm_refuses_is_said_where_nothing_runs(
    cluster: Cluster, places: list[Place]
) -> None:
    cluster.refuses(True)
    with pytest.raises(NoSlurm, match=r"Slurm refuses the jobs: .*too many jobs"):
        cluster.executor().submit(places)


def test_an_answer_of_sbatch_that_makes_no_sense_is_a_sentence(
    cluster: Cluster, places: list[Place]
) -> None:
    (cluster.folder.parent / "bin" / "sbatch").write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(NoSlurm, match="Could not make sense of sbatch output"):
        cluster.executor().submit(places)


def test_so_many_at_once_are_so_many_over_all_arrays(cluster: Cluster, places: list[Place]) -> None:
    executor = cluster.executor(at_once=2)
    executor.submit(places)
    assert cluster.arrays() == ["0-1%2"]
    cluster.runs("101_0", "101_1")
    assert executor.wait(0) == []
    assert cluster.arrays() == ["0-1%2"]
    for place in places[:2]:
        (place.path / "grade.json").touch()
        place.update(status=Status.DONE)
    assert {one.place for one in executor.wait(0)} == set(places[:2])
    assert cluster.arrays() == ["0-1%2", "0-1%2"]


def test_jobs_of_a_batch_before_count_among_those_at_once(
    cluster: Cluster, places: list[Place]
) -> None:
    cluster.executor().submit(places[:3])
    cluster.runs("101_0", "101_1", "101_2")
    cluster.executor(at_once=2).submit(places)
    assert cluster.arrays() == ["0-2%3"]


def test_an_option_may_have_no_value(cluster: Cluster, places: list[Place]) -> None:
    extra = {"exclusive": "", "requeue": "", "account": "cs101", "mail-type": "END"}
    cluster.executor(extra=extra).submit(places)
    lines = cluster.script().splitlines()
    for option in ("exclusive", "requeue", "account=cs101", "mail-type=END"):
        assert f"#SBATCH --{option}" in lines


def test_the_command_gets_the_folder_of_the_results(cluster: Cluster, places: list[Place]) -> None:
    template = "apptainer exec --bind {out} --env 'A={b}' grader.sif python"
    cluster.executor(command=template).submit(places[:2])
    out = cluster.folder.parent / "the out"
    (first,) = (out / "slurm").glob("**/101_0_submitted.pkl")
    job = DelayedSubmission.load(first)
    path, command = job.args
    assert path == str(places[0].path)
    assert command == [
        *("apptainer", "exec", "--bind", str(out), "--env", "A={b}", "grader.sif", "python")
    ]
