"""The ranges that a StreamReplay has asked for, as its attempts carry them, and what became of them. Performs no I/O.

A range that is landed in part has several rows, and each of them begins within what was asked for; so does what another replay
has left of it. An attempt carries the ranges themselves, since what chose them may not choose them any more: a claim is a new
status, and a record that fails again has another error.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar, assert_never, cast

from exactlyonce.bounded_json import parse_json
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.history import Overlap
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.rows import FailureRow, FailureStatus, counts_records
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition

MOST_NAMED = 100
MOST_RANGES = 2000
"""Of one replay: all of them stand in the ConfigMap of each attempt, which holds a megabyte."""

MOST_BYTES = 900_000
"""So much of that megabyte may the ranges take. Positions in folders have 87 digits, so 2,000 of a long path would not fit."""

NO_EFFECT = (FailureStatus.LOST, FailureStatus.GIVEN_UP)
"""What is counted as lost: what no replay has landed, and none will unless a person asks for it."""


@dataclass(frozen=True, order=True, slots=True)
class AskedRange:
    """A range as it was when it was asked for; half-open."""

    batch: BatchNumber
    partition: Partition
    from_offset: int
    until_offset: int
    origin_id: str = ""
    """Of the topic in which a range was looked up that is of no batch; empty where nobody compares that."""

    @classmethod
    def of(cls, row: FailureRow) -> AskedRange:
        """Return the range of a row."""
        return cls(row.batch, row.partition, row.from_offset, row.until_offset)

    @classmethod
    def given(cls, partition: Partition, offsets: OffsetRange, origin_id: str = "") -> AskedRange:
        """Return a range that is of no batch, since it was given by hand."""
        return cls(BatchNumber(0), partition, offsets.from_offset, offsets.until_offset, origin_id)

    @property
    def span(self) -> tuple[Partition, OffsetRange]:
        """The partition and the offsets."""
        return self.partition, OffsetRange(self.from_offset, self.until_offset)

    @property
    def records(self) -> int:
        """How many positions it has; 1 where these count no records, as a row of the ledger has it."""
        return self.until_offset - self.from_offset if self.counts_records else 1

    @property
    def counts_records(self) -> bool:
        """Whether anybody can tell how many records it has."""
        return counts_records(self.until_offset)

    def holds(self, row: FailureRow) -> bool:
        """Whether a row is a part of it."""
        return (row.batch, row.partition) == (self.batch, self.partition) and (
            self.from_offset <= row.from_offset < self.until_offset
        )


_Span = TypeVar("_Span", AskedRange, FailureRow)


def render_asked(asked: Iterable[AskedRange]) -> str:
    """Return ranges as JSON."""
    return json.dumps([_rendered(it) for it in asked])


def _rendered(it: AskedRange) -> list[object]:
    origin_id = [it.origin_id] if it.origin_id else []
    return [it.batch, it.partition.origin, it.partition.key, it.from_offset, it.until_offset, *origin_id]


def bytes_of(it: AskedRange) -> int:
    """Return about how many bytes a ConfigMap takes for a range: as it was asked for, and as what is left of it."""
    return len(json.dumps(_rendered(it))) + len(json.dumps(_rendered(it)[:4])) + 50  # the latter in lines of its own


def fills_one_replay(asked: Collection[AskedRange]) -> bool:
    """Whether one replay may have left out others, since it takes no more ranges than these."""
    sizes = [bytes_of(it) for it in asked]
    return len(sizes) >= MOST_RANGES or (bool(sizes) and sum(sizes) + max(sizes) > MOST_BYTES)


def parse_asked(text: str) -> tuple[AskedRange, ...]:
    """Return what `render_asked` wrote.

    Raises:
        KeyError, TypeError, ValueError: if the text is something else.
    """
    return tuple(_parsed(*it) for it in parse_json(text))


def _parsed(
    batch: object, origin: object, key: object, start: object, until: object, origin_id: object = ""
) -> AskedRange:
    numbers, texts = (batch, start, until), (origin, origin_id)
    if not all(type(it) is int for it in numbers) or not all(isinstance(it, str) for it in texts):
        raise TypeError("it is no range")
    if type(key) not in (int, str):
        raise TypeError("it is no partition")
    partition = Partition(cast("str", origin), cast("int | str", key))
    return AskedRange(
        BatchNumber(cast("int", batch)), partition, cast("int", start), cast("int", until), cast("str", origin_id)
    )


def left_of(asked: Collection[AskedRange], rows: Iterable[FailureRow]) -> tuple[RangeKey, ...]:
    """Return what of the ranges is in quarantine still, earliest first."""
    return tuple(sorted(RangeKey.of(row) for _, row in _parts(asked, rows) if row.status in HELD))


@dataclass(frozen=True, slots=True)
class Amount:
    """How much of what was asked for has which outcome; the rest of it is read again by the stream itself."""

    asked: int = 0
    replayed: int = 0
    put_back: int = 0
    lost: int = 0

    @property
    def read_again(self) -> int:
        """How much the stream reads again itself."""
        return self.asked - self.replayed - self.put_back - self.lost


class Kind(Enum):
    """What a StreamReplay asks for. Only of failures the ledger alone says that nothing is left to be done."""

    FAILURES = "failures"
    DEAD_LETTERS = "dead letters"
    RANGES = "ranges"
    BACKFILL = "backfill"


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of the ranges of one replay, in ranges and in records.

    A range counts as put back while any record of it is in quarantine, and else as lost if any is. `held` are the ids of what
    is in quarantine, the earliest MOST_NAMED of them. Where it `counts_no_records`, `records` counts ranges in the same way.
    """

    ranges: Amount
    records: Amount
    kind: Kind = Kind.FAILURES
    held: tuple[str, ...] = ()
    counts_no_records: bool = False
    fills_one_replay: bool = False

    @property
    def is_done(self) -> bool:
        """Whether the ledger says that nothing is left to be done; what a process finds by itself it alone can tell.

        What is asked of a backfill is in no other place than its own record, which there may not be yet.
        """
        match self.kind:
            case Kind.FAILURES:
                return self.records.put_back == 0
            case Kind.BACKFILL:
                return self.records.put_back == self.records.read_again == 0
            case Kind.DEAD_LETTERS | Kind.RANGES:
                return False
            case _:
                assert_never(self.kind)


def tally(asked: Collection[AskedRange], rows: Iterable[FailureRow]) -> Tally:
    """Count what the ledger's rows say of the ranges."""
    found: dict[AskedRange, Counter[FailureStatus]] = {it: Counter() for it in asked}
    keys: list[RangeKey] = []
    for whole, row in _parts(asked, rows):
        found[whole][row.status] += row.offset_count
        keys += [RangeKey.of(row)] if row.status in HELD else []
    counted = {it: counts if it.counts_records else _whole(counts) for it, counts in found.items()}
    uncounted = any(not it.counts_records for it in asked)
    return Tally(
        *_amounts(counted),
        held=tuple(str(key) for key in sorted(keys)[:MOST_NAMED]),
        counts_no_records=uncounted,
        fills_one_replay=fills_one_replay(asked),
    )


def _whole(parts: Counter[FailureStatus]) -> Counter[FailureStatus]:
    """Return the one outcome of a range whose records nobody can count: in quarantine or lost as long as a part of it is."""
    for statuses in (HELD, NO_EFFECT, (FailureStatus.REPLAYED,)):
        found = next((status for status in statuses if parts[status]), None)
        if found is not None:
            return Counter({found: 1})
    return Counter()


def tally_given(given: Collection[AskedRange], overlaps: Iterable[Overlap]) -> Tally:
    """Count what the ledger says of ranges that were given by hand; as landed, what the replay itself has landed.

    The rest of what was asked for the stream has landed, or lands, itself, or another replay has.
    """
    found: dict[AskedRange, Counter[FailureStatus]] = {it: Counter() for it in given}
    places = {(it.partition, it.from_offset): it for it in given}
    for overlap in overlaps:
        place = (overlap.partition, overlap.from_offset)
        if place in places:  # whoever may write to the ledger can give a row of that topic and number a name, too
            found[places[place]][overlap.status] += overlap.records
    return Tally(*_amounts(found), Kind.RANGES)


def _amounts(found: Mapping[AskedRange, Counter[FailureStatus]]) -> tuple[Amount, Amount]:
    """Return what became of ranges, and of their records, by how many records of each have which status."""
    held = {it: sum(counts[status] for status in HELD) for it, counts in found.items()}
    lost = {it: sum(counts[status] for status in NO_EFFECT) for it, counts in found.items()}
    replayed = {it: counts[FailureStatus.REPLAYED] for it, counts in found.items()}
    return (
        Amount(
            len(found),
            sum(replayed[it] == it.records for it in found),
            sum(held[it] > 0 for it in found),
            sum(lost[it] > 0 and not held[it] for it in found),
        ),
        Amount(sum(it.records for it in found), sum(replayed.values()), sum(held.values()), sum(lost.values())),
    )


def tally_landing(given: Collection[AskedRange], landed: int) -> Tally:
    """Return what is counted of ranges that were given by hand while their process runs: the records that have landed."""
    return Tally(Amount(len(given)), Amount(sum(it.records for it in given), landed), Kind.RANGES)


def tally_backfill(asked: Collection[AskedRange], parts: Collection[FailureRow] | None) -> Tally:
    """Count what the record of a backfill says; without one, nothing has landed of what was asked for.

    Ranges that adjoin count as one: what has landed of a range parts it, and what was asked for is not kept beside the parts.
    """
    if parts is None:
        return Tally(Amount(len(_adjoining(asked))), Amount(sum(it.records for it in asked)), Kind.BACKFILL)
    counts: Counter[FailureStatus] = Counter()
    for row in parts:
        counts[row.status] += row.offset_count
    found = [{row.status for row in run} for run in _adjoining(parts)]
    ranges = Amount(
        len(found),
        sum(it == {FailureStatus.REPLAYED} for it in found),
        sum(not it.isdisjoint(HELD) for it in found),
        sum(FailureStatus.LOST in it and it.isdisjoint(HELD) for it in found),
    )
    if not all(counts_records(row.until_offset) for row in parts):
        return Tally(ranges, ranges, Kind.BACKFILL, counts_no_records=True)
    held = sum(counts[status] for status in HELD)
    records = Amount(sum(counts.values()), counts[FailureStatus.REPLAYED], held, counts[FailureStatus.LOST])
    return Tally(ranges, records, Kind.BACKFILL)


def _adjoining(spans: Collection[_Span]) -> list[list[_Span]]:
    """Return spans in groups, of which each has no gap."""
    runs: list[list[_Span]] = []
    for it in sorted(spans, key=lambda it: (it.partition, it.from_offset)):
        if runs and (runs[-1][-1].partition, runs[-1][-1].until_offset) == (it.partition, it.from_offset):
            runs[-1].append(it)
        else:
            runs.append([it])
    return runs


def tally_letters(landed: int, left: int) -> Tally:
    """Return the count of dead letters: those that have landed, and those that are left as far as a process has told."""
    return Tally(Amount(), Amount(landed + left, landed, left), Kind.DEAD_LETTERS)


def _parts(asked: Collection[AskedRange], rows: Iterable[FailureRow]) -> Iterable[tuple[AskedRange, FailureRow]]:
    places: Mapping[tuple[BatchNumber, Partition], Sequence[AskedRange]] = _by_place(asked)
    for row in rows:
        for whole in places.get((row.batch, row.partition), ()):
            if whole.holds(row):
                yield whole, row


def _by_place(asked: Collection[AskedRange]) -> dict[tuple[BatchNumber, Partition], list[AskedRange]]:
    places: dict[tuple[BatchNumber, Partition], list[AskedRange]] = defaultdict(list)
    for it in asked:
        places[it.batch, it.partition].append(it)
    return places
