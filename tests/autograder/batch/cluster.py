"""A Slurm cluster of one node, for real: munged, slurmctld and slurmd in a folder of its own.

Debian's slurm-wlm and munge, started by hand as root and ended by their pids; nothing of the
machine's own configuration is read or changed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from autograder.confine import kernel

_DAEMONS = ("munged", "slurmctld", "slurmd")
_PATIENCE = 30.0
_CONFIGURATION = """\
ClusterName=class
SlurmctldHost={host}
SlurmUser=root
SlurmctldPort={port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
KillWait=5
MinJobAge=10
SchedulerParameters=sched_interval=1,sched_min_interval=0,defer
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeHostname={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory={memory}
PartitionName=class Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str:
    """Why it cannot be started here; "" where it can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [name for name in _DAEMONS if shutil.which(name, path=_path()) is None]
    told = "install Debian's slurm-wlm and munge, as .ci/slurm does"
    return f"{', '.join(missing)} not found: {told}" if missing else ""


@contextlib.contextmanager
def running(folder: Path, cores: int) -> Iterator[dict[str, str]]:
    """A cluster for the duration of the block; the environment that its commands need."""
    folder.mkdir(mode=0o755)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    configuration = folder / "slurm.conf"
    configuration.write_text(
        _CONFIGURATION.format(
            host=socket.gethostname().partition(".")[0],
            folder=folder,
            cores=cores,
            memory=memory * 9 // 10,
            port=_free_port(),
            node_port=_free_port(),
        )
    )
    environment = os.environ | {"SLURM_CONF": str(configuration), "PATH": _path()}
    commands = [
        [
            *("munged", "--foreground", "--force", f"--key-file={key}"),
            *(f"--socket={folder}/munge.socket", f"--pid-file={folder}/munged.pid"),
            *(f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"),
        ],
        ["slurmctld", "-D", "-f", str(configuration)],
        ["slurmd", "-D", "-f", str(configuration)],
    ]
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            daemons.append(_started(command, environment, folder))
            if command[0] == "munged":
                _until((folder / "munge.socket").exists, folder)
        _until(lambda: _is_idle(environment), folder)
        yield {"SLURM_CONF": str(configuration), "PATH": _path()}
    finally:
        subprocess.run(["scancel", "--user", "root"], env=environment, capture_output=True)
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _started(
    command: list[str], environment: dict[str, str], folder: Path
) -> subprocess.Popen[bytes]:
    with (folder / f"{command[0]}.out").open("wb") as out:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            preexec_fn=lambda: kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM),
        )


def _is_idle(environment: dict[str, str]) -> bool:
    told = subprocess.run(
        ["sinfo", "--noheader", "--format", "%t"], env=environment, capture_output=True, text=True
    )
    return told.stdout.strip() == "idle"


def _until(true: object, folder: Path) -> None:
    assert callable(true)
    deadline = time.monotonic() + _PATIENCE
    while not true():
        if time.monotonic() > deadline:
            logs = [file.read_text(errors="replace")[-2000:] for file in folder.glob("*.out")]
            raise AssertionError("the cluster does not start:\n" + "\n".join(logs))
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
