"""Start server processes that cannot outlive whoever started them.

Every server of the testbed is a child that the kernel ends with its parent
(PR_SET_PDEATHSIG), so a test run that is killed leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PORTS = range(15_000, 30_000)


class ServerDidNotStart(RuntimeError):
    """A server of the testbed ended or stayed silent while it was starting."""


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nothing uses, outside of what the kernel gives to those who name no port.

    A port of the kernel's own range (`ip_local_port_range`, from 32768 on) may become the near end of a connection before the
    server binds it, or while a server that is stopped on purpose is away. Chosen at random, so that two who choose at the same
    moment do not meet; whatever a test does to `random` leaves it alone.
    """
    for _ in range(100):
        port = PORTS[secrets.randbelow(len(PORTS))]
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerDidNotStart(f"No port between {PORTS[0]} and {PORTS[-1]} of 127.0.0.1 is free.")


def port_answers(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether something accepts connections on that port."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent thread ends; for `preexec_fn`."""
    if os.uname().sysname == "Linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start(
    command: Sequence[str],
    log: Path,
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    user: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start `command` in a session of its own with its output in `log`, tied to this process's life.

    `user` is the numeric user (and group) to become first; only root may name one.
    """

    def before_exec() -> None:
        if user is not None:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        die_with_parent()

    with log.open("ab") as output:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=None if environment is None else dict(environment),
            start_new_session=True,
            preexec_fn=before_exec,
        )


def wait_until_ready(
    process: subprocess.Popen[bytes], is_ready: Callable[[], bool], what: str, log: Path, timeout_seconds: float
) -> None:
    """Return once `is_ready()`; raise ServerDidNotStart with the log's tail when it ends or takes too long."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        if process.poll() is not None:
            problem = f"ended with status {process.returncode}"
        elif is_ready():
            return
        elif time.monotonic() > deadline:
            process.kill()
            problem = f"was not ready after {timeout_seconds:.0f} s"
        else:
            time.sleep(0.05)
            continue
        tail = log.read_text(errors="replace")[-3000:]
        raise ServerDidNotStart(f"{what} {problem}; the end of {log}:\n{tail}")


def stop(process: subprocess.Popen[bytes], how: signal.Signals, timeout_seconds: float = 20) -> None:
    """End a process that `start` made: by `how`, and by SIGKILL to its whole session when that takes too long."""
    if process.poll() is not None:
        return
    process.send_signal(how)
    try:
        process.wait(timeout_seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout_seconds)
