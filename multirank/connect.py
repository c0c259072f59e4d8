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
from pathlib import Path

_VARIABLE = "MULTIRANK_ZYGOTE"
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH")
_KEPT_PREFIXES = ("LC_", "OPENBLAS_", "MKL_", "CUDA_", "NCCL_")

# Without `site`, and with our own folder on the path for this one import only, a rank can import
# what is installed and nothing that lies beside this library.
_PROGRAM = """
import sys
sys.path += {packages!r}
sys.path.insert(0, {root!r})
from multirank.zygote import main
del sys.path[0]
main()
"""

_zygote: subprocess.Popen[bytes] | None = None


class StartError(RuntimeError):
    """Ranks could not be started on this machine."""


def start() -> None:
    """Starts the zygote now, without waiting for it, unless there is one.

    `World` does so by itself; a program that knows early that it will need ranks saves the two
    seconds that the zygote's imports take.
    """
    global _zygote
    if _VARIABLE in os.environ and Path(os.environ[_VARIABLE]).exists():
        return
    directory = Path(tempfile.mkdtemp(prefix="multirank-"))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(directory / "zygote"))
    listener.listen(128)
    program = _PROGRAM.format(
        packages=[
            path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")
        ],
        root=str(Path(__file__).resolve().parent.parent),
    )
    with (directory / "stderr").open("wb") as errors:
        _zygote = subprocess.Popen(
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
    atexit.register(_stop, os.getpid(), directory)


def leader() -> socket.socket:
    """A connection to a new leader, which waits for its world's description.

    Raises:
        StartError: the zygote does not answer.
    """
    start()
    path = Path(os.environ[_VARIABLE])
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(path))
    except OSError as error:
        connection.close()
        raise StartError(f"the process that starts ranks is gone ({error})") from error
    return connection


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


def _stop(owner: int, directory: Path) -> None:
    if _zygote is None or os.getpid() != owner:
        return
    assert _zygote.stdin is not None
    _zygote.stdin.close()
    _zygote.wait()
    os.environ.pop(_VARIABLE, None)
    shutil.rmtree(directory, ignore_errors=True)
