"""The asks of a driver's process: to drain, and whether its parent still lives."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from pathlib import Path
from types import FrameType

from exactlyonce.signal_request import SignalRequest

PR_SET_PDEATHSIG = 1  # linux/prctl.h
HEARTBEAT_SECONDS = 1.0


class Drain:
    """Set by SIGTERM or SIGINT: end after the current batch."""

    def __init__(self) -> None:
        self._ask = SignalRequest()

    @property
    def asked(self) -> bool:
        """Whether the process was asked to end."""
        return self._ask.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait at most this long for the ask; whether it has come."""
        return self._ask.wait(seconds)

    def listen(self) -> None:
        """Take SIGTERM and SIGINT as the ask; from the main thread."""

        def note(_signal: int, _frame: FrameType | None) -> None:
            self._ask.set()

        signal.signal(signal.SIGTERM, note)
        signal.signal(signal.SIGINT, note)


def drain_with_parent(parent: int) -> None:
    """Have the kernel send SIGTERM to this process when `parent` ends; at once if it has ended already."""
    if os.uname().sysname == "Linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def beat(file: Path) -> None:
    """Touch a file every HEARTBEAT_SECONDS, in a thread that ends with the process; a frozen process stops doing so."""

    def touch() -> None:
        pause = threading.Event()
        while True:
            file.touch()
            pause.wait(HEARTBEAT_SECONDS)

    threading.Thread(target=touch, name="heartbeat", daemon=True).start()
