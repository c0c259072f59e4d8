"""Which layers of confinement are on, and whether each works on this machine.

Three modes: `full` (root that may make namespaces), `container` (root that may not, as in a default
container) and `none`. Each layer is tried out in a process of its own, once.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from autograder.confine import (
    counters,
    landlock,
    limits,
    namespaces,
    process,
    seccomp,
    user,
    watchdog,
)
from autograder.confine.attempt import attempt


class Isolation(StrEnum):
    """What can be asked for: a mode, or the strongest that works."""

    AUTO = "auto"
    FULL = "full"
    CONTAINER = "container"
    NONE = "none"


MODES = (Isolation.FULL, Isolation.CONTAINER, Isolation.NONE)

OWN_PROCESSES = "own processes"  # which every world has
_ALWAYS: dict[str, Callable[[], str]] = {
    user.NAME: user.probe,
    limits.NAME: limits.probe,
    process.NAME: process.probe,
    seccomp.NAME: seccomp.probe,
    watchdog.NAME: watchdog.probe,
}
_NAMESPACES: dict[str, Callable[[], str]] = {
    name: functools.partial(namespaces.probe, name) for name in namespaces.NAMES
}
_EXTRA: dict[str, Callable[[], str]] = {
    landlock.NAME: landlock.probe,
    counters.NAME: counters.probe,
}
LAYERS = {**_ALWAYS, **_NAMESPACES, **_EXTRA}


class CannotConfine(RuntimeError):
    """What was asked for does not work on this machine."""


@dataclass(frozen=True)
class Confinement:
    """What is on.

    layers: their names, for the result.
    """

    mode: Isolation
    layers: tuple[str, ...]

    @property
    def landlock(self) -> bool:
        return landlock.NAME in self.layers


@functools.cache
def probed() -> dict[str, str]:
    """Every layer by name, with the reason why it does not work here; "" where it does."""
    if sys.platform != "linux":
        return dict.fromkeys(LAYERS, "only Linux has it")
    if os.getuid() != 0:
        return dict.fromkeys(LAYERS, "only root can set it up")
    return {name: attempt(probe) for name, probe in LAYERS.items()}


def missing(mode: Isolation) -> list[str]:
    """The layers that a mode needs and that do not work here."""
    needed = {
        Isolation.FULL: [*_ALWAYS, *_NAMESPACES],
        Isolation.CONTAINER: list(_ALWAYS),
        Isolation.NONE: [],
    }
    return [name for name in needed[mode] if probed()[name]]


def why_not(mode: Isolation) -> str:
    """Why a mode cannot be had here; "" where it can."""
    return "; ".join(f"{name}: {probed()[name]}" for name in missing(mode))


@functools.cache
def choose(asked: Isolation = Isolation.AUTO) -> Confinement:
    """The mode that was asked for; `auto` is the strongest that works, but for root never `none`.

    Raises:
        CannotConfine: it does not work here.
    """
    if asked is Isolation.AUTO:
        asked = next(mode for mode in MODES if not why_not(mode))
        if asked is Isolation.NONE and os.getuid() == 0:
            raise CannotConfine(
                "submissions cannot be confined here, and would run as root "
                f"({why_not(Isolation.CONTAINER)}). To grade code that you trust all the same: "
                "--isolation none"
            )
    elif reason := why_not(asked):
        raise CannotConfine(f"isolation {asked} does not work here: {reason}")
    layers = [OWN_PROCESSES]
    if asked is not Isolation.NONE:
        layers += _ALWAYS
        layers += [name for name in _EXTRA if not probed()[name]]
    if asked is Isolation.FULL:
        layers += _NAMESPACES
    return Confinement(asked, tuple(layers))
