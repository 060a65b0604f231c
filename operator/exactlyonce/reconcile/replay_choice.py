"""Which ranges a StreamReplay asks for, and what a dry run shows of them. Performs no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_never

from exactlyonce.api.stream_replay import FailedRanges
from exactlyonce.api.stream_replay_status import ShownRange
from exactlyonce.bounded_text import one_line, some_of
from exactlyonce.errors import Refused
from exactlyonce.launch.asked_ranges import MOST_BYTES, MOST_RANGES, AskedRange, bytes_of
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.history import RecordedFailure, RecordedLetter
from exactlyonce.ledger.replay_decisions import ASKED_FIRST
from exactlyonce.ledger.replay_rules import Finding, Gone, Held, OfAnother, RangeKey, in_replay_order, why_not
from exactlyonce.ledger.rows import counts_records
from exactlyonce.positions.ranges import BatchNumber, Partition

MOST_SHOWN = 100
MOST_LOOKED_AT = 10_000
"""Dead letters, of a dry run."""

NOT_LOOKED_AT = "the source was not asked any more: a dry run looks for a minute"


class RangesRefused(Refused):
    """The ranges that a replay asks for cannot be replayed."""


def batches_of(asked: FailedRanges) -> tuple[BatchNumber, ...] | None:
    """Return the batches of which ranges are asked for by their ids; None where all of them may have some."""
    if not asked.ids:
        return None
    return tuple(sorted({BatchNumber(int(identifier.partition("/")[0])) for identifier in asked.ids}))


def chosen(
    asked: FailedRanges, kept: Sequence[RecordedFailure], stream_id: str, life: str
) -> tuple[RecordedFailure, ...]:
    """Return the ranges that are asked for, earliest first; as many as the ConfigMap of an attempt holds.

    Behind them come those of one record, of which the ones that were tried longest ago are first: however many fail each
    time, the next replay tries others.

    `kept` are those of the ledger, of any status: one that is named by its id has to be there, and in quarantine.

    Raises:
        RangesRefused: if one with an id is not there or may not be replayed.
    """
    if asked.ids:
        _require_named(asked, kept, stream_id, life)
    found = [
        it
        for it in kept
        if it.row.status in HELD
        and (not asked.ids or it.identifier in asked.ids)
        and asked.admits(it.changed_at, it.row.error)
    ]
    return _as_many_as_fit(sorted(found, key=_in_turn))


def _as_many_as_fit(found: Sequence[RecordedFailure]) -> tuple[RecordedFailure, ...]:
    size = 0
    for place, kept in enumerate(found[:MOST_RANGES]):
        size += bytes_of(AskedRange.of(kept.row))
        if size > MOST_BYTES:
            return tuple(found[:place])
    return tuple(found[:MOST_RANGES])


def _in_turn(kept: RecordedFailure) -> tuple[bool, datetime, tuple[bool, RangeKey]]:
    of_one = kept.row.offset_count == 1
    return of_one, kept.changed_at if of_one else datetime.min.replace(tzinfo=UTC), in_replay_order(kept.row)


def _require_named(asked: FailedRanges, kept: Sequence[RecordedFailure], stream_id: str, life: str) -> None:
    known = {it.identifier: it for it in kept}
    absent = [one_line(identifier) for identifier in asked.ids if identifier not in known]
    if absent:
        raise RangesRefused(
            f"{stream_id} has no failed range {some_of(absent)}; `exactlyonce failures --all` lists those it has."
        )
    reasons = [reason for identifier in asked.ids if (reason := why_not(known[identifier].row, life)) is not None]
    if reasons:
        raise RangesRefused(one_line(" ".join(reasons[:3]), 1000) + ".")


def one_of_each_partition(found: Sequence[RecordedFailure]) -> list[list[RecordedFailure]]:
    """Return the ranges in groups that have one of each partition: a source is asked once for each group."""
    rounds: list[list[RecordedFailure]] = []
    places: dict[Partition, int] = {}
    for kept in found:
        place = places.get(kept.row.partition, 0)
        places[kept.row.partition] = place + 1
        if place == len(rounds):
            rounds.append([])
        rounds[place].append(kept)
    return rounds


@dataclass(frozen=True)
class Shown:
    """What a dry run has found of one range; without a finding the source was not asked, and `words` says why."""

    kept: RecordedFailure
    finding: Finding | None
    words: str = ""

    @property
    def can_be_replayed(self) -> bool:
        """Whether nothing forbids it; of what is decided the sink is asked, and not the source."""
        return self.kept.row.is_decided or isinstance(self.finding, Held | Gone)

    @property
    def lost(self) -> int:
        """How many of its records the source does not hold any more."""
        return self.finding.until_offset - self.kept.row.from_offset if isinstance(self.finding, Gone) else 0

    def rendered(self) -> ShownRange:
        """Return it as the status has it."""
        row = self.kept.row
        records = row.offset_count if counts_records(row.until_offset) else None
        return ShownRange(id=self.kept.identifier, records=records, status=str(row.status), found=self._told())

    def _told(self) -> str:
        if self.kept.row.is_decided:
            return ASKED_FIRST
        match self.finding:
            case None:
                return one_line(self.words, 300)
            case Held():
                return "held"
            case Gone():
                return f"{self.lost} records are gone and would be recorded as lost"
            case OfAnother(words=words):
                return one_line(words, 300)
            case _:
                assert_never(self.finding)


def told_of(shown: Sequence[Shown]) -> str:
    """Return what a dry run says in one sentence."""
    if not shown:
        return NOTHING_ASKED
    ready = [it for it in shown if it.can_be_replayed]
    records, lost = sum(it.kept.row.offset_count for it in ready), sum(it.lost for it in ready)
    gone = f", and {lost} that the source no longer holds" if lost else ""
    amount = f"{records - lost} records{gone}"
    if any(not counts_records(it.kept.row.until_offset) for it in ready):
        amount = "how many records they have is known once they are read"
    unseen = sum(it.words == NOT_LOOKED_AT for it in shown)
    rest = f" {unseen} of the others were not looked at within a minute." if unseen else ""
    return (
        f"{len(ready)} of {len(shown)} ranges can be replayed: {amount}.{rest} Nothing was changed; "
        "create a StreamReplay without dryRun to replay them."
    )


@dataclass(frozen=True)
class ShownLetter:
    """What a dry run has found of one dead letter; `refusal` says why it stays."""

    letter: RecordedLetter
    refusal: str | None

    @property
    def can_be_replayed(self) -> bool:
        """Whether nothing forbids it."""
        return self.refusal is None

    def rendered(self) -> ShownRange:
        """Return it as the status has it."""
        found = "its bytes are kept" if self.refusal is None else one_line(self.refusal, 300)
        return ShownRange(id=self.letter.identifier, records=1, status=str(self.letter.status), found=found)


def told_of_letters(shown: Sequence[ShownLetter], only_first: int | None = None) -> str:
    """Return what a dry run says of dead letters in one sentence; `only_first` is how many it looked at, None for all."""
    more = "" if only_first is None else f" Only the first {only_first} of the stream's dead letters were looked at."
    if not shown:
        return f"No dead letter that was asked for is to be replayed.{more}"
    ready = sum(it.can_be_replayed for it in shown)
    return (
        f"{ready} of {len(shown)} dead letters can be replayed.{more} Nothing was changed; create a StreamReplay without "
        "dryRun to replay them."
    )


NOTHING_ASKED = "Nothing that was asked for is in quarantine."
NOTHING_BETWEEN = "No record lies between these two moments."
