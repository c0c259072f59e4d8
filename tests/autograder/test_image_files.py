"""The Dockerfile and image/, looked through without an engine; tests/image runs what they make."""

from __future__ import annotations

import re
import shlex
from typing import Any

import yaml

from autograder.paths import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
README = (ROOT / "image" / "README.md").read_text().replace("\\\n", " ")


def test_no_grading_is_probed() -> None:
    """Engine 25 and later probe every five seconds while a container counts as starting."""
    [line] = re.findall(r"^HEALTHCHECK (.*) CMD", DOCKERFILE, re.MULTILINE)
    options = dict(option.split("=") for option in line.split())
    assert options["--interval"] == "1h"  # the first probe, too, comes after so long
    assert options.keys() <= {"--interval", "--timeout"}


def test_the_secret_is_put_in_though_a_layer_without_it_is_in_the_builders_cache() -> None:
    """Secrets are no part of what a layer is looked up by; arguments are."""
    argument, run = re.findall(r"^(ARG PRIVATE|RUN --mount=type=secret.*)$", DOCKERFILE, re.M)
    assert argument == "ARG PRIVATE"
    assert '[ -n "$PRIVATE" ]' in run
    for book in (README, (ROOT / "handouts" / "staff.typ").read_text()):
        lines = [line for line in book.splitlines() if "--secret id=course-secret" in line]
        assert lines
        assert all("--build-arg PRIVATE=" in line for line in lines)


# --- A machine with GPUs --------------------------------------------------------------------------


def _run_command() -> tuple[dict[str, Any], list[str]]:
    """The options of the README's `docker run`, in compose.yaml's words, and what it runs."""
    [line] = re.findall(r"^    (docker run --rm --gpus .*)$", README, re.MULTILINE)
    words = shlex.split(line.replace("$PWD", "PWD").replace("$HOME", "~"))
    found: dict[str, Any] = {"tmpfs": [], "volumes": []}
    names = {"--network": "network_mode", "--memory": "mem_limit", "--shm-size": "shm_size"}
    words = words[words.index("--rm") + 1 :]
    while words[0].startswith("--"):
        match words:
            case ["--read-only", *words]:
                found["read_only"] = True
            case ["--gpus", "all", *words]:
                devices = [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]
                found["deploy"] = {"resources": {"reservations": {"devices": devices}}}
            case ["--tmpfs", path, *words]:
                found["tmpfs"].append(path)
            case ["--volume", volume, *words]:
                found["volumes"].append(volume)
            case [name, value, *words]:
                found[names[name]] = value
    found["image"] = words[0]
    return found, words[1:]


def _by_default(value: Any) -> Any:
    """With the variables as they are where nobody sets them, and folders as in the README."""
    if isinstance(value, list):
        return [_by_default(one) for one in value]
    if not isinstance(value, str):
        return value
    given = {"SUBMISSION": "PWD/submission", "RESULTS": "PWD/results"}
    return re.sub(r"\$\{(\w+):[-?]([^}]*)\}", lambda match: given.get(match[1], match[2]), value)


def test_compose_says_the_same_as_docker_run() -> None:
    services = yaml.safe_load((ROOT / "image" / "compose.yaml").read_text())["services"]
    assert set(services) == {"grade", "gpu"}
    for service in services.values():
        assert service["network_mode"] == "none"
        assert service["read_only"] is True
    gpu = {name: _by_default(value) for name, value in services["gpu"].items()}
    options, command = _run_command()
    assert gpu.pop("command") == command
    assert gpu == options


def test_composes_folders_are_whole_paths() -> None:
    """Where they are not, Compose looks for them beside compose.yaml, and makes empty ones."""
    lines = [line for line in README.splitlines() if "docker compose -f" in line]
    assert len(lines) == 2
    for line in lines:
        assert re.findall(r"(\w+)=(\S+)", line) == [
            ("SUBMISSION", "$PWD/submission"),
            ("RESULTS", "$PWD/results"),
        ]
