"""Ranges that a person gives by hand, to be landed in the stream's own table: what a reset has skipped, and no other record.

A record may land once. One that the stream has landed, or will land itself, is refused by a sentence; what it has continued
without is among its failures. Of those a range that was Lost may be taken up, if the row says which records it is of and in
which life of the stream, as those of a reset do: it goes into quarantine, from where a replay lands it as any other range.
What AtMostOnce has given up is not taken up, since it may have landed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from exactlyonce.errors import CommitOutcomeUnknown, Refused
from exactlyonce.ledger.connector import OpenLedger
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.letters import RefusesGivenRanges, SetBack
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.ledger.races import rerun_after_lost_race
from exactlyonce.ledger.replay import NothingToReplayInto
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.room import TooMuchInQuarantine, why_no_room
from exactlyonce.ledger.rows import FailureRow, FailureStatus, StreamRow
from exactlyonce.positions.fingerprint import is_other_origin
from exactlyonce.positions.ranges import OffsetRange, Partition, Positions, Ranges

_ASKED = (*HELD, FailureStatus.LOST, FailureStatus.REPLAYED, FailureStatus.GIVEN_UP)


@dataclass(frozen=True, slots=True)
class Standing:
    """What a ledger says of a stream that matters for ranges given by hand."""

    life: str
    positions: Positions
    rows: tuple[FailureRow, ...]
    set_backs: tuple[SetBack, ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """What of some ranges a replay may land: `rows` as they are in quarantine then, and a sentence for each part that stays.

    `changed` are the rows to write for that, in their order: none overlaps one that is written before it.
    """

    rows: tuple[FailureRow, ...]
    changed: tuple[FailureRow, ...]
    refused: tuple[str, ...]


def all_of(found: Sequence[Taken]) -> Taken:
    """Return what was found in several rounds as one."""
    return Taken(
        tuple(row for it in found for row in it.rows),
        tuple(row for it in found for row in it.changed),
        tuple(sentence for it in found for sentence in it.refused),
    )


class TooManyRanges(Refused):
    """A stream has more failed ranges than are looked at."""


class RangesOverlap(Refused):
    """Two ranges that were given hold the same records."""


def in_rounds(spans: Iterable[tuple[Partition, OffsetRange]]) -> tuple[Ranges, ...]:
    """Return ranges in groups that have one of each partition, as what takes them up wants them.

    Raises:
        RangesOverlap: if two of them hold the same position.
    """
    rounds: list[dict[Partition, OffsetRange]] = []
    before: dict[Partition, OffsetRange] = {}
    places: Counter[Partition] = Counter()
    for partition, span in sorted(spans, key=lambda it: (it[0], it[1].from_offset)):
        former = before.get(partition)
        if former is not None and span.from_offset < former.until_offset:
            raise RangesOverlap(
                f"{partition} {former} and {partition} {span} overlap, and nothing was changed; give each record once."
            )
        before[partition] = span
        if places[partition] == len(rounds):
            rounds.append({})
        rounds[places[partition]][partition] = span
        places[partition] += 1
    return tuple(Ranges(it) for it in rounds)


def taken_of(standing: Standing, given: Ranges, by: str = "") -> Taken:
    """Return what of the given ranges may be landed. Performs no I/O.

    What a replay has landed whose token begins with `by` is done, and no word is said about it.
    """
    rows: list[FailureRow] = []
    changed: list[FailureRow] = []
    refused: list[str] = []
    for partition, span in given.non_empty().items():
        at = span.from_offset
        for row in _in_order(standing, partition, span, by):
            begin, end = max(row.from_offset, span.from_offset), min(row.until_offset, span.until_offset)
            if row.status in HELD:
                if (begin, end) != (row.from_offset, row.until_offset):
                    continue
                rows.append(row)
            elif row.status is FailureStatus.LOST:
                parts = _parted(row, begin, end)
                rows += [part for part in parts if part.status is FailureStatus.QUARANTINED]
                changed += parts
            refused += _refusals(standing, partition, at, begin)
            at = end
        refused += _refusals(standing, partition, at, span.until_offset)
    return Taken(tuple(rows), tuple(changed), tuple(refused))


def _in_order(standing: Standing, partition: Partition, span: OffsetRange, by: str) -> list[FailureRow]:
    """The rows in or over a range of which records may be landed, or were by this replay; none of them overlaps another."""
    found = [
        row
        for row in standing.rows
        if _overlaps(row, partition, span.from_offset, span.until_offset)
        and (_is_usable(row, standing) or _is_done(row, by))
    ]
    return sorted(found, key=lambda row: row.from_offset)


def _is_usable(row: FailureRow, standing: Standing) -> bool:
    if row.origin_gone or not row.life or row.life != standing.life:
        return False
    return row.status in HELD or (row.status is FailureStatus.LOST and not is_read_again(row, standing.set_backs))


def _is_done(row: FailureRow, by: str) -> bool:
    return bool(by) and row.status is FailureStatus.REPLAYED and row.replay.startswith(by)


def is_read_again(row: FailureRow, set_backs: Iterable[SetBack]) -> bool:
    """Whether the stream was set back before the end of a range since its batch. Performs no I/O."""
    return any(
        it.partition == row.partition
        and it.batch >= row.batch
        and it.position < row.until_offset
        and not is_other_origin(row.origin_id, it.origin_id)
        for it in set_backs
    )


def _parted(row: FailureRow, begin: int, end: int) -> tuple[FailureRow, ...]:
    """Return the rows after a part has gone into quarantine; the fingerprint is of the last record, which the last one has."""
    parts = []
    if row.from_offset < begin:
        parts.append(replace(row, until_offset=begin, fingerprint=None))
    part = replace(row, from_offset=begin, until_offset=end, status=FailureStatus.QUARANTINED, replay="")
    parts.append(part if end == row.until_offset else replace(part, fingerprint=None))
    if end < row.until_offset:
        parts.append(replace(row, from_offset=end))
    return tuple(parts)


def _refusals(standing: Standing, partition: Partition, begin: int, end: int) -> Iterator[str]:
    """Yield why the records between two offsets stay, if there are any."""
    if begin >= end:
        return
    name, stands = f"{partition} [{begin}, {end})", standing.positions.get(partition)
    over = [row for row in standing.rows if _overlaps(row, partition, begin, end)]
    if stands is None:
        yield f"{name} is of a partition that the stream does not read, or has landed nothing of."
    elif end > stands:
        yield f"{name} ends beyond {stands}, where the stream stands: it will land what is there itself."
    elif any(row.status is FailureStatus.REPLAYED for row in over):
        yield f"{name} has landed, in whole or in part: a replay has landed {_named(over, (FailureStatus.REPLAYED,))}."
    elif any(row.status in HELD for row in over):
        yield f"{name} is a part of what is in quarantine: replay {_named(over, HELD)} in whole, by its id."
    elif any(row.status is FailureStatus.GIVEN_UP for row in over):
        named = _named(over, (FailureStatus.GIVEN_UP,))
        yield f"{name} was given up by a person: {named}; `exactlyonce failures take-back` returns it to quarantine."
    elif over:
        yield (
            f"{name} was given up ({over[0].error:.200}), and nothing says that its records have not landed, or that the "
            "stream does not read them again; write them to the table by hand."
        )
    else:
        yield f"{name} has landed, or lies before the stream's start: no failure says that the stream continued without it."


def _overlaps(row: FailureRow, partition: Partition, begin: int, end: int) -> bool:
    return row.partition == partition and row.from_offset < end and begin < row.until_offset


def _named(rows: Sequence[FailureRow], statuses: Sequence[FailureStatus]) -> str:
    return ", ".join(str(RangeKey.of(row)) for row in rows if row.status in statuses)


def look_at(ledger: Ledger, stream_id: str) -> Standing:
    """Return what the ledger says of a stream; under its lock, so that all of it is of one moment.

    Raises:
        NothingToReplayInto: if the ledger has no row of the stream.
    """
    with ledger.transaction() as transaction:
        return _standing(transaction, stream_id)


def bounded_look(ledger: OpenLedger, stream_id: str, most: int, most_characters: int) -> Standing:
    """Return what is said of a stream with so many failed ranges, for whoever only looks and serves many: nothing is locked.

    Raises:
        NothingToReplayInto: if the ledger has no row of the stream.
        TooManyRanges: if it has more; what was left out might be what matters.
    """
    view = ledger.view(stream_id)
    if view is None:
        raise NothingToReplayInto(f"The ledger has no row of {stream_id}; start the stream first.")
    kept = ledger.kept_failures(stream_id, _ASKED, None, most + 1, most_characters)
    if len(kept) > most:
        raise TooManyRanges(
            f"{stream_id} has more than {most} failed ranges, more than a dry run of given ranges looks at; see which they are "
            "with `exactlyonce replay --dry-run`, or create the StreamReplay without dryRun: it lands what may be landed"
        )
    with ledger.transaction() as transaction:
        set_backs = _set_backs(transaction, stream_id)
    return Standing(view.stream.life, view.landed.positions, tuple(it.row for it in kept), set_backs)


def take_up(ledger: Ledger, stream_id: str, given: Ranges, most: int | None, by: str = "") -> Taken:
    """Put what may be landed of the given ranges into quarantine, in one transaction; safe to repeat.

    With `most`, no more offsets than that may be in quarantine then. `by` as in `taken_of`.

    Raises:
        NothingToReplayInto: if the ledger has no row of the stream.
        TooMuchInQuarantine: if it would be too much; nothing was changed.
        CommitOutcomeUnknown: if the outcome stayed unknown; what is in quarantine is landed by the next replay.
    """
    return take_up_all(ledger, stream_id, (given,), most, by)


def take_up_all(ledger: Ledger, stream_id: str, rounds: Sequence[Ranges], most: int | None, by: str = "") -> Taken:
    """Do the same with several ranges of a partition, as `in_rounds` has them: all of them in one transaction, or none.

    Raises:
        NothingToReplayInto, TooMuchInQuarantine, CommitOutcomeUnknown: as `take_up`.
    """
    try:
        return _take_once(ledger, stream_id, rounds, most, by)
    except CommitOutcomeUnknown:
        return _take_once(ledger, stream_id, rounds, most, by)


@rerun_after_lost_race
def _take_once(ledger: Ledger, stream_id: str, rounds: Sequence[Ranges], most: int | None, by: str) -> Taken:
    with ledger.transaction() as transaction:
        standing = before = _standing(transaction, stream_id)
        found: list[Taken] = []
        for given in rounds:
            found.append(taken_of(standing, given, by))
            if found[-1].changed:
                transaction.write_failures(stream_id, found[-1].changed)
                standing = _standing(
                    transaction, stream_id
                )  # a row that was parted is found by the next round as it is now
        why = why_no_room(before.rows, standing.rows, most, transaction.room)
        if why is not None:
            raise TooMuchInQuarantine(
                f"These ranges of {stream_id} are not taken into quarantine: {why}; or give fewer at once. Nothing was changed."
            )
        return all_of(found)


def _standing(transaction: LedgerTransaction, stream_id: str) -> Standing:
    stream: StreamRow | None = transaction.lock_stream(stream_id, Lock.UPDATE)
    if stream is None:
        raise NothingToReplayInto(f"The ledger has no row of {stream_id}; start the stream first.")
    rows = tuple(row for status in _ASKED for row in transaction.read_failures(stream_id, status))
    positions = transaction.read_positions(stream_id).positions
    return Standing(stream.life, positions, rows, _set_backs(transaction, stream_id))


def _set_backs(transaction: LedgerTransaction, stream_id: str) -> tuple[SetBack, ...]:
    if isinstance(transaction, RefusesGivenRanges):
        transaction.refuse_given_ranges(stream_id)
    return transaction.read_set_backs(stream_id)
