"""The port to a sink's table, and what tasks tell the driver. No pyspark here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol, runtime_checkable

from exactlyonce.ledger.decided import Committable, StagedFile
from exactlyonce.ledger.known_loads import FoundLoad, LatestLoads, Span
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Ranges
from exactlyonce_spark.staged_loads import StagedLoads


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


class ReplayTarget(Protocol):
    """What a replay lands rows into, in the transaction of the ledger that marks their ranges."""

    def write(self, transaction: Any, rows: Any) -> int:
        """Let rows count, and return how many took effect."""
        ...

    def write_dead_letters(
        self, transaction: Any, batch: BatchNumber, letters: Sequence[DeadLetter], origin_ids: Mapping[str, str]
    ) -> int:
        """Write malformed records to the ledger's table of them."""
        ...


@runtime_checkable
class WritesAhead(Protocol):
    """A `ReplayTarget` whose rows are written before the transaction, where nobody looks; only then do they count."""

    def prepare(self, batch: BatchNumber, rows: Any) -> Any:
        """Write the rows of a chunk of a batch, and return what `write` takes in their place."""
        ...


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


@dataclass(frozen=True, slots=True)
class RecordsOfBatch:
    """Which records of the source a batch holds: its ranges, and a note about those of them that it lands without."""

    ranges: Ranges
    note: str = ""


class NotLookedAt(Exception):
    """Replays have landed what the sink was not yet held to: that takes requests, for which no transaction stays open."""

    def __init__(self, replayed: Mapping[str, str]) -> None:
        super().__init__(f"{len(replayed)} entries of replays are to be looked at first")
        self.replayed = replayed


class ManifestTarget(ABC):
    """A sink whose rows count once the ledger has recorded where they are, such as files.

    What readers use follows the ledger: it is derived from committables alone, and deriving it again changes nothing.
    """

    takes_replays: ClassVar[bool] = False
    """Whether replays land into the sink beside the stream: each batch takes over what they have landed."""

    writes = True
    """Whether this process lands batches; where it does not, `recover` asks for no query's columns."""

    tells_records: ClassVar[bool] = False
    """Whether readers are told which records a batch holds; `recover` of others is given none."""

    @abstractmethod
    def prepare(self, batch: BatchNumber, rows: Any) -> Prepared:
        """Write the rows of a batch where nobody looks, under names that no other attempt uses."""

    @abstractmethod
    def recover(
        self, committables: Mapping[BatchNumber, str], landed: BatchNumber | None, records: RecordsOfBatch | None = None
    ) -> None:
        """Hold the sink to the ledger, before the first batch of a driver and where `publish` refused.

        Show readers what has landed and was not shown, because a driver died in between.

        Raises:
            Refused: if the sink lacks what has landed, or shows what has not.
        """

    @abstractmethod
    def publish(self, batch: BatchNumber, committable: str, records: RecordsOfBatch | None = None) -> None:
        """Show readers a batch that has landed."""

    def require_replayed(self, replayed: Mapping[str, str]) -> None:
        """Require that what replays have landed and no batch has taken over is there, and fits what this driver lands.

        It is called when a driver starts, and with what `with_replayed` has not looked at.

        Raises:
            Refused: if it does not.
        """
        assert not replayed, "no replay lands into it"

    def with_replayed(self, batch: BatchNumber, committable: str, replayed: Mapping[str, str]) -> str:
        """Return what makes a batch visible, and what replays have landed since the one before it.

        It is called in the transaction that lands the batch, perhaps more than once.

        Raises:
            NotLookedAt: with what `require_replayed` is to be called with first, where that takes long.
            Refused: if one of the texts cannot be read.
        """
        raise NotImplementedError("no replay lands into it")


@dataclass(frozen=True, slots=True)
class PreparedLoad:
    """Rows that a sink of two phases has taken and that nobody sees: under which label, and in which of its transactions.

    `shares_label`: another load may have such a label, too. `staged` is where the rows wait if the sink has not been told of
    them; the id of the transaction is empty then.
    """

    label: str
    transaction_id: str
    rows: int
    shares_label: bool = False
    staged: StagedFile | None = None


@dataclass(frozen=True, slots=True)
class OpenLoad:
    """A load of this stream that is prepared and neither committed nor aborted, and the epoch that its label names."""

    label: str
    transaction_id: str
    epoch: Epoch


class LoadState(Enum):
    """What a sink says of a load that is known by its label and its transaction's id."""

    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """The sink has forgotten it, or its label names another transaction: it was committed or aborted, nobody can tell which."""


class TwoPhaseTarget(ABC):
    """A sink whose rows are prepared by tasks and committed once the ledger has recorded them, such as loads with labels.

    A label names the stream's life, the epoch, the batch and one run of one task (`load_labels`), so that no two loads ever
    share one; where it is of another form, the load says so (`PreparedLoad.shares_label`). Each method raises Unreachable where
    the sink does not answer: what it was asked to do may then still happen, at any later time.
    """

    tells_latest: ClassVar[bool] = False
    """Whether the sink says which load of the stream it has committed last: `latest` returns it."""

    @property
    def prepares_in_driver(self) -> bool:
        """Whether the driver prepares all rows of a batch as one load, because no process but the one that prepares commits."""
        return False

    def latest(self, known: LatestLoads | None) -> FoundLoad | None:
        """Return the load of the stream that the sink has committed last; None where it has none, or has forgotten it.

        `known` are those that the ledger knows, maybe of another life of the stream.
        """
        return None

    @abstractmethod
    def prepare(self, batch: BatchNumber, part: str, rows: Any, spans: Sequence[Span] = ()) -> PreparedLoad | None:
        """Have the sink take rows under a label of this epoch, batch and part; None where there is no row.

        `spans` are the records that the rows are made of, for a sink that keeps them beside the load.
        A request without an answer is settled under the very same label, which the sink accepts once.
        """

    @property
    def staged_loads(self) -> StagedLoads | None:
        """What submits loads whose rows wait in files; None where `prepare` hands all rows to the sink."""
        return None

    @abstractmethod
    def commit(self, committable: Committable) -> bool:
        """Commit a load. True if it is committed now or was before; False if the sink has aborted or does not know it."""

    @abstractmethod
    def state_of(self, committable: Committable) -> LoadState:
        """Return what the sink says of a load."""

    @property
    def loads_into(self) -> str:
        """What remembers the labels, such as a database: the same text for streams that share it, and no secret in it."""
        return ""

    @property
    def place(self) -> str:
        """Where loads are committed, for the record of a decided batch: no secret in it; empty where it cannot change."""
        return ""

    def is_at(self, place: str) -> bool:
        """Whether loads that were decided at this `place` are committed here."""
        return place == self.place

    def how_to_come_back(self, place: str) -> str:
        """Return how a person says that this `place`, where `is_at` is false, is the same as here; empty where it is not."""
        return ""

    def how_to_find_out(self, in_doubt: Sequence[Committable]) -> str:
        """Return sentences that tell a person where to look for what became of loads that `state_of` does not know.

        They name statements that can be run as they stand; no secret is in them. Empty where the sink has no such place.
        """
        return ""

    @abstractmethod
    def open_loads(self) -> Iterable[OpenLoad]:
        """Return the loads of this stream, in its present life, that are prepared; none where the sink cannot list them."""

    @abstractmethod
    def abort(self, load: OpenLoad) -> None:
        """Abort a load that is prepared; one that is not open any more is left as it is."""
