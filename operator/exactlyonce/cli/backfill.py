"""`exactlyonce replay --from ranges --into TABLE`: a backfill by a process of this machine; without --yes, only shown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import click

from exactlyonce.api.source import Source
from exactlyonce.bounded_text import one_line
from exactlyonce.cli.commands import ExtraMissing
from exactlyonce.cli.given_ranges import Moments, given_ranges, named_spans
from exactlyonce.cli.local_replay import document_of, run_document, tell
from exactlyonce.cli.local_stream import LocalStream
from exactlyonce.launch.asked_ranges import AskedRange
from exactlyonce.launch.backfill import (
    BackfillOrder,
    Span,
    into_table,
    landing_place_of,
    order_between,
    order_of,
    order_of_named,
    parts_of,
    planned,
    require_origins,
    require_past,
    rows_of,
)
from exactlyonce.launch.chosen_ranges import looked_up_by_process
from exactlyonce.ledger.given_ranges import in_rounds
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.other_tables import OtherTable, require_other_table
from exactlyonce.ledger.planned_backfills import known_backfill
from exactlyonce.ledger.rows import FailureRow, FailureStatus, counts_records
from exactlyonce.positions.ranges import OffsetRange
from exactlyonce.reconcile.between_times import Open, found_between

LANDED, LOST = (FailureStatus.REPLAYED,), (FailureStatus.LOST,)
"""What parts of a backfill are once nothing is left of them."""


@dataclass(frozen=True)
class AskedBackfill:
    """What a person has asked for: the table, the name, and either texts of ranges or two moments in UTC."""

    table: str
    name: str
    texts: tuple[str, ...]
    moments: Moments | None


@dataclass(frozen=True)
class ReplayLimits:
    """How many records one transaction lands, and how many are read per second, at most."""

    chunk: int
    records_per_second: float | None


def run_backfill(
    opened: LocalStream,
    secrets: Path,
    asked: AskedBackfill,
    open_source: Open,
    pace: ReplayLimits,
    *,
    yes: bool,
    how: str,
) -> int:
    """Show what is left of a backfill, and with `yes` land it; return the exit status: 0 where nothing is left then.

    `how` is what a person gives to have it landed.

    Raises:
        BackfillRefused, BackfillDiffers, IntoTakenTable, IntoOwnTable, RangesUnreadable, RangesOverlap: with a sentence.
        LaunchFailed: if the process cannot be started.
    """
    stream, ledger = opened.stream, opened.ledger
    table = OtherTable(landing_place_of(into_table(stream.spec, asked.table)), landing_place_of(stream.spec))
    with ledger.transaction() as transaction:
        require_other_table(transaction, stream.stream_id, table)
    order = _order(asked, rows_of(stream.spec))
    known = known_backfill(ledger, stream.stream_id, order.name, order.definition)
    if known is None and looked_up_by_process(stream.spec.source):
        return _run_looked_up_later(opened, secrets, asked, order, pace, yes=yes, how=how)
    spans = {} if known is not None else _spans(asked, stream.spec.source, open_source)
    if known is not None:
        parts: Sequence[FailureRow] = known.parts
    elif yes:
        parts = planned(ledger, open_source(stream.spec.source), stream.stream_id, order, table, spans).parts
    else:
        parts = parts_of(open_source(stream.spec.source), spans)
        require_origins(parts, {key.origin: origin_id for (key, _), origin_id in spans.items()})
    left = _show(order, parts, stream.spec.source.spec.position_text)
    if not left or not yes:
        if left:
            click.echo(f"Nothing was changed; {how} lands them.")
        return 0 if not records_of(parts, LOST) else 1
    return _land(opened, secrets, order, pace, spans)


def _run_looked_up_later(
    opened: LocalStream,
    secrets: Path,
    asked: AskedBackfill,
    order: BackfillOrder,
    pace: ReplayLimits,
    *,
    yes: bool,
    how: str,
) -> int:
    """Land a backfill of which only its own process can tell what it is of."""
    if asked.moments is not None:
        require_past(asked.moments[1].replace(tzinfo=UTC), datetime.now(UTC))
    if not yes:
        what = "in these ranges" if asked.moments is None else "between these two moments"
        click.echo(
            f"What lies {what} is looked up by the process that lands it. Of the backfill "
            f"{order.name} into {order.table}, nothing is recorded yet. Nothing was changed; {how} lands it."
        )
        return 0
    return _land(opened, secrets, order, pace, {})


def _land(
    opened: LocalStream, secrets: Path, order: BackfillOrder, pace: ReplayLimits, spans: Mapping[Span, str]
) -> int:
    if find_spec("pyspark") is None:
        raise ExtraMissing.of("pyspark")
    document = document_of(opened, (), most_records=pace.chunk, records_per_second=pace.records_per_second)
    carried = tuple(AskedRange.given(*span, origin_id) for span, origin_id in spans.items())
    report = run_document(opened, secrets, replace(document, take_up=carried, backfill=order))
    tell(report)
    return 0 if report.problem is None and not report.told else 1


def _order(asked: AskedBackfill, rows: str) -> BackfillOrder:
    named = named_spans(asked.texts)
    if named:
        return order_of_named(asked.name, asked.table, named, rows)
    if asked.moments is None:
        return order_of(asked.name, asked.table, _given(asked.texts), rows)
    begin, until = (it.replace(tzinfo=UTC) for it in asked.moments)
    return order_between(asked.name, asked.table, begin, until, rows)


def _given(texts: Sequence[str]) -> list[Span]:
    return [span for text in texts for span in given_ranges(text).items()]


def _spans(asked: AskedBackfill, source: Source, open_source: Open) -> Mapping[Span, str]:
    """Return the ranges, each with the id of the topic in which it was looked up; of what a person gives nobody knows that."""
    if asked.moments is None:
        in_rounds(spans := _given(asked.texts))  # of two that are the same nothing would be left here to tell
        return dict.fromkeys(spans, "")
    begin, until = (it.replace(tzinfo=UTC) for it in asked.moments)
    require_past(until, datetime.now(UTC))
    return found_between(begin, until, None, source, open_source).spans


def records_of(parts: Sequence[FailureRow], statuses: Collection[FailureStatus]) -> int:
    """Return how many records the parts with one of the statuses hold."""
    return sum(row.offset_count for row in parts if row.status in statuses)


def _show(order: BackfillOrder, parts: Sequence[FailureRow], position: Callable[[int], str]) -> int:
    """Print how far a backfill is, and return how many records, or ranges, are left."""
    landed, left, lost = (records_of(parts, statuses) for statuses in (LANDED, HELD, LOST))
    for row in parts:
        if row.status in HELD:
            again = f", which failed: {one_line(row.error)}" if row.error else ""
            click.echo(f"{row.partition} {OffsetRange(row.from_offset, row.until_offset).text(position)}{again}")
    gone = f", and {lost} are lost" if lost else ""
    what = "records" if all(counts_records(row.until_offset) for row in parts) else "ranges"
    click.echo(f"Of the backfill {order.name} into {order.table}, {landed} {what} have landed, {left} are left{gone}.")
    return left
