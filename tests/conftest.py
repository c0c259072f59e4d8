"""Each run of these tests keeps what `tmp_path` gives in a folder of its own.

By itself pytest numbers such folders and clears old ones away. Some tests run pytest themselves, as
a student would, dozens of times: the folder of the run that they belong to is not theirs to clear.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # Workers of pytest-xdist are given a folder inside this one.
    if config.option.basetemp is None:
        config.option.basetemp = tempfile.mkdtemp(prefix="tests-")
        config.stash[_OURS] = config.option.basetemp


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    ours = session.config.stash.get(_OURS, None)
    if ours and exitstatus == pytest.ExitCode.TESTS_FAILED:
        with contextlib.suppress(OSError):  # there is something in it that may say why
            Path(ours).rmdir()
    elif ours:
        shutil.rmtree(ours, ignore_errors=True)


_OURS = pytest.StashKey[str]()
