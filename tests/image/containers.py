"""Gradings in default Docker containers without a network, laid out as on Gradescope."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

IMAGE = os.environ.get("GRADER_IMAGE", "")
ZIPPED = os.environ.get("GRADESCOPE_IMAGE", "")  # what Gradescope would make of our zip
COURSE_FILE = "/autograder/source/reference/course.toml"


def docker(*arguments: str) -> str:
    """The output of a Docker command that must succeed."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"docker {arguments}: {done.stdout}\n{done.stderr}"
    return done.stdout


class Grading:
    """One that has begun.

    Attributes:
        results: its results.json, as soon as there is one.
        started: when, by the monotonic clock.
    """

    def __init__(
        self,
        folder: Path,
        files: Mapping[str, bytes],
        *options: str,
        image: str = IMAGE,
        secret: bytes | None = None,
        course: str = "",
        metadata: Mapping[str, Any] | None = None,
        arguments: tuple[str, ...] = (),
    ) -> None:
        for name in ("submission", "results", "private"):
            (folder / name).mkdir(mode=0o700, parents=True)
        for name, content in files.items():
            (folder / "submission" / name).write_bytes(content)
        volumes = [
            f"{folder}/submission:/autograder/submission:ro",
            f"{folder}/results:/autograder/results",
        ]
        if secret is not None:
            _private(folder / "private" / "course-secret", secret)
            volumes.append(f"{folder}/private:/autograder/private:ro")
        if course:
            _private(folder / "course.toml", course.encode())
            volumes.append(f"{folder}/course.toml:{COURSE_FILE}:ro")
        if metadata is not None:
            text = json.dumps(metadata).encode()
            _private(folder / "metadata.json", text)
            volumes.append(f"{folder}/metadata.json:/autograder/submission_metadata.json:ro")
        self.started = time.monotonic()
        self.path = folder / "results" / "results.json"
        self._process = subprocess.Popen(
            [
                *("docker", "run", "--rm", "--network", "none", *options),
                *(f"--volume={volume}" for volume in volumes),
                *(image, "/autograder/run_autograder", *arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def results(self) -> dict[str, Any] | None:
        return json.loads(self.path.read_bytes()) if self.path.exists() else None

    def wait(self) -> dict[str, Any]:
        """The results, when the container has ended."""
        said, _ = self._process.communicate(timeout=600)
        results = self.results
        assert self._process.returncode == 0, said
        assert results is not None, said
        assert results["extra_data"].get("finished"), said
        return results


def _private(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)


def outcomes(results: dict[str, Any]) -> dict[str, tuple[str, float]]:
    """What each check came to: outcome and score, by its id."""
    return {
        test["extra_data"]["check"]: (test["extra_data"]["outcome"], test["score"])
        for test in results["tests"]
    }
