"""Finding the zygote, or starting it, and getting a leader from it.

One zygote serves a process and all its children (such as pytest-xdist's workers): its socket's
path stands in the environment variable MULTIRANK_ZYGOTE.
"""

from __future__ import annotations

import atexit
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
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH")
_KEPT_PREFIXES = ("LC_", "OPENBLAS_", "MKL_", "CUDA_", "NCCL_")

# Without `site`, and with our own folder on the path for this one import only, a rank can import
# what is installed and nothing that lies beside this library.
_PROGRAM = """
import sys
sys.path += {packages!r}
sys.path.insert(0, {root!r})
from multirank.processes.zygote import main
del sys.path[0]
main()
"""

_starting = threading.Lock()


class StartError(RuntimeError):
    """Ranks could not be started on this machine."""


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
        if not Path(os.environ.get(_VARIABLE, "")).is_socket():
            _start()


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


def _start() -> None:
    directory = Path(tempfile.mkdtemp(prefix="multirank-"))
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(directory / "zygote"))
    except OSError as error:
        listener.close()
        directory.rmdir()
        raise StartError(
            f"no socket can be made in {directory} ({error}); set TMPDIR to a short path on a "
            "local disk"
        ) from error
    listener.listen(128)
    program = _PROGRAM.format(
        packages=[
            path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")
        ],
        root=str(Path(__file__).resolve().parent.parent.parent),
    )
    with (directory / "stderr").open("wb") as errors:
        zygote = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", program, str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=_environment(),
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    listener.close()
    os.environ[_VARIABLE] = str(directory / "zygote")
    atexit.register(_stop, zygote, os.getpid(), directory)


def complaint() -> str:
    """What the zygote last wrote to its standard error, for messages."""
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


def _stop(zygote: subprocess.Popen[bytes], owner: int, directory: Path) -> None:
    if os.getpid() != owner:
        return  # a child that was forked from the owner
    zygote.kill()  # it may be in the middle of its imports, and has nothing to tidy up
    zygote.wait()
    shutil.rmtree(directory, ignore_errors=True)
