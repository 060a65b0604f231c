"""The ports to the halves of connectors that run inside Spark. No pyspark here: a DataFrame is whatever Spark gives."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import Secrets
from exactlyonce.checkpoint.codec import PositionCodec
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.history import RecordedLetter
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.named_spans import NamedSpan
from exactlyonce.positions.ranges import OffsetRange, Partition, Positions, Ranges
from exactlyonce.schema.moment import Moments
from exactlyonce_spark.metrics import NotLanded
from exactlyonce_spark.replay_parts import RangeDivider
from exactlyonce_spark.target import ManifestTarget, ReplayTarget, Target, TaskRange, TwoPhaseTarget

Spot = tuple[Partition, OffsetRange]
"""Records of one partition; there may be several of one."""


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The columns of a source's records, as SQL expressions over what its DataFrame has.

    Beside those that they name, a DataFrame has the columns `value` and `malformed` (`decode/records.py`).

    `view` has the columns that the view `source` gets beside those of the schema, by their names there; each begins with an
    underscore. `where` says over these names which record it is, for a message. The others tell what a dead letter keeps.
    `position` is an integer, or the decimal text of one that no type of Spark holds. `place`, where a person cannot read
    `position`, is a JSON object that says where the record is, in the words of the source.
    """

    view: Mapping[str, str]
    where: str
    origin: str
    partition: str
    position: str
    place: str | None = None


class PositionPart(Enum):
    """What a column of the view `source` says of where a record is in the source."""

    ORIGIN = "origin"
    PARTITION = "partition"
    POSITION = "position"
    POSITION_TEXT = "positionText"
    """A position as a text of one width, of a source whose positions no number of Spark holds."""


@dataclass(frozen=True, slots=True)
class YieldedColumn:
    """A column that the query yields: its name, Spark's simpleString of its type, and the type as its jsonValue has it."""

    name: str
    spark_type: str
    type_document: Any = None


@dataclass(frozen=True, slots=True)
class FittedColumn:
    """A column and the SQL expression, over its quoted name, that Spark evaluates to hand it over."""

    name: str
    expression: str


class SourceReader(Protocol):
    """One stream's source inside Spark; it holds the login."""

    @property
    def codec(self) -> PositionCodec:
        """How Spark's offset log names the source's positions."""
        ...

    @property
    def reserved(self) -> tuple[str, ...]:
        """The columns that the view `source` has, or may have, of this source: no schema may name one."""
        ...

    @property
    def position_columns(self) -> Mapping[str, PositionPart]:
        """The columns of the view `source` that say where a record is; the origin has none where it never differs."""
        ...

    @property
    def names_before_reading(self) -> bool:
        """Whether a partition that appears while a query runs has nothing in the first batch whose end names it.

        That end is then where the next batch starts it, so Spark's log tells where each partition was begun.
        """
        ...

    def columns(self, records: Any) -> RecordColumns:
        """Return the columns of a DataFrame of records."""
        ...

    def stream(self, session: Any, partitions: int, most: int | None, left_out: Collection[Spot] = ()) -> Any:
        """Return the streaming DataFrame of the records; `partitions` is how many there are now.

        `most` is how many records a batch may span while that is less than the resource's own limit. What is `left_out` is
        not decoded, and has neither `value` nor `malformed`.
        """
        ...

    def batch(self, session: Any, ranges: Ranges, left_out: Collection[Spot] = ()) -> Any:
        """Return the records of exactly these ranges as a DataFrame; what is `left_out` is as in `stream`."""
        ...

    def task_ranges(self, input_partitions: Iterable[Any]) -> Iterable[tuple[TaskRange, ...]] | None:
        """Return the ranges of each input partition of a scan, in the order of the tasks.

        None where Spark does not show what a task reads: `commit: Partition` is then refused, and so is a partition that
        appears during the query, since nothing tells where its first batch starts, unless the source `names_before_reading`.
        """
        ...


@runtime_checkable
class TellsNotLanded(Protocol):
    """A `SourceReader` of a source of which nobody but its driver knows what waits."""

    def not_landed(self) -> NotLanded | None:
        """Return what has not landed, as it was known last; None where it is not known yet. Bounded in time; never raises."""
        ...

    def note_landed(self) -> None:
        """Note that the batch that was planned last has landed. Bounded in time; never raises."""
        ...


@runtime_checkable
class LetterSource(Protocol):
    """A `SourceReader` that makes records of dead letters: all that its view has of a record is kept, or is not asked for."""

    def letters(self, session: Any, letters: Sequence[RecordedLetter]) -> Any:
        """Return a DataFrame with a record for each letter, as `SourceReader.batch` would, of the bytes that were kept."""
        ...


@runtime_checkable
class DividesRanges(Protocol):
    """A `SourceReader` of a source whose positions count no records, which tells a replay where a part of a range may end."""

    def divider(self, session: Any, *, of_backfill: bool) -> RangeDivider:
        """Return what divides ranges; nothing is asked yet. What helps a backfill of another table is told if it is one.

        Raises:
            SecretMissing: if the secret with the login is not there.
        """
        ...


@runtime_checkable
class ChoosesRanges(Protocol):
    """A `SourceReader` of a source whose positions count no records, which finds the ranges that a backfill asks for."""

    def ranges_between(
        self, session: Any, stands: Positions, moments: Moments
    ) -> Mapping[Partition, tuple[OffsetRange, ...]]:
        """Return the ranges of what was written between two moments, of what the stream has landed up to where it stands.

        Raises:
            NotBackfilled: if some of it has not landed, or cannot be read any more.
            OriginMissing, SourceRefused, SourceUnreachable, StoreUnreachable, Refused: by situation.
        """
        ...

    def ranges_given(
        self, session: Any, stands: Positions, given: Sequence[NamedSpan]
    ) -> Mapping[Partition, tuple[OffsetRange, ...]]:
        """Return the ranges that a person gives by texts, of what the source holds or the stream has landed.

        Raises:
            NotBackfilled: if one is none of the source's, or cannot be read.
            OriginMissing, SourceRefused, SourceUnreachable, StoreUnreachable, Refused: by situation.
        """
        ...


class SourceConnector(Protocol):
    """A kind of source inside Spark."""

    def reader(self, spec: StreamSpec, secrets: Secrets, life: str) -> SourceReader:
        """Return the reader of a stream; what it plans beyond its position belongs to this life of it (`ledger.life`)."""
        ...

    def load_classes(self, session: Any) -> None:
        """Load the classes that a query over this source needs, for the class archive; what it raises is of no account."""
        ...


class TaskSink(Protocol):
    """What a task needs to write to a sink; pickled and sent to executors, so it holds no credentials.

    `key` is another one for each stream and epoch: the process of a worker keeps what it has opened.
    """

    @property
    def key(self) -> str:
        """Of which stream and epoch it is."""
        ...

    def open(self, secrets: Secrets) -> tuple[Ledger | None, Target | TwoPhaseTarget]:
        """Return the ledger and the target, as a task uses them; no ledger where the target is one of two phases."""
        ...


@dataclass(frozen=True)
class NoTasks:
    """The `TaskSink` of a manifest, whose rows are written by Spark's own tasks: no task opens it."""

    key: str

    def open(self, secrets: Secrets) -> tuple[Ledger, Target]:
        """Refuse: a batch loop over a manifest sends no job."""
        raise AssertionError(f"no task of {self.key} writes to a manifest")


class PreparedSink(Protocol):
    """One stream's sink in the driver, which has claimed its epoch; what it writes to has been looked at."""

    def fit(
        self, yielded: Sequence[YieldedColumn], positions: Mapping[str, PositionPart], *, deletes: bool
    ) -> tuple[FittedColumn, ...]:
        """Return how each column that the query yields is handed over; `deletes`: rows may delete their key.

        `positions` names the columns with which the source says where a record is; the query may yield them or not.

        Raises:
            Refused: naming every column that does not fit, and what to do.
        """
        ...

    def target(
        self, columns: Sequence[FittedColumn], *, deletes: bool
    ) -> tuple[Target | ManifestTarget | TwoPhaseTarget, TaskSink]:
        """Return the target of the batches, ready for the first one, and what tasks need to write to it."""
        ...

    def finishing(self) -> ManifestTarget | TwoPhaseTarget | None:
        """Return the sink of a driver without a query, which knows no columns; None where landed rows are in the sink."""
        ...


class PreparedReplay(Protocol):
    """One stream's sink as a replay writes to it, in transactions of the ledger and without an epoch."""

    def fit(
        self, yielded: Sequence[YieldedColumn], positions: Mapping[str, PositionPart], *, deletes: bool
    ) -> tuple[FittedColumn, ...]:
        """As `PreparedSink.fit`."""
        ...

    def target(self, columns: Sequence[FittedColumn], token: str) -> ReplayTarget:
        """Return the target of the replay that claims ranges with this token.

        Nothing counts of what it writes but in the transaction that lands rows. One that `WritesAhead` is given Spark's rows as
        they are, others are given them collected.

        Raises:
            Refused: if rows with these columns cannot be landed beside those of the stream.
        """
        ...


@runtime_checkable
class ReplayConnector(Protocol):
    """A `SinkConnector` whose rows can be landed by a replay."""

    def prepare_replay(self, spec: StreamSpec, ledger: Ledger, stream_id: str, secrets: Secrets) -> PreparedReplay:
        """Look at what a stream writes to.

        Raises:
            Refused: as `SinkConnector.prepare`.
        """
        ...


class SinkConnector(Protocol):
    """A kind of sink inside Spark."""

    def prepare(
        self, spec: StreamSpec, secrets: Secrets, ledger: Ledger, permit: Permit, stream: StreamRow
    ) -> PreparedSink:
        """Look at what a stream writes to, before Spark is started.

        Raises:
            Refused: if it cannot be written to as the stream asks.
        """
        ...
