"""What the tests of the autograder share: one zygote for all of them, started before they are."""

from __future__ import annotations

import os

import pytest

import multirank


def pytest_configure(config: pytest.Config) -> None:
    """Under pytest-xdist this process's zygote serves the workers too."""
    if not config.option.collectonly:
        multirank.start()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root")
