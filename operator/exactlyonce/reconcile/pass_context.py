"""What a stream's loop works with, and what a pass comes to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol

from exactlyonce.api.phases import TransitionReason
from exactlyonce.api.status import StreamStatus
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.launch.port import Launcher
from exactlyonce.ledger.rows import LedgerView, Owner
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.observe import Stores


class StatusConflict(ExactlyOnceError):
    """Another pass has written the status since it was read; start over."""


class Wanted(Enum):
    """What the resource asks for: a stream that runs, or one at rest (suspended, or about to be deleted)."""

    RUN = "Run"
    REST = "Rest"


class StatusStore(Protocol):
    """Where the status of one stream is kept, with optimistic concurrency."""

    def read(self) -> tuple[StreamStatus, str]:
        """Return the status as it is now, and its version; a new status where there is none."""
        ...

    def write(self, status: StreamStatus, version: str, reason: TransitionReason | None = None) -> str:
        """Replace the status of that version and return the new version.

        `reason` says why the phase is another one; an implementation calls `check_transition` before it writes.

        Raises:
            StatusConflict: if the status has another version by now.
        """
        ...


@dataclass(frozen=True, slots=True)
class Watching:
    """A driver runs; look again when it ends, and at `until` in any case."""

    attempt: Epoch
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing is to be done before this moment."""

    until: datetime
    message: str


@dataclass(frozen=True, slots=True)
class Halted:
    """The stream stops until a person has acted."""

    message: str


@dataclass(frozen=True, slots=True)
class Done:
    """The stream drained, or completed what `availableNow` asked for."""

    completed: bool


PassResult = Watching | Waiting | Halted | Done

Report = Callable[[str, str], None]
"""Told of each event: its reason, a CamelCase word, and a sentence."""


@dataclass(frozen=True)
class Attempts:
    """How attempts are launched, and what is asked before.

    `check` raises what an attempt lacks, such as a secret; it is asked before one is recorded, and before a driver that runs is
    drained for it. `rehearse` raises what would keep the driver's pod from being created at this moment, such as a quota; it is
    asked only when no driver runs, because one that runs may fill the quota.
    """

    launcher: Launcher
    check: Callable[[], None] = lambda: None
    rehearse: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Place:
    """Where the loop runs, and for whom.

    `owner_is_gone` tells whether a resource no longer exists in this cluster. `in_pod` says whether only the stream's own pods
    reach the checkpoint, so that reconciliation runs in the driver's pod (docs/adr/0011). `asks_again` says that what a server
    refuses is tried again later and halts no stream: nobody waits for the answer.
    """

    owner: Owner
    owner_is_gone: Callable[[Owner], bool]
    in_pod: Callable[[], bool] = lambda: False
    asks_again: bool = False


@dataclass(frozen=True)
class Reporter:
    """Who is told: `report` of each event, `note_problem` of each error that ends a pass."""

    report: Report
    note_problem: Callable[[Exception], None] = lambda problem: None


@dataclass(frozen=True)
class Timing:
    """What time it is, and whether a pass that has nothing else to do may ask the ledger how far the stream has come.

    It asks by `glance` where that is cheaper.
    """

    now: Callable[[], datetime]
    view_is_due: Callable[[], bool] = lambda: False
    glance: Callable[[str], LedgerView | None] | None = None


@dataclass(frozen=True)
class PassContext:
    """What a stream's loop works with."""

    stores: Stores
    attempts: Attempts
    statuses: StatusStore
    place: Place
    reporter: Reporter
    timing: Timing
