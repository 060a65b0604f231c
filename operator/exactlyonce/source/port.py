"""What a source holds at one moment. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from exactlyonce.checkpoint.codec import PositionCodec
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import Partition, Positions

LeaderEpochs = Mapping[Partition, int]
"""The epoch of each partition's leader, where the source tells it: it grows with every change of the leader."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets one partition holds: `earliest` is the first that can be read, `latest` one past the last.

    A source that cannot tell where a partition ends now has `PARTITION_END` for latest. `retention_seconds` is how long it
    keeps a record, where it limits that by time alone. `tells_ages` is False where nobody but its driver can ask a source: then
    whether a record waits, and for how long, is not known. `held_back` is how many of the offsets before `latest` the stream
    may not read yet, because they lie behind the start of a transaction that is open.
    """

    earliest: int
    latest: int
    retention_seconds: float | None = None
    tells_ages: bool = True
    held_back: int = 0


@dataclass(frozen=True)
class SourceView:
    """The partitions that were asked about with their bounds, and each topic's id.

    A topic gets another id when it is deleted and recreated (KIP-516). `selected` are the partitions that the
    spec reads now; others were asked about because the stream has read them. `missing` are topics that the spec names and
    that do not exist. `records` has the record at each offset that was asked for and that the bounds hold: None where there
    is not a record. `compacted` are the topics, of those with such a None, from which compaction takes records.
    """

    bounds: Mapping[Partition, Bounds]
    origin_ids: Mapping[str, str]
    selected: frozenset[Partition]
    missing: tuple[str, ...] = field(default=())
    records: Mapping[Partition, Fingerprint | None] = field(default_factory=dict)
    compacted: frozenset[str] = frozenset()

    @property
    def earliest(self) -> Positions:
        """The first offset that can be read, per partition."""
        return Positions({partition: bounds.earliest for partition, bounds in self.bounds.items()})

    @property
    def latest(self) -> Positions:
        """One past the last offset, per partition."""
        return Positions({partition: bounds.latest for partition, bounds in self.bounds.items()})


@dataclass(frozen=True)
class SourceNow:
    """What is asked about partitions that are being read: the earliest offsets, the topics' ids, the leaders' epochs."""

    earliest: Positions
    origin_ids: Mapping[str, str]
    leader_epochs: LeaderEpochs


class Source(Protocol):
    """A source that can be asked for its bounds; every call is bounded in time and raises SourceUnreachable past that."""

    @property
    def address(self) -> str:
        """What a person calls the source, such as its bootstrap servers."""
        ...

    @property
    def codec(self) -> PositionCodec:
        """How Spark's logs hold its positions."""
        ...

    def view(
        self,
        also: frozenset[Partition] = frozenset(),
        offsets: Mapping[Partition, int] | None = None,
        stands: Mapping[Partition, int] | None = None,
    ) -> SourceView:
        """Return what the partitions that the spec reads, and those in `also`, hold now.

        With `offsets`, the records at these offsets are looked at as well, as far as the bounds hold them. `stands` is where
        the stream continues in what it has read: a source whose bounds alone do not tell whether the next record is still held
        looks for it there.
        """
        ...

    def start(self, view: SourceView, only: frozenset[Partition] | None = None) -> Positions:
        """Resolve where the stream is to start, once, against what the source holds.

        With `only`, for these partitions alone: those that a changed spec has added.

        Raises:
            OriginMissing, StartInvalid: if that cannot be resolved.
        """
        ...


@dataclass(frozen=True, slots=True)
class ShownStream:
    """Which stream it is that is shown in a place to which others may write: it changes nothing there that is not its own.

    `ledger` says which ledger's stream it is, and `life` changes when it starts over; neither is a secret. `took_over`: the
    stream has started where this very place stood.
    """

    stream_id: str
    ledger: str
    life: str
    took_over: bool = False


class NotShownBecause(StrEnum):
    """Why a place does not show where a stream has landed."""

    TWO_CONSUMERS = "TwoConsumers"
    """Somebody else reads the source and keeps the positions there."""
    OF_ANOTHER = "OfAnother"
    """The place, or a part of it, is somebody else's."""
    FAILED = "Failed"
    """It could not be written."""
    PENDING = "Pending"
    """A part of it is written later."""

    @property
    def is_tried_again(self) -> bool:
        """Whether nobody has to act: the next look may find it otherwise."""
        return self in (NotShownBecause.FAILED, NotShownBecause.PENDING)


@dataclass(frozen=True, slots=True)
class NotShown:
    """A place does not show where the stream has landed; `words` are a sentence for whoever named it."""

    because: NotShownBecause
    words: str


@runtime_checkable
class ShowsLanded(Protocol):
    """A source that shows where a stream has landed in a place that others read, such as a lease table.

    That place is never believed: the ledger alone says what has landed.
    """

    def origin_ids(self, origins: Sequence[str]) -> Mapping[str, str]:
        """Return the ids of those of these origins that the source reads and holds now.

        Raises:
            SourceUnreachable, SourceRefused: as `view`.
        """
        ...

    def show_landed(self, stream: ShownStream, landed: Positions) -> NotShown | None:
        """Write the landed positions of a stream there; return why the place does not show them, None where it does."""
        ...
