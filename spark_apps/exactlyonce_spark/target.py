"""The port to a sink's table, and what tasks tell the driver. No pyspark here."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from exactlyonce.errors import OutcomeUnknown, Refused, Unreachable
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition

log = logging.getLogger("exactlyonce.batch")


@dataclass(frozen=True, slots=True)
class Staged:
    """What one successful task staged: the random tag that its rows carry, and how many they are."""

    tag: int
    rows: int


@dataclass(frozen=True, slots=True)
class Moved:
    """What a landing found staged, and how many rows of the table it inserted, replaced or deleted."""

    found: int
    written: int


@dataclass(frozen=True, slots=True)
class TaskRange:
    """The range that a task reads, handed to it by the driver (`commit: Partition`)."""

    partition: Partition
    offsets: OffsetRange


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One malformed record; `place` is a JSON object with where it is, if its source has more to say than `offset`."""

    partition: Partition
    offset: int
    timestamp: str | None
    key: bytes | None
    value: bytes | None
    error: str
    place: str | None = None


class Target(Protocol):
    """A table of the sink; each method says how many rows took effect, or were staged.

    `rows` is whatever the sink's tasks are given, and `transaction` one of the sink's own ledger.
    """

    def stage(self, batch: BatchNumber, tag: int, rows: Any) -> int:
        """Write rows with batch and tag into the staging table of this epoch, in a transaction of its own."""
        ...

    def move_staged(self, transaction: Any, batch: BatchNumber, staged: Sequence[Staged]) -> Moved:
        """Write the staged rows that carry one of these tags to the table."""
        ...

    def write(self, transaction: Any, rows: Any) -> int:
        """Write rows to the table, and return how many rows of it took effect."""
        ...

    def require_lasting(self, transaction: Any) -> None:
        """Require that what was written to the table is there after a crash of the server too."""
        ...

    def write_dead_letters(
        self, transaction: Any, batch: BatchNumber, letters: Sequence[DeadLetter], origin_ids: Mapping[str, str]
    ) -> int:
        """Write malformed records to the ledger's table of them; one that is there already, of the same topic, is replaced."""
        ...

    def clear_staging(self, batch: BatchNumber) -> None:
        """Forget what was staged for a batch that has landed; what cannot be forgotten now may stay."""
        ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows that were written and that nobody sees yet.

    `committable` is what the ledger has to record to make them count.
    """

    committable: str
    rows: int


def clear_staging_if_possible(target: Target, batch: BatchNumber) -> None:
    """Forget what was staged for a batch that has landed: what is left of it is no reason to end as failed."""
    try:
        target.clear_staging(batch)
    except (Unreachable, Refused, OutcomeUnknown) as problem:
        log.warning("What was staged for batch %s stays until the next attempt: %s", batch, problem)


class ManifestTarget(ABC):
    """A sink whose rows count once the ledger has recorded where they are, such as files.

    What readers use follows the ledger: it is derived from committables alone, and deriving it again changes nothing.
    """

    @abstractmethod
    def prepare(self, batch: BatchNumber, rows: Any) -> Prepared:
        """Write the rows of a batch where nobody looks, under names that no other attempt uses."""

    @abstractmethod
    def recover(self, committables: Mapping[BatchNumber, str], landed: BatchNumber | None) -> None:
        """Hold the sink to the ledger, before the first batch of a driver and where `publish` refused.

        Show readers what has landed and was not shown, because a driver died in between.

        Raises:
            Refused: if the sink lacks what has landed, or shows what has not.
        """

    @abstractmethod
    def publish(self, batch: BatchNumber, committable: str) -> None:
        """Show readers a batch that has landed."""
