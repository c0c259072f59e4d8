"""What a world's hooks call: makes this package importable in the leader, and goes on there."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

from multirank.processes.packages import MemoryPackage

_NAME = "confinement"  # what this package is called there


def leader(files: Mapping[str, bytes], plan: Mapping[str, Any]) -> None:
    """The hook `before_ranks`."""
    sys.meta_path.insert(0, MemoryPackage(_NAME, files))
    hooks = importlib.import_module(f"{_NAME}.hooks")
    hooks.confine_leader(hooks.Plan(**plan))


def rank(context: Any, plan: Mapping[str, Any]) -> None:
    """The hook `before_user_code`: everything is imported already, and then forgotten."""
    hooks = sys.modules[f"{_NAME}.hooks"]
    hooks.confine_rank(context, hooks.Plan(**plan))
    sys.meta_path[:] = [one for one in sys.meta_path if getattr(one, "name", "") != _NAME]
    for name in [name for name in sys.modules if name.partition(".")[0] == _NAME]:
        del sys.modules[name]
