"""Something tried out in a process of its own, since it changes the process that it runs in."""

from __future__ import annotations

import os
from collections.abc import Callable


def attempt(what: Callable[[], str]) -> str:
    """What it says; or, if it raises or dies, that it does."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                said = what()
            except Exception as error:
                said = repr(error)
            os.write(writing, said.encode()[:4000])
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    return answer or (f"the attempt ended with status {status}" if status else "")
