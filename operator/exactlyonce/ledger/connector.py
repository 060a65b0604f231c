"""The port to a kind of ledger: where one is, how it is opened, and how many streams of it are asked at once.

Nothing here performs I/O; what is opened does.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from exactlyonce.ledger.history import FailureHistory
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.rows import Owner
from exactlyonce.positions.ranges import BatchNumber, Partition


class Use(Enum):
    """What a ledger is opened for, which decides how long its questions may take."""

    PASSES = "passes"
    """The operator's, and whatever else has a person or other streams wait for it."""
    BATCHES = "batches"
    """A driver's and its tasks': as long as the resource gives a batch."""
    HOUSEKEEPING = "housekeeping"
    """Beside the batches: what takes longer than a few seconds is tried again later."""


class OpenLedger(Ledger, FailureHistory, Protocol):
    """A ledger with the connections that it keeps."""

    def forget(self, stream_id: str, owner: Owner) -> None:
        """Remove all rows of a stream that belongs to this owner; another one's stay."""
        ...

    def close(self) -> None:
        """Close the idle connections now, and each of the others when it is given back."""
        ...


MOST_LETTERS_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class Landed:
    """Where one stream has landed.

    `last_landed_at` is when the last batch with records landed, in seconds; None before the first. `counted_until` is the
    batch up to which `batches`, `records`, `rows` and `dead_letters` count, from the batch that was asked about; None where
    the stream has landed nothing at all. `decided_at` is when the batch was decided whose loads are not all known to be
    committed, and `decided_loads` how many those are; None and 0 where there is no such batch. `quarantined_since` is when the
    oldest range in quarantine was recorded, in seconds. `replay_decided_ranges` are those whose rows a replay has decided and
    that are not known to be committed. `letters_held` are dead letters that have not landed since, of the
    first MOST_LETTERS_COUNTED: there may be millions.
    """

    landed_batch: BatchNumber | None
    last_landed_at: float | None
    counted_until: BatchNumber | None
    positions: Mapping[Partition, int]
    batches: int = 0
    records: int = 0
    rows: int = 0
    dead_letters: int = 0
    open_ranges: int = 0
    lost_ranges: int = 0
    lost_records: int = 0
    quarantined_ranges: int = 0
    quarantined_records: int = 0
    decided_at: float | None = None
    decided_loads: int = 0
    failed_records: int = 0
    replayed_ranges: int = 0
    replayed_records: int = 0
    replay_decided_ranges: int = 0
    quarantined_since: float | None = None
    letters_held: int = 0


@dataclass(frozen=True, slots=True)
class TableSize:
    """How large one table of a ledger is, and its indexes; `staging` stands for all tables of rows that have not landed."""

    table: str
    table_bytes: int
    index_bytes: int


class LedgerFleet(Protocol):
    """One server that holds ledgers, asked for many streams at once; for one thread at a time.

    `space` is the part of the server that one ledger is in, such as a schema.
    """

    @property
    def name(self) -> str:
        """What the server is called, whoever asks it: fleets with the same name and different logins are one server."""
        ...

    def landed(self, space: str, since: Mapping[str, BatchNumber | None]) -> Mapping[str, Landed]:
        """Return what is committed of each stream that has a row."""
        ...

    def sizes(self, space: str) -> tuple[TableSize, ...]:
        """Return how large each table of the ledger is."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class LedgerAddress(Protocol):
    """Where a stream's ledger is and how to log in; its text never shows a password.

    `key` is equal for streams that may share what is opened, and `server` for those that one `LedgerFleet` asks.
    """

    @property
    def key(self) -> Hashable:
        """What the ledger is opened with."""
        ...

    @property
    def server(self) -> tuple[tuple[str, str], ...]:
        """The server and the login."""
        ...

    @property
    def space(self) -> str:
        """The part of the server that the ledger is in."""
        ...

    @property
    def shown(self) -> str:
        """What a person may read."""
        ...

    def store_name(self, namespace: str) -> str:
        """Return the name under which places at the server are counted (`control.bulkheads`).

        It says what is really connected to, by whom and for which namespace: streams of another one, or with another user,
        never take the places of this one, whatever server their secrets name.
        """
        ...

    def open(self, application: str = "exactlyonce", use: Use = Use.PASSES) -> OpenLedger:
        """Return the ledger; nothing is connected to yet."""
        ...


class LedgerConnector(Protocol):
    """A kind of ledger."""

    def address(self, spec: object, secret: Mapping[str, str]) -> LedgerAddress:
        """Return where the ledger of a stream is.

        Raises:
            SecretMissing, SecretRefused: if the secret lacks what is needed, or asks for what no stream may.
        """
        ...

    def fleet(self, server: tuple[tuple[str, str], ...], shown: str) -> LedgerFleet:
        """Return a server as the monitor asks it."""
        ...
