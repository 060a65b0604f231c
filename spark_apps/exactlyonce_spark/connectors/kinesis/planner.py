"""Where each batch ends, found by reading ahead, as Kinesis has no call that tells it. No pyspark here.

The planner lives in the one Python process that Spark's driver keeps for a query, so what it has fetched is still there
when the batch that it is planned into is given to the tasks. After a restart it is not: then the tasks read the range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from exactlyonce.aws.calls import Clock
from exactlyonce.connectors.kinesis.aggregation import RawRecord
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON
from exactlyonce.connectors.kinesis.rate_limit import rest_seconds
from exactlyonce.connectors.kinesis.shards import Shard
from exactlyonce_spark.connectors.kinesis.lineage import Lineage
from exactlyonce_spark.connectors.kinesis.lineage_checks import require_none_held_back, require_reachable
from exactlyonce_spark.connectors.kinesis.read_ahead import Cut, ReadAhead

PARTITION_HELD_BYTES = 32 * 1024 * 1024
"""The most that is held of a shard and handed to its task: 80 MB a batch took 0.6 s more (measured), and a task of more than
128 MiB is refused by Spark (spark.rpc.message.maxSize)."""

HELD_BYTES = 64 * 1024 * 1024
"""Once so much is held of all shards, nothing is fetched of further ones: the driver's pod has little memory beside that of its
JVM. What is fetched at that moment still comes in, which is at most a page of 10 MB for each of the threads."""

IDLE_SECONDS = 1.0
"""How long a shard rests in which everything was read: of five calls a second, four are left to other consumers."""

READING_SECONDS = 10.0
"""How long one batch is planned for at most where the next one follows at once."""

_PAUSE_SECONDS = 0.1
"""How long a call waits that has nothing to do, so that Spark does not ask a hundred times a second."""

_SHORT_PAUSE_SECONDS = 0.25
"""The longest that a batch waits for a shard to give more; else it is made of what is there, and Spark runs it meanwhile."""

_FETCHES_AT_ONCE = 8

_LIST_SECONDS, _LIST_SOON_SECONDS = 300.0, 1.0


class Page(Protocol):
    """What one fetch gave (`exactlyonce.connectors.kinesis.reading.Fetched`)."""

    @property
    def records(self) -> Sequence[RawRecord]:
        """The records."""
        ...

    @property
    def position(self) -> int:
        """The position behind them, SHARD_END behind the last one of all."""
        ...

    @property
    def milliseconds_behind(self) -> int:
        """How far this is from the newest record; 0 where nothing is left."""
        ...


class Fetching(Protocol):
    """What reads one shard on (`exactlyonce.connectors.kinesis.reading.ShardReader`)."""

    def fetch(self) -> Page:
        """Return the next records, a page."""
        ...


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """How much a batch may take, and how long it may be read for."""

    records: int
    size_bytes: int
    seconds: float = READING_SECONDS


class _ShardAhead:
    """One shard that is being read."""

    def __init__(self, shard: str, start: int) -> None:
        self.shard = shard
        self.ahead = ReadAhead(start)
        self.reader: Fetching | None = None
        self.reader_at = start
        self.rests_until = 0.0
        self.paced_until = 0.0
        """Until when the shard gives nothing more, because of what it has given (`rate_limit.py`)."""
        self.fetches = 0
        self.is_read = False
        """Whether a query of `availableNow` has read all that it is to read of it."""

    def begin_at(self, start: int) -> None:
        self.ahead.advance(start)
        if self.ahead.reached != self.reader_at:
            self.reader, self.reader_at = None, self.ahead.reached
            self.rests_until, self.is_read = 0.0, False

    @property
    def has_ended(self) -> bool:
        return self.reader_at == SHARD_END

    def lacks(self, share: BatchLimit) -> bool:
        if self.ahead.start == TRIM_HORIZON:
            return not self.ahead.holds_records  # its first batch only names where the oldest record begins
        return self.ahead.records < share.records and self.ahead.size_bytes < share.size_bytes


class Planner:
    """Plans the batches of one query."""

    def __init__(
        self,
        open_shard: Callable[[str, int], Fetching],
        list_shards: Callable[[], Sequence[Shard]],
        limit: BatchLimit,
        clock: Clock | None = None,
    ) -> None:
        self._open = open_shard
        self._list = list_shards
        self._limit = limit
        self._clock = clock or Clock()
        self._shards: dict[str, _ShardAhead] = {}
        self._listed: tuple[float, Sequence[Shard]] | None = None
        self._until: float | None = None
        self._turn = 0
        self._pool = ThreadPoolExecutor(_FETCHES_AT_ONCE, thread_name_prefix="kinesis")

    def read_until_now(self) -> None:
        """Read each shard as far as it holds records by now, shards that follow on it included, and no further."""
        self._until = self._clock.elapsed_seconds()

    def ends(self, starts: Mapping[str, int]) -> dict[str, int]:
        """Return where the batch ends that starts here; where nothing is to be read, it ends where it starts.

        A child is named at its own start once its parents are at their ends, and read from the next batch on: so Spark's log
        tells where each shard of a batch starts. From the start of a shard a batch ends where the oldest record begins. A shard
        that is at its end and has expired is left out.

        Raises:
            PositionExpired: if records may have expired before they were read.
            OriginMissing, SourceRefused, SourceUnreachable: by situation.
        """
        self._begin(starts)
        shares = self._read()
        ends = {shard: starts[shard] for shard in starts}
        for ahead in self._in_turn():
            ends[ahead.shard] = self._cut(ahead, shares).position
        if SHARD_END in starts.values():
            lineage = self._lineage(starts)
            require_reachable(lineage)
            ends |= dict.fromkeys(lineage.appearing, TRIM_HORIZON)
            ends = {shard: end for shard, end in ends.items() if shard not in lineage.forgotten}
            if ends == dict(starts) and self._until is not None:
                require_none_held_back(lineage)
        if ends == dict(starts) and self._until is None:
            self._clock.sleep(_PAUSE_SECONDS)
        self._turn += 1
        return dict(sorted(ends.items()))

    def fetched(self, shard: str, start: int, end: int) -> tuple[RawRecord, ...] | None:
        """Return the records of a range, None where they were not fetched or are no longer held."""
        known = self._shards.get(shard)
        return None if known is None else known.ahead.between(start, end)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, starts: Mapping[str, int]) -> None:
        self._shards = {
            shard: self._shards.get(shard) or _ShardAhead(shard, start)
            for shard, start in starts.items()
            if start != SHARD_END
        }
        for shard, ahead in self._shards.items():
            ahead.begin_at(starts[shard])

    def _in_turn(self) -> list[_ShardAhead]:
        """The shards, another one first in each batch: a limit below their number serves all of them in the end."""
        shards = list(self._shards.values())
        first = self._turn % len(shards) if shards else 0
        return shards[first:] + shards[:first]

    def _read(self) -> Mapping[str, BatchLimit]:
        """Read on until each shard has its share of the batch, or nothing more is there, or time is up."""
        give_up_at = self._clock.elapsed_seconds() + self._limit.seconds
        while True:
            shares = self._shares()
            wanting = [ahead for ahead in self._in_turn() if self._wants(ahead) and ahead.lacks(shares[ahead.shard])]
            now = self._clock.elapsed_seconds()
            due = [ahead for ahead in wanting if ahead.paced_until <= now]
            if not due:
                pause = min((ahead.paced_until - now for ahead in wanting), default=None)
                if pause is None or (pause > _SHORT_PAUSE_SECONDS and not self._must_go_on()):
                    return shares
                self._clock.sleep(pause)
                continue
            due.sort(key=lambda ahead: ahead.fetches)
            list(self._pool.map(self._fetch, due[:_FETCHES_AT_ONCE]))
            has_moved = any(ahead.ahead.reached != ahead.ahead.start for ahead in self._shards.values())
            # A query that ends when nothing is left (availableNow) must not be told so because it took long.
            if self._clock.elapsed_seconds() >= give_up_at and (has_moved or self._until is None):
                return self._shares()

    def _must_go_on(self) -> bool:
        """Whether a batch without records would end the query, although there are some."""
        return self._until is not None and not any(ahead.ahead.holds_records for ahead in self._shards.values())

    def _wants(self, ahead: _ShardAhead) -> bool:
        """Whether more of a shard may be there and be held, now or once it gives more."""
        if ahead.has_ended or ahead.is_read or self._clock.elapsed_seconds() < ahead.rests_until:
            return False
        return ahead.ahead.holds_records or self._held_bytes() < HELD_BYTES

    def _held_bytes(self) -> int:
        return sum(ahead.ahead.memory_bytes for ahead in self._shards.values())

    def _fetch(self, ahead: _ShardAhead) -> None:
        """Fetch one page; run by threads, one per shard."""
        if ahead.reader is None:
            ahead.reader = self._open(ahead.shard, ahead.reader_at)
        asked_at = self._clock.elapsed_seconds()
        page = ahead.reader.fetch()
        ahead.fetches += 1

        def keep(size: int) -> bool:
            """The first page of a shard is always kept: a batch with a small limit must be able to end inside it."""
            own = ahead.ahead.memory_bytes
            return not own or (own + size <= PARTITION_HELD_BYTES and self._held_bytes() + size <= HELD_BYTES)

        ahead.ahead.add(page.records, page.position, keep)
        ahead.reader_at = page.position
        ahead.paced_until = asked_at + rest_seconds(page.records)
        if page.milliseconds_behind == 0:
            ahead.rests_until = self._clock.elapsed_seconds() + IDLE_SECONDS
        if self._until is not None:
            ahead.is_read = asked_at - page.milliseconds_behind / 1000 >= self._until

    def _cut(self, ahead: _ShardAhead, shares: Mapping[str, BatchLimit]) -> Cut:
        share = shares[ahead.shard]
        return ahead.ahead.cut(share.records, share.size_bytes)

    def _shares(self) -> Mapping[str, BatchLimit]:
        """Share the limit: nobody gets more than it can use, and what one leaves the others get."""
        wanting = {shard for shard, ahead in self._shards.items() if self._wants(ahead)}
        shards = {ahead.shard: ahead.ahead for ahead in self._in_turn()}
        records = shared(
            self._limit.records, {shard: None if shard in wanting else ahead.records for shard, ahead in shards.items()}
        )
        # Bytes are for those that get records: else one would get the bytes and another one the records, and none both.
        sizes = shared(
            self._limit.size_bytes,
            {
                shard: None if shard in wanting else ahead.size_bytes
                for shard, ahead in shards.items()
                if records[shard]
            },
        )
        return {shard: BatchLimit(records[shard], sizes.get(shard, 0)) for shard in shards}

    def _lineage(self, starts: Mapping[str, int]) -> Lineage:
        """The shards as they are listed, asked again soon while a shard has ended whose children are not all known."""
        now = self._clock.elapsed_seconds()
        if self._listed is not None:
            asked_at, listed = self._listed
            lineage = Lineage(listed, starts)
            patience = _LIST_SOON_SECONDS if lineage.waiting_parents or lineage.held_back else _LIST_SECONDS
            if now < asked_at + patience and not lineage.appearing:
                return lineage
        listed = tuple(self._list())
        self._listed = now, listed
        return Lineage(listed, starts)


def shared(limit: int, usable: Mapping[str, int | None]) -> dict[str, int]:
    """Return each one's share of a limit, by what it can use (None: whatever it is given); never more than that together.

    Where there is less than one for each, the first ones get it.
    """
    wanting = [name for name, most in usable.items() if most != 0]
    if limit < len(wanting):
        return {name: int(name in wanting[:limit]) for name in usable}
    shares: dict[str, int] = {}
    left = limit
    by_need = sorted(usable.items(), key=lambda item: (item[1] is None, item[1] or 0))
    for place, (name, most) in enumerate(by_need):
        fair = -(-left // (len(usable) - place))
        shares[name] = fair if most is None else min(most, fair)
        left -= shares[name]
    return shares
