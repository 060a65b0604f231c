"""Starts drivers so that they take their JVM from this test process's pool."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from exactlyonce.launch.local import LocalLauncher
from exactlyonce.launch.port import NO_ORDERS, DriverState, Ended, Orders
from exactlyonce.positions.ranges import Epoch
from tests.combinations import EVERY_MODE
from tests.warm.pool import SOCKET, Pool

COLD = EVERY_MODE or os.environ.get("COLD_DRIVERS") == "1"
"""Whether every driver has a JVM of its own."""


@cache
def shared_pool() -> Pool:
    """The pool of this test process; its JVMs end with the process, which holds their standard input."""
    folder = Path(tempfile.mkdtemp(prefix="exactlyonce-jvms-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Pool(folder)


def pool_log() -> str:
    """Return the end of what the JVMs of the pool have told."""
    log = shared_pool().log
    return log.read_text(errors="replace")[-2000:] if log.exists() else ""


def warm_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which a driver asks for a JVM that is there already."""
    if COLD:
        return dict(given)
    path = [str(Path(__file__).parent), given.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))]
    return {**given, SOCKET: str(shared_pool().path), "PYTHONPATH": os.pathsep.join(filter(None, path))}


@dataclass
class WarmLauncher(LocalLauncher):
    """A `LocalLauncher` whose drivers take their JVM from the pool; one has ended when its JVM is idle again, or dead."""

    @classmethod
    def of(cls, launcher: LocalLauncher) -> WarmLauncher:
        """Return one that does what `launcher` does."""
        return cls(**{field.name: getattr(launcher, field.name) for field in fields(launcher) if field.init})

    def start(self, attempt: Epoch, orders: Orders = NO_ORDERS) -> None:
        """Start the driver in an environment in which it finds the pool."""
        given = self.environment
        self.environment = warm_environment(given)
        try:
            super().start(attempt, orders)
        finally:
            self.environment = given

    def state_of(self, attempt: Epoch) -> DriverState:
        """Return how the driver is; it has not ended before its JVM has nothing of it left."""
        state = super().state_of(attempt)
        if isinstance(state, Ended):
            shared_pool().settle(self._marker(attempt))
        return state
