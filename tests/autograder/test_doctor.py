"""`autograder doctor`: what this machine can do, told line by line."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from autograder import cli, doctor
from autograder.confine import modes
from autograder.confine.modes import Confinement, Isolation


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
