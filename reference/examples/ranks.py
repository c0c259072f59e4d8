"""Calls on several ranks that say in one sentence what is not written yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from multirank import Run, World


def call(world: World, function: Callable[..., Any], *args: Any) -> Run:
    """Calls ``function(*args)`` on every rank.

    Raises:
        NotImplementedError: a rank came to something that is not written yet; the text names it.
        multirank.RanksFailed: a rank failed otherwise; the text is the whole story.
    """
    run = world.call(function, *args, check=False)
    for rank in run.ranks:
        if rank.exception is not None and rank.exception.type == "NotImplementedError":
            raise NotImplementedError(rank.exception.message)
    return run.check()
