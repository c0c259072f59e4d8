"""Finding the process that starts ranks, or starting it, and getting a leader from it.

That is the zygote, which forks them, or where a process cannot safely be forked (macOS), the pool,
which keeps spawned ones. One of them serves a process and all its children (such as pytest-xdist's
workers): its socket's path stands in the environment variable MULTIRANK_ZYGOTE. MULTIRANK_START
says which, "fork" or "spawn", instead of what is right for the system.
"""

from __future__ import annotations

import atexit
import contextlib
import enum
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from .. import inside

START_TIMEOUT = 60.0  # seconds that a leader, and then its ranks, get to be ready
_VARIABLE = "MULTIRANK_ZYGOTE"
_STOP_TIMEOUT = 3.0
_ROOT = str(Path(__file__).resolve().parent.parent.parent)
_INSTALLED = ("site-packages", "dist-packages")
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH")
_KEPT_PREFIXES = ("LC_", "OPENBLAS_", "MKL_", "CUDA_", "NCCL_")

# Without `site`, and with our own folder on the path for this one import only, a rank can import
# what is installed and nothing that lies beside this library.
_PROGRAM = """
import sys
sys.path += {packages!r}
sys.path.insert(0, {root!r})
from multirank.processes.{module} import main
del sys.path[0]
main()
"""
# The pool needs no torch, and so does without the package's __init__, which imports it.
_POOL_PROGRAM = """
import sys, types
package = types.ModuleType("multirank")
package.__path__ = [{root!r} + "/multirank"]
sys.modules["multirank"] = package
from multirank.processes.pool import main
main()
"""

_starting = threading.Lock()


class Method(enum.StrEnum):
    """How ranks are started."""

    FORK = "fork"
    SPAWN = "spawn"


class StartError(RuntimeError):
    """Ranks could not be started on this machine."""


def method() -> Method:
    """How ranks are started here.

    Raises:
        ValueError: MULTIRANK_START is neither "fork" nor "spawn".
    """
    asked = os.environ.get("MULTIRANK_START")
    if asked is None:
        return Method.SPAWN if sys.platform == "darwin" else Method.FORK
    if asked not in {*Method}:
        raise ValueError(f"MULTIRANK_START is {asked!r}; it must be {' or '.join(Method)}")
    return Method(asked)


def start() -> None:
    """Starts the zygote now, without waiting for it, unless there is one.

    `World` does so by itself; a program that knows early that it will need ranks saves the two
    seconds that the zygote's imports take.

    Raises:
        StartError: the zygote cannot be started.
        RuntimeError: called inside a rank.
    """
    if inside.is_rank():
        raise RuntimeError(
            "multirank was asked for ranks inside a rank. A function that runs on ranks uses "
            "torch.distributed; if your file calls multirank when it is imported, put that call "
            'under `if __name__ == "__main__":`'
        )
    with _starting:
        found = Path(os.environ.get(_VARIABLE, ""))
        if not (found.is_socket() and found.name == method()):
            _start(method())


def leader() -> socket.socket:
    """A connection to a new leader, which waits for its world's description.

    A zygote that has died is replaced, once.

    Raises:
        StartError: the zygote does not answer.
        RuntimeError: called inside a rank.
    """
    for _ in range(2):
        start()
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(START_TIMEOUT)
        try:
            connection.connect(os.environ[_VARIABLE])
            if connection.recv(1):
                return connection
        except TimeoutError as error:
            connection.close()
            raise StartError(
                f"the process that starts ranks has not answered within {START_TIMEOUT:g} s"
            ) from error
        except OSError:
            pass
        connection.close()
        reason = complaint()
        os.environ.pop(_VARIABLE, None)
    raise StartError(f"the process that starts ranks has died\n{reason}")


def _start(how: Method) -> None:
    directory = Path(tempfile.mkdtemp(prefix="multirank-"))
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(directory / how))
    except OSError as error:
        listener.close()
        directory.rmdir()
        raise StartError(
            f"no socket can be made in {directory} ({error}); set TMPDIR to a short path on a "
            "local disk"
        ) from error
    listener.listen(128)
    isolated = [sys.executable, "-I", "-S", "-c"]
    command = [*isolated, _program("zygote"), str(listener.fileno())]
    if how is Method.SPAWN:
        pool = _POOL_PROGRAM.format(root=_ROOT)
        worker = [*isolated, _program("worker")]
        command = [*isolated, pool, str(listener.fileno()), *worker]
    with (directory / "stderr").open("wb") as errors:
        starter = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=_environment(),
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    listener.close()
    os.environ[_VARIABLE] = str(directory / how)
    atexit.register(_stop, starter, how, os.getpid(), directory)


def _program(module: str) -> str:
    """What a process of ours runs: `main` of a module of this package."""
    installed = [path for path in sys.path if Path(path).name in _INSTALLED]
    return _PROGRAM.format(packages=installed, root=_ROOT, module=module)


def complaint() -> str:
    """What the process that starts ranks last wrote to its standard error, for messages."""
    try:
        text = Path(os.environ[_VARIABLE]).with_name("stderr").read_text(errors="replace")
    except (OSError, KeyError):
        return ""
    return text[-2000:].strip()


def _environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or name.startswith(_KEPT_PREFIXES)
    }
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    return kept | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": loopback}


def _stop(starter: subprocess.Popen[bytes], how: Method, owner: int, directory: Path) -> None:
    if os.getpid() != owner:
        return  # a child that was forked from the owner
    if how is Method.SPAWN and starter.stdin is not None:
        starter.stdin.close()  # the pool has its workers to end
        with contextlib.suppress(subprocess.TimeoutExpired):
            starter.wait(_STOP_TIMEOUT)
    starter.kill()  # the zygote may be in the middle of its imports, and has nothing to tidy up
    starter.wait()
    shutil.rmtree(directory, ignore_errors=True)
