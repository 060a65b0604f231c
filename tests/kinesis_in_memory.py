"""A Kinesis stream in memory: what is read of it is counted, shards are split and merged. A stand-in for planners' tests."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from exactlyonce.aws.calls import Clock
from exactlyonce.connectors.kinesis.aggregation import MAGIC, RawRecord, UserRecordData, user_records
from exactlyonce.connectors.kinesis.positions import SHARD_END, UserRecord, position_after_record
from exactlyonce.connectors.kinesis.shards import Shard

FIRST_SEQUENCE_NUMBER = 49590338271490256608559692538361571095921575989136588898
GAP = 7  # sequence numbers are sparse


def aggregated(texts: Sequence[str], key: str = "k") -> bytes:
    """One record that holds many, as the Kinesis Producer Library writes it, all with one key."""
    message = _field(1, key.encode()) + b"".join(_field(3, b"\x08\x00" + _field(3, text.encode())) for text in texts)
    return MAGIC + message + hashlib.md5(message).digest()


def _field(number: int, content: bytes) -> bytes:
    length, size = b"", len(content)
    while size > 0x7F:
        length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


@dataclass
class ManualClock:
    """Time that passes only when somebody waits."""

    seconds: float = 1000.0

    def clock(self) -> Clock:
        """The clock as a planner takes it."""
        return Clock(lambda: self.seconds, lambda: self.seconds, self.wait)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.seconds += seconds


@dataclass(frozen=True)
class FetchedPage:
    """What one call gave."""

    records: Sequence[RawRecord]
    position: int
    milliseconds_behind: int


@dataclass
class KinesisInMemory:
    """One stream. `fetches` counts calls and `read` how often each record was returned, by shard and sequence number."""

    page_records: int = 5
    shards: dict[str, Shard] = field(default_factory=dict)
    records: dict[str, list[RawRecord]] = field(default_factory=dict)
    fetches: Counter[str] = field(default_factory=Counter)
    read: Counter[tuple[str, int]] = field(default_factory=Counter)
    unlisted: set[str] = field(default_factory=set)
    milliseconds_per_record: int = 100
    _next: int = FIRST_SEQUENCE_NUMBER

    def open_shard(self, name: str, *parents: str) -> str:
        """Add a shard."""
        self.shards[name] = Shard(name, parents, 0, 1, self._next)
        self.records[name] = []
        return name

    def split(self, name: str, *into: str) -> None:
        """Close a shard and open its children."""
        self.close(name)
        for child in into:
            self.open_shard(child, name)

    def close(self, name: str) -> None:
        """Close a shard: nothing is ever added to it."""
        self.shards[name] = replace(self.shards[name], ending_sequence_number=self._next)

    def put(self, shard: str, *datas: str | bytes) -> None:
        """Add records."""
        for data in datas:
            self._next += GAP
            content = data.encode() if isinstance(data, str) else data
            self.records[shard].append(RawRecord(self._next, "k", content, 1_700_000_000_000))

    def listed(self) -> tuple[Shard, ...]:
        """What ListShards answers."""
        return tuple(shard for name, shard in self.shards.items() if name not in self.unlisted)

    def reader(self, shard: str, position: int) -> ReaderInMemory:
        """Open a shard at a position."""
        return ReaderInMemory(self, shard, position)

    def range(self, shard: str, start: int, end: int) -> Iterator[UserRecordData]:
        """The user records of a range, told from the records alone."""
        for record in self.records[shard]:
            yield from (user for user in user_records(record) if start <= user.record.position < end)


@dataclass
class ReaderInMemory:
    """One shard as it is read on."""

    kinesis: KinesisInMemory
    shard: str
    position: int

    def fetch(self) -> FetchedPage:
        """Return the next page."""
        assert self.position != SHARD_END, "nothing is read behind a shard's end"
        self.kinesis.fetches[self.shard] += 1
        there = self.kinesis.records[self.shard]
        ahead = [r for r in there if position_after_record(r.sequence_number) > self.position]
        page = ahead[: self.kinesis.page_records]
        self.kinesis.read.update((self.shard, record.sequence_number) for record in page)
        if page:
            self.position = position_after_record(page[-1].sequence_number)
        left = len(ahead) - len(page)
        if not left and not self.kinesis.shards[self.shard].is_open:
            self.position = SHARD_END
        return FetchedPage(page, self.position, left * self.kinesis.milliseconds_per_record)


def texts_of(records: Sequence[RawRecord], start: int, end: int) -> list[str]:
    """The data of the user records in a range, as a task yields it."""
    users = (user for record in records for user in user_records(record))
    return [user.data.decode() for user in users if start <= user.record.position < end]


def position_of(record: RawRecord, sub_sequence_number: int = 0) -> int:
    """The position at a user record."""
    return UserRecord(record.sequence_number, sub_sequence_number).position
