"""Ask Kinesis what a stream holds: its shards, its time of creation, whether what landed last is still there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC

from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.codec import CODEC, KinesisCodec
from exactlyonce.connectors.kinesis.lease_mirror import KnownTable, LeaseMirror
from exactlyonce.connectors.kinesis.patience import Deadline, each, surely
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
from exactlyonce.connectors.kinesis.reading import first_record, is_whole_behind, record_numbered
from exactlyonce.connectors.kinesis.shards import Shard
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.connectors.kinesis.start import starting_positions
from exactlyonce.errors import OriginMissing, SourceRefused
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import Partition, Positions, Ranges
from exactlyonce.source.port import Bounds, LeaderEpochs, NotShown, ShownStream, SourceNow, SourceView

_VIEW_SECONDS = 120.0
"""How long all shards may be looked at: a pass of the operator has ten minutes."""

_NEVER_CHANGES = 0
"""A record of Kinesis is never replaced by another one, so a shard has one leader's epoch for ever."""


@dataclass(frozen=True)
class Fingerprints:
    """What is kept of the last records of ranges: their sequence numbers, which are in the ranges' ends."""

    found: Mapping[Partition, Fingerprint]
    without_records: frozenset[Partition] = frozenset()

    def result(self) -> Mapping[Partition, Fingerprint]:
        """Return it."""
        return self.found


class KinesisBounds:
    """A `SourceCheck` of one data stream.

    A record is known by its sequence number: within one stream, told apart by its time of creation, no other record ever has
    it. So a fingerprint has no digest, and no record has to be read.
    """

    def __init__(self, spec: KinesisSource, client: KinesisClient, leases: KnownTable | None = None) -> None:
        self._spec = spec
        self._client = client
        self._leases = leases
        self._stream = spec.stream
        self._named = spec.named
        self._listed: tuple[SourceView, Sequence[Shard]] | None = None
        """The latest view, and the shards that it was made of: a start goes by the same."""

    @property
    def address(self) -> str:
        """The region."""
        return self._spec.address

    @property
    def codec(self) -> KinesisCodec:
        """How Spark's logs hold positions in shards."""
        return CODEC

    def view(
        self,
        also: frozenset[Partition] = frozenset(),
        offsets: Mapping[Partition, int] | None = None,
        stands: Mapping[Partition, int] | None = None,
    ) -> SourceView:
        """Return the shards with their bounds, and the records at `offsets` that are still there.

        Where a shard ends now is not known. A shard begins at TRIM_HORIZON as long as nothing behind the position where the
        stream stands in it (`stands`) can have expired, and else at the oldest record left. One of `also` that is listed no
        more holds nothing but its end, and so does one that was never read and of which a child is listed that was not read
        either: whoever has not landed its end has lost records.

        Raises:
            SourceUnreachable, SourceRefused: if Kinesis does not answer or refuses.
        """
        clock = self._client.clock
        deadline = Deadline.within(clock, _VIEW_SECONDS)
        try:
            created = surely(clock, self._created)
            shards = surely(clock, lambda: self._client.shards(self._named))
        except OriginMissing:
            return SourceView({}, {}, frozenset(), missing=(self._stream,))
        positions = {str(key.key): at for key, at in (stands or {}).items() if key.origin == self._stream}
        known = frozenset(str(key.key) for key in also if key.origin == self._stream)
        kept = {str(key.key): offset for key, offset in (offsets or {}).items() if key.origin == self._stream}
        listed = frozenset(shard.id for shard in shards)
        looks = each(lambda shard: self._examine(shard, listed, positions, kept.get(shard.id), deadline), shards)
        bounds: dict[Partition, Bounds] = {}
        found: dict[Partition, Fingerprint | None] = {}
        for shard, (earliest, is_kept) in zip(shards, looks, strict=True):
            key = self._partition(shard.id)
            bounds[key] = Bounds(earliest, SHARD_END)
            found |= {key: Fingerprint(kept[shard.id], "")} if is_kept else {}
        bounds |= {self._partition(name): Bounds(SHARD_END, SHARD_END) for name in expired(shards, known)}
        view = SourceView(bounds, {self._stream: created}, frozenset(bounds), records=found)
        self._listed = view, shards
        return view

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
        if only is not None and not only:
            return Positions()  # a lease table that the stream took over from may be gone by now
        listed = (
            self._listed[1]
            if self._listed is not None and self._listed[0] is view
            else self._client.shards(self._named)
        )
        found = starting_positions(self._client, self._named, self._spec, listed, self._leases)
        positions = {self._partition(shard): position for shard, position in found.items()}
        if only is None:
            return Positions(positions)
        return Positions({key: at for key, at in positions.items() if key in only or key not in view.bounds})

    def origin_ids(self, origins: Sequence[str]) -> dict[str, str]:
        """Return when the stream was created, if it is one of these."""
        return {self._stream: self._created()} if self._stream in origins else {}

    def show_landed(self, stream: ShownStream, landed: Positions) -> NotShown | None:
        """Write what has landed to the lease table, if the stream names one; return why it does not show it."""
        if self._leases is None:
            return None
        mirror = LeaseMirror(self._client, self._named, self._leases)
        return mirror.show(stream, {str(key.key): at for key, at in landed.items() if key.origin == self._stream})

    def now(self, partitions: list[Partition]) -> SourceNow:
        """Return the stream's time of creation. What has expired is told by who reads: each read proves that it is whole.

        Raises:
            OriginMissing: if the stream is gone.
            SourceUnreachable, SourceRefused: as `view`.
        """
        created = surely(self._client.clock, self._created)
        return SourceNow(
            Positions(dict.fromkeys(partitions, TRIM_HORIZON)), {self._stream: created}, _epochs(partitions)
        )

    def request_leader_epochs(self, partitions: list[Partition]) -> Callable[[], LeaderEpochs]:
        """Return the same epoch for ever; see `_NEVER_CHANGES`."""
        return lambda: _epochs(partitions)

    def records_at(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, Fingerprint | None]:
        """Return the record at each position; one that has expired is left out.

        Raises:
            SourceUnreachable, SourceRefused: as `view`.
        """
        deadline = Deadline.within(self._client.clock, _VIEW_SECONDS)
        held = each(lambda key: self._holds(str(key.key), offsets[key], deadline), offsets)
        return {key: Fingerprint(offsets[key], "") for key, is_held in zip(offsets, held, strict=True) if is_held}

    def compacted(self, origins: frozenset[str]) -> frozenset[str]:
        """Return all of them: records leave a stream by their age alone, which is no loss of what has landed."""
        return origins

    def last_records(self, ranges: Ranges) -> Fingerprints:
        """Return the last record of each range; at the end of a shard it is not known, and from its start on there is none."""
        found: dict[Partition, Fingerprint] = {}
        spans = ranges.non_empty()
        begin = frozenset(key for key, offsets in spans.items() if offsets.from_offset == TRIM_HORIZON)
        for key, offsets in spans.items():
            if key in begin:
                continue  # it ends where the oldest record begins
            match read_from(offsets.until_offset):
                case AfterRecord(sequence_number):
                    found[key] = Fingerprint(UserRecord(sequence_number).position, "")
                case InsideRecord(sequence_number, sub_sequence_number):
                    last = UserRecord(sequence_number, sub_sequence_number - 1)
                    found[key] = Fingerprint(last.position, "")
                case _:
                    pass
        return Fingerprints(found, begin)

    def _created(self) -> str:
        """Return the time of creation, which is the same text in every time zone."""
        return self._client.describe(self._named).created.astimezone(UTC).isoformat(timespec="milliseconds")

    def _partition(self, shard: str) -> Partition:
        return Partition(self._stream, shard)

    def _examine(
        self,
        shard: Shard,
        listed: frozenset[str],
        positions: Mapping[str, int],
        kept: int | None,
        deadline: Deadline,
    ) -> tuple[int, bool]:
        """Return the earliest position of a shard, seen from where the stream stands, and whether `kept` is there."""
        position = positions.get(shard.id)
        if position == SHARD_END:
            return TRIM_HORIZON, False
        deadline.require(f"whether shard {shard.id} of stream {self._stream} still holds what landed last is not known")
        is_kept = kept is not None and self._holds(shard.id, kept, deadline)
        if position is None:
            is_whole = kept is None or is_kept
        elif is_kept and kept is not None and kept < position <= position_after_record(kept >> SUB_SEQUENCE_BITS):
            is_whole = True  # the record kept is the one in front of the position
        else:
            is_whole = is_whole_behind(self._client, self._named, shard.id, position, deadline)
        if not is_whole:
            return self._oldest_of(shard, deadline), is_kept
        if position in (None, TRIM_HORIZON) and _outlived_its_parents(shard, listed, positions):
            oldest = first_record(self._client, self._named, shard.id, deadline)
            return TRIM_HORIZON if oldest is None else UserRecord(oldest.sequence_number).position, is_kept
        return TRIM_HORIZON, is_kept

    def _holds(self, shard_id: str, offset: int, deadline: Deadline) -> bool:
        """Whether the record at a position can be read."""
        number = offset >> SUB_SEQUENCE_BITS
        return record_numbered(self._client, self._named, shard_id, number, deadline) is not None

    def _oldest_of(self, shard: Shard, deadline: Deadline) -> int:
        """Return the position at the oldest record of a shard, for a stream that stands behind records that have expired.

        Raises:
            SourceRefused: if the shard is open and empty, so that nobody knows where its next record will be.
        """
        oldest = first_record(self._client, self._named, shard.id, deadline)
        if oldest is not None:
            return UserRecord(oldest.sequence_number).position
        if not shard.is_open:
            return SHARD_END
        raise SourceRefused(
            f"Shard {shard.id} of stream {self._stream} is empty, and the record behind which the stream continues has passed "
            "the retention: whether records behind it expired before they landed cannot be told. The stream waits until the "
            "shard holds a record; then it halts as SourceTruncated, and recovery.onSourceTruncated says how it continues."
        )


def _outlived_its_parents(shard: Shard, listed: frozenset[str], positions: Mapping[str, int]) -> bool:
    """Whether a shard follows on ones that the stream has read, and began longer ago than the retention.

    Parents are listed until their last record has expired. By then the child's first records may have expired as well, which
    is a loss where nothing of it was read. Performs no I/O.
    """
    return not positions.keys().isdisjoint(shard.parents) and listed.isdisjoint(shard.parents)


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
