"""`autograder batch` and `diff` as they are typed: options arrive, mistakes are sentences."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from autograder.batch import command_line, commands
from autograder.batch.conduct import Asked
from autograder.batch.executor import SlurmOptions
from autograder.paths import ROOT

from . import fake

app = typer.Typer()
command_line.register(app)


def typed(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> commands.Options:
    """The options that these arguments become."""
    seen: list[commands.Options] = []

    def take(_: object, options: commands.Options) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(commands, "batch", take)
    assert CliRunner().invoke(app, ["batch", "class", "--out", "out", *arguments]).exit_code == 0
    return seen[0]


def test_by_default_everybody_is_graded_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert typed(monkeypatch) == commands.Options(Path("class"), Path("out"), Asked())


def test_what_is_asked_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    options = typed(
        monkeypatch,
        *("--only", "anna", "--only", "bert", "--failed", "--regrade", "1.7", "--lower"),
        *("--at-once", "3", "--official", "--backend", "nccl", "--isolation", "container"),
    )
    assert options.asked == Asked(("anna", "bert"), failed=True, regrade=("1.7",), lower=True)
    assert (options.at_once, options.official, options.backend) == (3, True, "nccl")
    assert (options.isolation, options.slurm) == ("container", None)


def test_slurm_gets_its_options_and_another_image_is_graded_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    container = "apptainer exec --bind {out} grader.sif python"
    options = typed(
        monkeypatch,
        *("--executor", "slurm", "--partition", "gpu", "--slurm-option", "account=cs101"),
        *("--slurm-option", "exclusive", "--command", container, "--at-once", "9"),
    )
    extra = {"account": "cs101", "exclusive": ""}
    assert options.slurm == SlurmOptions("gpu", container, 9, extra)
    assert options.image == container
    named = typed(monkeypatch, "--executor", "slurm", "--command", container, "--image", "v2")
    assert named.image == "v2"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "There are no submissions"),
        (("--only", "nobody"), "There is no submission or student"),
        (("--regrade", "nothing"), "There is no problem 'nothing'"),
    ],
)
def test_wrong_usage_is_a_sentence_and_exit_code_2(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "class").mkdir()
    if arguments:
        fake.submission(tmp_path / "class" / "anna")
    given = [str(tmp_path / "class"), "--out", str(tmp_path / "out"), "--seed", "1", *arguments]
    ended = CliRunner().invoke(app, ["batch", *given])
    assert (ended.exit_code, "Traceback" in ended.output) == (2, False)
    assert said in ended.output


def test_a_batch_is_begun_without_importing_torch() -> None:
    code = (
        "import sys; sys.argv = ['autograder', 'batch', '--help']\n"
        "from autograder.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
