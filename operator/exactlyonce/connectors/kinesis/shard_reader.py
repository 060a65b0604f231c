"""A shard is read from a position, without a gap that nobody notices.

An iterator says nothing of what has expired in front of it: a read behind a record that is gone starts at the oldest one
that is left. So a read behind record S asks for S itself, which must come first. Within one chain of iterators nothing can
expire unseen either: an iterator lives for five minutes, and where the records behind it come near their retention, S is asked
for again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from exactlyonce.connectors.kinesis.aggregation import RawRecord
from exactlyonce.connectors.kinesis.answers import IteratorExpired, SequenceNumberRefused, ShardMissing
from exactlyonce.connectors.kinesis.client import KinesisClient, Page, SeenTip
from exactlyonce.connectors.kinesis.pages import (
    SEEK_PAUSE_SECONDS,
    SEEKS,
    EndUnproven,
    first_page,
    read_page,
    require_order,
)
from exactlyonce.connectors.kinesis.patience import surely
from exactlyonce.connectors.kinesis.positions import (
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtShardEnd,
    AtTrimHorizon,
    InsideRecord,
    position_after_record,
    read_from,
    to_text,
)
from exactlyonce.errors import Refused, SourceUnreachable

_LEAST_RETENTION = timedelta(hours=24)  # Kinesis keeps records for a day at least
_ITERATOR_LIVES = timedelta(minutes=5)
_MARGIN = timedelta(hours=1)


class PositionExpired(Refused):
    """The record in front of a position is not in the shard any more, so records behind it may be gone as well."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records behind the position of the fetch before, in order, and the position behind them.

    A record in which that position lies is among them, whole. `milliseconds_behind` is 0 only if nothing more was there.
    """

    records: tuple[RawRecord, ...]
    position: int
    milliseconds_behind: int

    @property
    def at_end(self) -> bool:
        """Whether the shard was split or merged, and nothing will ever follow."""
        return self.position == SHARD_END


class ShardReader:
    """Reads one shard of one stream on from a position; its iterator stays between calls."""

    def __init__(self, client: KinesisClient, stream: str, shard_id: str, position: int) -> None:
        read_from(position)  # raises MalformedPosition
        self._client = client
        self._stream = stream
        self._shard_id = shard_id
        self._position = position
        self._iterator: str | None = None
        self._behind = 0
        self._asked_at = (0.0, 0.0)

    @property
    def position(self) -> int:
        """Where the next fetch starts."""
        return self._position

    def fetch(self) -> Fetched:
        """Return the records of one answer of Kinesis, none if it is empty.

        Makes one GetRecords; more where it has to seek, and none at the end of the shard.

        Raises:
            PositionExpired: if records at the position may be gone.
            RecordsOutOfOrder: if Kinesis answers a record that was read before.
            OriginMissing, SourceRefused, SourceUnreachable: by situation.
        """
        for _ in range(SEEKS):
            try:
                if self._iterator is None or self._may_skip():
                    return self._seek()
                return self._accept(self._page(self._iterator))
            except IteratorExpired:
                self._iterator = None
                problem = SourceUnreachable(
                    f"Kinesis says of each new iterator of {self._where} that it has expired; the shard is read again."
                )
            except EndUnproven as unproven:
                self._iterator, problem = None, unproven
                self._client.clock.sleep(SEEK_PAUSE_SECONDS)
        raise problem

    @property
    def _last_read(self) -> int:
        """The sequence number behind which every further record is; -1 at the start of the shard."""
        match read_from(self._position):
            case AfterRecord(sequence_number):
                return sequence_number
            case InsideRecord(sequence_number, _):
                return sequence_number - 1
            case _:
                return -1

    def _note_time(self) -> None:
        """Before a call: what is added while it is under way may be missing in its answer."""
        self._asked_at = self._client.clock.elapsed_seconds(), self._client.clock.wall_seconds()

    def _page(self, iterator: str) -> Page:
        self._note_time()
        return read_page(self._client, self._stream, self._shard_id, iterator)

    def _accept(self, page: Page) -> Fetched:
        """Take a page that continues what was read."""
        require_order(self._stream, self._shard_id, page, self._last_read)
        self._iterator, self._behind = page.next_iterator, page.milliseconds_behind
        if page.next_iterator is None:
            self._position, self._behind = SHARD_END, 0
        elif page.records:
            self._position = position_after_record(page.records[-1].sequence_number)
        elif not self._behind:
            created = self._client.described(self._stream).created
            self._client.tips[self._stream, self._shard_id] = SeenTip(self._position, created, *self._asked_at)
        return Fetched(page.records, self._position, self._behind)

    def _seek(self) -> Fetched:
        self._iterator = None
        match read_from(self._position):
            case AtTrimHorizon():
                page = self._page(self._iterator_of(ShardIteratorType="TRIM_HORIZON"))
                self._require_nothing_expired()
                return self._accept(page)
            case AfterRecord(sequence_number):
                return self._seek_behind(sequence_number)
            case InsideRecord(sequence_number, _):
                return self._seek_record(sequence_number, is_wanted=True)
            case AtShardEnd():
                return Fetched((), SHARD_END, 0)

    def _seek_behind(self, sequence_number: int) -> Fetched:
        """Read on behind a record; or from the very next sequence number, where a stream was told to start at that record.

        Nothing lies between the two, so nothing can have expired between them either.
        """
        try:
            return self._seek_record(sequence_number, is_wanted=False)
        except PositionExpired as expired:
            try:
                return self._seek_record(sequence_number + 1, is_wanted=True)
            except PositionExpired:
                raise expired from None

    def _seek_record(self, sequence_number: int, *, is_wanted: bool) -> Fetched:
        """Read from a record on, which must come first; it is handed out only if it `is_wanted`."""
        try:
            iterator = surely(
                self._client.clock,
                lambda: self._iterator_of(
                    ShardIteratorType="AT_SEQUENCE_NUMBER", StartingSequenceNumber=str(sequence_number)
                ),
            )
        except (ShardMissing, SequenceNumberRefused) as problem:
            raise PositionExpired(f"{self._what}: {problem}") from problem
        self._note_time()
        page = first_page(self._client, self._stream, self._shard_id, iterator)
        if not page.records or page.records[0].sequence_number != sequence_number:
            if not self._was_at_tip():
                raise self._expired(page)
            return self._accept(page)
        first = 0 if is_wanted else 1
        rest = Page(page.records[first:], page.next_iterator, page.milliseconds_behind)
        if not rest.records and rest.next_iterator is not None and rest.milliseconds_behind:
            # S came alone. Near the retention the next fetch would seek it again, and never come to what follows.
            rest = first_page(self._client, self._stream, self._shard_id, rest.next_iterator)
        return self._accept(rest)

    def _require_nothing_expired(self) -> None:
        """A shard in which nothing was yet, as this process saw, may have been written to, and that may have expired."""
        seen = self._client.tips.get((self._stream, self._shard_id))
        if seen is not None and seen.position == self._position and not self._was_at_tip():
            raise PositionExpired(
                f"Whether records of {self._where} have expired unread cannot be told: it was empty when it was last asked, "
                "but that was longer ago than its retention, or the stream was recreated since."
            )

    def _was_at_tip(self) -> bool:
        """Whether nothing was behind this position so lately that what came since cannot have expired."""
        seen = self._client.tips.get((self._stream, self._shard_id))
        if seen is None or seen.position != self._position:
            return False
        clock = self._client.clock
        # Whichever clock says more: one may have been set back, the other stands still in a suspended machine.
        elapsed = max(clock.elapsed_seconds() - seen.elapsed_seconds, clock.wall_seconds() - seen.wall_seconds)
        stream = self._client.describe(self._stream)
        return stream.created == seen.created and timedelta(seconds=elapsed) < stream.retention

    def _may_skip(self) -> bool:
        """Whether the records that come next may be so old that some expire before they are read."""
        clock = self._client.clock
        elapsed = max(clock.elapsed_seconds() - self._asked_at[0], clock.wall_seconds() - self._asked_at[1])
        oldest = timedelta(seconds=elapsed, milliseconds=self._behind) + _ITERATOR_LIVES + _MARGIN
        if self._position == TRIM_HORIZON or oldest < _LEAST_RETENTION:
            return False
        return oldest >= self._client.described(self._stream).retention

    def _iterator_of(self, **start: str) -> str:
        return self._client.iterator(self._stream, self._shard_id, **start)

    def _expired(self, page: Page) -> PositionExpired:
        found = f"the oldest record left is {page.records[0].sequence_number}" if page.records else "no record is left"
        return PositionExpired(
            f"{self._what}: {found}. The records between may have passed the stream's retention; how many is not known."
        )

    @property
    def _where(self) -> str:
        return f"shard {self._shard_id} of stream {self._stream}"

    @property
    def _what(self) -> str:
        return (
            f"The record at which the position {to_text(self._position)} of {self._where} stands is not there any more"
        )
