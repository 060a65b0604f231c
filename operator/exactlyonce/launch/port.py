"""The port to whatever runs drivers: processes of this machine, or pods."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from exactlyonce.api.attempt_status import DriverTask
from exactlyonce.errors import Refused
from exactlyonce.launch.last_message import LastMessage
from exactlyonce.launch.pod_verdict import PodVerdict
from exactlyonce.positions.ranges import Epoch


@dataclass(frozen=True, slots=True)
class DriverPod:
    """What the record of a driver's pod shows; `started_at` is None before its driver runs.

    `word` is what the reconciliation that ran in it has said, where one did and has ended.
    """

    name: str
    image: str | None
    started_at: datetime | None = None
    word: PodVerdict | None = None


@dataclass(frozen=True, slots=True)
class NeverStarted:
    """There is no trace of a driver of this attempt."""


@dataclass(frozen=True, slots=True)
class Running:
    """The driver lives, as far as can be told; `started` is False while it is only on its way.

    `gives_up_at` is when it counts as gone if nothing changes until then, and nobody will tell. `idle_message` says in one
    sentence why a driver that has started cannot work: it has no executor. `hangs` says that it has shown no progress for as
    long as it may, and is to be killed.
    """

    where: str
    started: bool = True
    pod: DriverPod | None = None
    gives_up_at: datetime | None = None
    idle_message: str | None = None
    hangs: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The driver has ended and writes nothing any more; `proof` says how that is known.

    `words` are its last ones, None when it left none, and `detail` says what else is known of its end. `reason` is one word
    for it where the last message does not say it. `blames_batch` is False where something else than the current batch ended it;
    `out_of_memory` says that its container needed more memory than it may have.
    """

    proof: str
    words: LastMessage | None
    detail: str
    reason: str | None = None
    blames_batch: bool = True
    pod: DriverPod | None = None
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """The driver is given up without proof of its death: it may still run, frozen or out of reach.

    `reason` is one word for it.
    """

    message: str
    reason: str = "Lost"
    pod: DriverPod | None = None


DriverState = NeverStarted | Running | Ended | Gone


@dataclass(frozen=True, slots=True)
class ShrunkLimit:
    """A smaller limit of a batch, and the positions (as JSON) up to which it holds."""

    records: int
    until: str


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A batch that failed too often, and where its ranges end (positions as JSON): it is passed over, and its ranges are kept.

    `error` is what it failed with last. With `bisect` its driver looks for the records that fail by themselves, and passes over
    those alone.
    """

    batch: int
    until: str
    error: str
    bisect: bool = False


@dataclass(frozen=True, slots=True)
class Orders:
    """What one attempt is told beside the spec of its stream.

    `ticket` is what the raise of its epoch drew: the driver claims with it (docs/adr/0004). `checkpoint_path` is the checkpoint
    that was decided on, which the ledger has to name still. With a `brief`, reconciliation runs where the driver will, before
    it, decides on a checkpoint by itself, and lets the driver start or not. `limit` is there while a batch was too large,
    `quarantine` until a batch that failed too often was passed over. `writer_is_dead`: the driver that last wrote the published
    checkpoint is known to have ended, which a driver that only finishes may record.
    """

    ticket: str
    brief: str | None = None
    limit: ShrunkLimit | None = None
    quarantine: Quarantine | None = None
    checkpoint_path: str | None = None
    task: DriverTask = DriverTask.RUN_QUERY
    writer_is_dead: bool = False


NO_ORDERS = Orders(ticket="")
"""With these no driver can claim its epoch: for what is made of an attempt and not started."""


class Launcher(Protocol):
    """Runs the drivers of one stream, one per attempt."""

    def latest(self) -> Epoch:
        """Return the highest attempt that has left a trace here, 0 where none has: its name is taken for good."""
        ...

    def state_of(self, attempt: Epoch) -> DriverState:
        """Return how the driver of an attempt is, now; never from memory."""
        ...

    def start(self, attempt: Epoch, orders: Orders = NO_ORDERS) -> None:
        """Start the driver of an attempt with its orders; one that is there already is left as it is.

        Raises:
            LaunchFailed: if it cannot be started.
        """
        ...

    def drain(self, attempt: Epoch) -> None:
        """Ask the driver to end after the current batch; asking again is harmless."""
        ...

    def kill(self, attempt: Epoch) -> None:
        """End the driver without waiting for anything; doing it again is harmless, and its death is still to be proven."""
        ...


class LaunchFailed(Exception):
    """A driver could not be started; the message says why in one sentence."""


class NotCreated(LaunchFailed):
    """Whoever is to run the driver said no, so that nothing was created; it may say yes later."""


class ManifestRefused(Refused):
    """What the driver is made of is refused for what it says; the resource has to be changed."""
