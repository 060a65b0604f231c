"""Ask Kinesis what a stream holds: its shards, its time of creation, whether what landed last is still there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC

from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.codec import CODEC, KinesisCodec
from exactlyonce.connectors.kinesis.positions import (
    SHARD_END,
    SUB_SEQUENCE_BITS,
    TRIM_HORIZON,
    AfterRecord,
    InsideRecord,
    UserRecord,
    position_after_record,
    read_from,
)
from exactlyonce.connectors.kinesis.reading import first_record, record_before
from exactlyonce.connectors.kinesis.shards import Shard
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.connectors.kinesis.start import starting_positions
from exactlyonce.errors import OriginMissing, SourceRefused
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import Partition, Positions, Ranges
from exactlyonce.source.port import Bounds, LeaderEpochs, SourceNow, SourceView

_NEVER_CHANGES = 0
"""A record of Kinesis is never replaced by another one, so a shard has one leader's epoch for ever."""


@dataclass(frozen=True)
class Fingerprints:
    """What is kept of the last records of ranges: their sequence numbers, which are in the ranges' ends."""

    found: Mapping[Partition, Fingerprint]

    def result(self) -> Mapping[Partition, Fingerprint]:
        """Return it."""
        return self.found


class KinesisBounds:
    """A `SourceCheck` of one data stream.

    A record is known by its sequence number: within one stream, told apart by its time of creation, no other record ever has
    it. So a fingerprint has no digest, and none has to be read.
    """

    def __init__(self, spec: KinesisSource, client: KinesisClient) -> None:
        self._spec = spec
        self._client = client
        self._stream = spec.stream
        self._named = spec.stream_arn or spec.stream

    @property
    def address(self) -> str:
        """The region."""
        return self._spec.address

    @property
    def codec(self) -> KinesisCodec:
        """How Spark's logs hold positions in shards."""
        return CODEC

    def view(
        self, also: frozenset[Partition] = frozenset(), offsets: Mapping[Partition, int] | None = None
    ) -> SourceView:
        """Return the shards with their bounds, and the records at `offsets` that are still there.

        Where a shard ends now is not known. One of `also` that is listed no more holds nothing but its end, and so does one
        that was never read and of which a child is listed that was not read either: whoever has not landed its end has lost
        records.

        Raises:
            SourceUnreachable, SourceRefused: if Kinesis does not answer or refuses.
        """
        try:
            created = self._created()
            shards = self._client.shards(self._named)
        except OriginMissing:
            return SourceView({}, {}, frozenset(), missing=(self._stream,))
        known = frozenset(str(key.key) for key in also if key.origin == self._stream)
        gone = expired(shards, known)
        bounds = {self._partition(shard.id): Bounds(TRIM_HORIZON, SHARD_END) for shard in shards}
        bounds |= {self._partition(name): Bounds(SHARD_END, SHARD_END) for name in gone}
        found: dict[Partition, Fingerprint | None] = {}
        for key, offset in (offsets or {}).items():
            if bounds.get(key) != Bounds(TRIM_HORIZON, SHARD_END):
                continue
            if self._holds(key, offset):
                found[key] = Fingerprint(offset, "")
            else:
                bounds[key] = Bounds(self._oldest_of(key, shards), SHARD_END)
        return SourceView(bounds, {self._stream: created}, frozenset(bounds), records=found)

    def start(self, view: SourceView, only: frozenset[Partition] | None = None) -> Positions:
        """Resolve where the stream starts, or where the shards in `only` do.

        Raises:
            OriginMissing: if the stream does not exist.
            StartInvalid: if positions are given that do not fit the shards.
            SourceUnreachable, SourceRefused: as `view`.
        """
        if view.missing:
            raise OriginMissing(
                f"Kinesis in {self.address} has no stream {self._stream}; create it, or correct source.kinesis."
            )
        found = starting_positions(self._client, self._named, self._spec)
        positions = {self._partition(shard): position for shard, position in found.items()}
        return Positions({key: position for key, position in positions.items() if only is None or key in only})

    def now(self, partitions: list[Partition]) -> SourceNow:
        """Return the stream's time of creation. What has expired is told by who reads: each read proves that it is whole.

        Raises:
            OriginMissing: if the stream is gone.
            SourceUnreachable, SourceRefused: as `view`.
        """
        created = self._created()
        return SourceNow(
            Positions(dict.fromkeys(partitions, TRIM_HORIZON)), {self._stream: created}, _epochs(partitions)
        )

    def ask_leader_epochs(self, partitions: list[Partition]) -> Callable[[], LeaderEpochs]:
        """Return the same epoch for ever; see `_NEVER_CHANGES`."""
        return lambda: _epochs(partitions)

    def records_at(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, Fingerprint | None]:
        """Return the record at each position; one that has expired is left out.

        Raises:
            SourceUnreachable, SourceRefused: as `view`.
        """
        return {key: Fingerprint(offset, "") for key, offset in offsets.items() if self._holds(key, offset)}

    def compacted(self, origins: frozenset[str]) -> frozenset[str]:
        """Return all of them: records leave a stream by their age alone, which is no loss of what has landed."""
        return origins

    def last_records(self, ranges: Ranges) -> Fingerprints:
        """Return the last record of each range; at the end of a shard it is not known."""
        found: dict[Partition, Fingerprint] = {}
        for key, offsets in ranges.non_empty().items():
            match read_from(offsets.until_offset):
                case AfterRecord(sequence_number):
                    found[key] = Fingerprint(UserRecord(sequence_number).position, "")
                case InsideRecord(sequence_number, sub_sequence_number):
                    last = UserRecord(sequence_number, sub_sequence_number - 1)
                    found[key] = Fingerprint(last.position, "")
                case _:
                    pass
        return Fingerprints(found)

    def _created(self) -> str:
        """Return the time of creation, which is the same text in every time zone."""
        return self._client.describe(self._named).created.astimezone(UTC).isoformat(timespec="milliseconds")

    def _partition(self, shard: str) -> Partition:
        return Partition(self._stream, shard)

    def _holds(self, key: Partition, offset: int) -> bool:
        """Whether the record at a position can be read."""
        behind = position_after_record(offset >> SUB_SEQUENCE_BITS)
        return record_before(self._client, self._named, str(key.key), behind) is not None

    def _oldest_of(self, key: Partition, shards: Sequence[Shard]) -> int:
        """Return the position at the oldest record of a shard whose landed records have expired.

        Raises:
            SourceRefused: if the shard is open and empty, so that nobody knows where its next record will be.
        """
        oldest = first_record(self._client, self._named, str(key.key))
        if oldest is not None:
            return UserRecord(oldest.sequence_number).position
        if not any(shard.id == key.key and shard.is_open for shard in shards):
            return SHARD_END
        raise SourceRefused(
            f"The last record of {key} that landed has passed the retention of stream {self._stream}, and the shard is empty: "
            "whether records in between expired before they landed cannot be told. The stream waits until the shard holds a "
            "record, and then says so as SourceTruncated."
        )


def expired(shards: Sequence[Shard], known: frozenset[str]) -> frozenset[str]:
    """Return the shards that are listed no more: those that are known, and the unknown parents of unknown children.

    A child is named as soon as its parents have been read to their ends. One that is not known has parents that are listed, to
    be read before it, or that are known; else one of them came and expired while nobody read. Performs no I/O.
    """
    listed = frozenset(shard.id for shard in shards)
    if not known:
        return frozenset()
    unread = frozenset(parent for shard in shards if shard.id not in known for parent in shard.parents)
    return (known | unread) - listed


def _epochs(partitions: list[Partition]) -> LeaderEpochs:
    return dict.fromkeys(partitions, _NEVER_CHANGES)
