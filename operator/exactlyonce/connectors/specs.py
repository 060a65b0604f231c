"""What the part of a resource that belongs to a connector answers, whatever the connector is.

A connector's spec is a `Model` with fields of its own, and its connector alone reads them. The rest of the program asks these
questions. Performs no I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import ClassVar, Generic, Protocol, Self, TypeVar, runtime_checkable

from exactlyonce.positions.ranges import Partition, Ranges
from exactlyonce.positions.selection import Selection
from exactlyonce.schema.constraints import Rule
from exactlyonce.schema.model import SecretRef
from exactlyonce.schema.places import S3Place

Spec = TypeVar("Spec")

Origins = Mapping[str, Collection[int | str]]
"""The origins that a source has, each with the keys of its partitions."""


class Commit(StrEnum):
    """What one transaction covers."""

    BATCH = "Batch"
    PARTITION = "Partition"


class SourceSpec(Protocol):
    """The source half of a stream's spec: `spec.source.<connector>`.

    Fields that limit a batch end in `PerTrigger`, as the options of Spark's own sources do, and one that selects by pattern
    ends in `Pattern`: messages and descriptions name them so, whatever the connector is (`registry.source_fields`).
    """

    stream_rules: ClassVar[tuple[Rule, ...]]
    """Rules of the whole spec that this source adds."""

    origin_noun: ClassVar[str]
    """What an origin of this source is called in a sentence, such as `topic`."""

    positions_count_records: ClassVar[bool]
    """Whether the difference of two positions is a number of records, at least roughly. Where it is not, nobody counts records
    that were not read: lag in records is not known, and neither is how many are missing."""

    positions_can_be_chosen: ClassVar[bool]
    """Whether a person may name a position, or a moment, from which a stream is to continue. A position that proves what was
    read before it can only be one that the stream has had."""

    tasks_show_ranges: ClassVar[bool]
    """Whether Spark shows which range each task reads (`SourceReader.task_ranges`); `commit: Partition` needs it."""

    own_fields: ClassVar[tuple[str, ...]]
    """Fields below `spec.source.<connector>` that the operator alone reads: a change of them needs no other driver."""

    folder_fields: ClassVar[tuple[str, ...]]
    """The fields of this model that name folders whose files are read or moved; none where the source is no folder."""

    @property
    def secret_ref(self) -> SecretRef | None:
        """The secret with the login, if there is one."""
        ...

    @property
    def address(self) -> str:
        """What a person calls the source, such as its bootstrap servers."""
        ...

    @property
    def shown_in(self) -> str | None:
        """Where landed positions are shown outside of the ledger (`ShowsLanded`), such as a lease table; None where nowhere.

        The text is another one for each such place.
        """
        ...

    @property
    def takes_over(self) -> str | None:
        """The place in `shown_in`, if a new stream starts where it stands."""
        ...

    @property
    def committed_only(self) -> bool:
        """Whether records of transactions that are open or were aborted are left out."""
        ...

    def selection(self) -> Selection:
        """Return what the stream reads, by name."""
        ...

    def selected(self, origins: Origins) -> tuple[frozenset[Partition], tuple[str, ...]]:
        """Return the partitions that the stream reads of those that exist, and what it names that does not exist."""
        ...

    def batch_limit(self, interval: timedelta | None) -> str:
        """Return how large a batch may be, in words that are the same as long as the limit is."""
        ...

    def most_records(self, ranges: Ranges) -> int:
        """Return the largest number of records that a batch of these ranges can have: their widths, or the limit of a batch."""
        ...

    @staticmethod
    def position_text(position: int) -> str:
        """Return a position as a person reads it."""
        ...


class SinkSpec(Protocol):
    """The sink half of a stream's spec: `spec.sink.<connector>`."""

    stream_rules: ClassVar[tuple[Rule, ...]]
    """Rules of the whole spec that this sink adds."""

    fixed_fields: ClassVar[tuple[str, ...]]
    """Fields below `spec.sink.<connector>` that can be changed only while the stream is suspended."""

    holds_ledger: ClassVar[bool]
    """Whether the ledger is in the sink's own database, in the transaction that lands rows. The sink's connector then opens
    it, and takes this very spec for its place."""

    two_phases: ClassVar[bool]
    """Whether rows are committed by the sink itself once the ledger has decided: then nothing that takes the ledger back takes
    rows back, and nothing in the sink shows which batch a row is of."""

    tells_latest_load: ClassVar[bool]
    """Whether a sink of two phases says which load of a stream it has committed last, so that its driver can compare that with
    the ledger."""

    folder_field: ClassVar[str | None]
    """The field below `spec.sink.<connector>` that names the folder of rows, if that is where they go."""

    @property
    def secret_ref(self) -> SecretRef | None:
        """The secret with the login, if there is one."""
        ...

    @property
    def further_secrets(self) -> tuple[SecretRef, ...]:
        """Secrets that driver and tasks read beside it, such as a login to files that wait for the sink."""
        ...

    @property
    def place_on_s3(self) -> S3Place | None:
        """The folder on S3 that Spark's tasks write to, if that is where rows go."""
        ...

    @property
    def commit(self) -> Commit:
        """What one transaction covers."""
        ...

    @property
    def transaction_timeout(self) -> timedelta:
        """How long the transaction that lands a batch may take; nothing shows progress meanwhile."""
        ...


@runtime_checkable
class ContinuesOutput(Protocol):
    """A sink that may continue what a query of Spark's own has written, which has numbered its batches, too."""

    @property
    def continue_after_batch(self) -> int | None:
        """The latest batch of that query: those of the stream have higher numbers. None where there was none."""
        ...


@runtime_checkable
class TakesReplays(Protocol):
    """A sink that says whether rows of an earlier batch may be written after those of later ones; others take no replay."""

    @property
    def replay_refusal(self) -> str | None:
        """Why they may not, as a clause about the resource; None where they may."""
        ...

    @property
    def landing_place(self) -> str:
        """What rows land into, as the ledger records it: the same text for as long as it is the same."""
        ...


@runtime_checkable
class ShowsReplaysLater(Protocol):
    """A sink that takes replays, some readers of which see what one has landed only with the next batch of the stream."""

    @property
    def replays_shown(self) -> str | None:
        """A sentence about these readers; None where the resource lets everybody see it at once."""
        ...


@runtime_checkable
class TakesBackfills(TakesReplays, Protocol):
    """A sink with other tables in the database of the ledger, into which ranges can be backfilled; others take none."""

    def into(self, table: str) -> Self:
        """Return the sink with another table of the same database.

        Raises:
            ValidationError: if the text names no table.
        """
        ...


@runtime_checkable
class BackfilledByTime(Protocol):
    """A source whose positions count no records, of which a backfill finds by itself what lies between two moments."""

    backfilled_by: ClassVar[str]
    """What tells when a record was written, in words."""

    ranges_named_by: ClassVar[str]
    """What a person names a range by, in words."""


class LedgerSpec(Protocol):
    """What a stream says of a ledger that is not in its sink: `spec.ledger.<connector>`."""

    fixed_fields: ClassVar[tuple[str, ...]]
    """Fields below `spec.ledger.<connector>` that say where the ledger is: changed only while the stream is suspended."""

    folder_field: ClassVar[str | None]
    """The field below `spec.ledger.<connector>` that names the folder that the ledger is in; None where it is in a database."""

    @property
    def secret_ref(self) -> SecretRef | None:
        """The secret with the login, if there is one."""
        ...

    @property
    def folder(self) -> S3Place | str | None:
        """What the ledger is in: a folder on S3, or a path; None where it is in a database."""
        ...


class Chosen(Generic[Spec]):
    """What a union of connectors answers: `one_of` are the names of its fields, of which one is given."""

    one_of: ClassVar[tuple[str, ...]]

    @property
    def connector(self) -> str:
        """The name of the connector that is given."""
        return next(name for name in self.one_of if getattr(self, name) is not None)

    @property
    def spec(self) -> Spec:
        """What the resource says of it."""
        spec: Spec = getattr(self, self.connector)
        return spec
