"""`autograder doctor`: what this machine can do, told line by line."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from autograder import cli, doctor
from autograder.confine import modes
from autograder.confine.modes import Confinement, Isolation
from autograder.inputs import course_secret


def test_every_backend_layer_and_mode_is_told() -> None:
    found = doctor.findings()
    names = {(one.topic, one.name.removesuffix(" (auto)")) for one in found}
    assert {("backend", "gloo"), ("backend", "nccl")} <= names
    assert {("isolation", name) for name in modes.LAYERS} <= names
    assert {("mode", "full"), ("mode", "container"), ("mode", "none")} <= names
    assert sum(one.name.endswith(" (auto)") for one in found) == 1
    assert all(one.told for one in found if not one.good)


def test_the_command_shows_them() -> None:
    ended = CliRunner().invoke(cli.app, ["doctor"])
    assert ended.exit_code == 0
    for word in ("gloo", "GPUs", "system-call filter", "container"):
        assert word in ended.output


def test_a_mode_that_cannot_be_had_is_told_with_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = dict.fromkeys(modes.LAYERS, "") | {"network namespace": "not permitted"}
    monkeypatch.setattr(modes, "probed", lambda: refused)
    monkeypatch.setattr(doctor, "choose", lambda mode=None: Confinement(Isolation.NONE, ()))
    (full,) = [one for one in doctor.findings() if one.topic == "mode" and "full" in one.name]
    assert not full.good
    assert full.told == "without network namespace"


@pytest.mark.parametrize(
    ("modes_work", "secret_there", "code"), [(True, True, 0), (False, True, 2), (True, False, 2)]
)
def test_its_exit_code_says_whether_results_can_be_official(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    modes_work: bool,
    secret_there: bool,
    code: int,
) -> None:
    private = tmp_path / "private"
    monkeypatch.setenv("AUTOGRADER_PRIVATE", str(private))
    if secret_there:
        course_secret(private)
    mode = doctor.Finding("mode", "container", modes_work, "")
    monkeypatch.setattr(doctor, "_modes", lambda: [mode])
    assert CliRunner().invoke(cli.app, ["doctor", "--official"]).exit_code == code
    assert CliRunner().invoke(cli.app, ["doctor"]).exit_code == 0


def test_the_courses_secret_is_told_by_its_fingerprint_and_not_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    private = tmp_path / "private"
    monkeypatch.setenv("AUTOGRADER_PRIVATE", str(private))
    (one,) = doctor._secret()
    assert (one.good, private.exists()) == (False, False)
    secret = course_secret(private)
    (one,) = doctor._secret()
    assert one.good
    assert secret.fingerprint[:12] in one.told
    private.chmod(0o755)
    (one,) = doctor._secret()
    assert not one.good
    assert "chmod" in one.told


@pytest.mark.parametrize(("gpus", "mib", "good"), [(0, 64, True), (2, 64, False), (2, 2048, True)])
def test_gpus_need_shared_memory(
    monkeypatch: pytest.MonkeyPatch, gpus: int, mib: int, good: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=mib << 20))
    (one,) = [one for one in doctor._machine() if one.name == "shared memory"]
    assert one.good == good
    assert ("--shm-size" in one.told) == (not good)
