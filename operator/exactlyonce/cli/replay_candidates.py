"""The ranges that `exactlyonce replay` would land, as a table; and why others stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_never

import click

from exactlyonce.api.resource import Stream
from exactlyonce.bounded_text import one_line
from exactlyonce.cli.asked_ledger import AskedLedger
from exactlyonce.cli.consoles import print_table
from exactlyonce.cli.failures import find_failures
from exactlyonce.cli.local_stream import LocalStream
from exactlyonce.errors import OriginMissing
from exactlyonce.launch.replay_source import facts_of
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.history import RecordedFailure
from exactlyonce.ledger.replay_decisions import ASKED_FIRST
from exactlyonce.ledger.replay_rules import Finding, Gone, Held, OfAnother, RangeKey, finding_of, why_not
from exactlyonce.ledger.rows import FailureStatus
from exactlyonce.reconcile.replay_choice import one_of_each_partition
from exactlyonce.source.connector import SourceCheck

_MOST_RANGES = 100_000
_COLUMNS = ("id", "topic", "partition", "from", "until", "records", "status", "since", "source")


@dataclass(frozen=True)
class Candidate:
    """A range that was asked for; `refusal` says why it cannot be replayed, and `lost` how many records the source has not."""

    kept: RecordedFailure
    refusal: str | None = None
    lost: int = 0

    @property
    def words(self) -> str:
        """What the source and the ledger say of it, in a few words."""
        if self.kept.row.is_decided:
            return ASKED_FIRST
        if self.refusal is not None:
            return self.refusal
        return "held" if not self.lost else f"{self.lost} records are gone and would be recorded as lost"


def chosen(
    opened: LocalStream,
    identifiers: Sequence[str],
    between: tuple[datetime, datetime] | None,
    matching: str | None,
) -> list[RecordedFailure]:
    """Return the ranges that are asked for, earliest first; those that are named by their ids whatever their status is.

    Raises:
        UnknownFailure: if there is no range with an id.
    """
    if identifiers:
        found = find_failures(AskedLedger(opened.stream, opened.ledger), identifiers)
    else:
        found = list(opened.ledger.kept_failures(opened.stream.stream_id, HELD, None, _MOST_RANGES))
    if between is not None:
        begin, end = (moment.replace(tzinfo=UTC) for moment in between)
        found = [kept for kept in found if begin <= kept.changed_at < end]
    if matching is not None:
        found = [kept for kept in found if matching.casefold() in kept.row.error.casefold()]
    return sorted(found, key=lambda kept: RangeKey.of(kept.row))


def examined(opened: LocalStream, source: SourceCheck, found: Sequence[RecordedFailure]) -> list[Candidate]:
    """Return what ledger and source say of each range, in the order given."""
    view = opened.ledger.view(opened.stream.stream_id)
    life = "" if view is None else view.stream.life
    # Of what is decided the sink is asked, so it does not matter any more what the source holds.
    refused = {kept.identifier: None if kept.row.is_decided else why_not(kept.row, life) for kept in found}
    asked = [kept for kept in found if refused[kept.identifier] is None and not kept.row.is_decided]
    told = {kept.identifier: Candidate(kept, refused[kept.identifier]) for kept in found}
    for kept_of_round in one_of_each_partition(asked):
        told |= {it.kept.identifier: it for it in _examined(source, kept_of_round)}
    return list(told.values())


def _examined(source: SourceCheck, asked: Sequence[RecordedFailure]) -> Iterator[Candidate]:
    try:
        facts = facts_of(source, [kept.row for kept in asked])
    except OriginMissing as problem:
        if len(asked) == 1:
            yield Candidate(asked[0], str(problem))
        else:
            for kept in asked:
                yield from _examined(source, [kept])
        return
    for kept in asked:
        yield _candidate(kept, finding_of(kept.row, facts))


def _candidate(kept: RecordedFailure, finding: Finding) -> Candidate:
    match finding:
        case Held():
            return Candidate(kept)
        case Gone(until_offset=until):
            return Candidate(kept, lost=until - kept.row.from_offset)
        case OfAnother(words=words):
            return Candidate(kept, words)
        case _:
            assert_never(finding)


def show_ranges(stream: Stream, candidates: Sequence[Candidate]) -> None:
    """Print what was asked for as a table, and how much of it can be replayed."""
    if not candidates:
        click.echo(f"No range of {stream.stream_id} that was asked for is in quarantine.")
        return
    rows, source = [], stream.spec.source.spec
    counts = source.positions_count_records
    for candidate in candidates:
        row = candidate.kept.row
        since = candidate.kept.changed_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
        told = (
            *(candidate.kept.identifier, row.partition.origin, row.partition.key),
            *(source.position_text(row.from_offset), source.position_text(row.until_offset)),
            *(row.offset_count if counts else "?", row.status, since, one_line(candidate.words, 300)),
        )
        rows.append(dict(zip(_COLUMNS, told, strict=True)))
    print_table(_COLUMNS, rows, folded="source")
    ready = [candidate for candidate in candidates if candidate.refusal is None]
    records, lost = sum(it.kept.row.offset_count for it in ready), sum(it.lost for it in ready)
    decided = sum(it.kept.row.is_decided for it in ready)
    taken = sum(it.kept.row.status is FailureStatus.REPLAYING for it in ready) - decided
    amount = f"{records - lost} records" if counts else "how many records they have is known once they are read"
    click.echo(
        f"{len(ready)} of {len(candidates)} ranges can be replayed: {amount}"
        + (f", and {lost} that the source no longer holds" if lost else "")
        + (f"; {taken} of them were taken by another replay, which then lands no more of them" if taken else "")
        + (
            f"; {decided} of them were decided by another replay, and the sink is asked first about these"
            if decided
            else ""
        )
        + "."
    )
