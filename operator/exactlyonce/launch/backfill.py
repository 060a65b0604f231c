"""A backfill into another table: what it is asked for, the stream's spec with that table, and its parts as the source has them.

Whoever decides on a backfill and the process that runs it take these from here, so that both mean the same one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import ValidationError

from exactlyonce.api.format import OnMalformed
from exactlyonce.api.resource import sentences_of
from exactlyonce.api.spec import StreamSpec
from exactlyonce.bounded_text import one_line
from exactlyonce.connectors.specs import TakesBackfills, TakesReplays
from exactlyonce.errors import Refused
from exactlyonce.ledger.backfills import OF_NO_BATCH, Backfill, definition_of
from exactlyonce.ledger.given_ranges import in_rounds
from exactlyonce.ledger.other_tables import OtherTable
from exactlyonce.ledger.planned_backfills import known_backfill, plan_backfill
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.fingerprint import is_other_origin
from exactlyonce.positions.named_spans import NamedSpan
from exactlyonce.positions.ranges import OffsetRange, Partition, Ranges
from exactlyonce.source.port import Source, SourceView

Span = tuple[Partition, OffsetRange]


class BackfillRefused(Refused):
    """A backfill cannot be done as it is asked for."""


@dataclass(frozen=True)
class BackfillOrder:
    """A backfill by its name: the table that it lands into, and what it was asked for and makes its rows, as text."""

    name: str
    table: str
    definition: str


def rows_of(spec: StreamSpec) -> str:
    """Return a mark of what makes the rows of a backfill of a stream, and writes them: another one means other rows.

    Of a transform in Python it has the name: its code is a part of the image.
    """
    document = spec.differences()
    form, sink = spec.source.format.to_document(), document["sink"][spec.sink.connector]
    made = {
        "transform": document.get("transform"),
        "format": {name: it for name, it in form.items() if name != "onMalformed"},
        "sparkConf": {name: it for name, it in document.get("sparkConf", {}).items() if name.startswith("spark.sql.")},
        "sink": {name: sink.get(name) for name in ("write", "keys", "version", "merge")},
    }
    return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:32]


def order_of(name: str, table: str, asked: Iterable[Span], rows: str) -> BackfillOrder:
    """Return the order of a backfill of these ranges; `rows` as of `rows_of`. Performs no I/O."""
    positions = sorted([key.origin, str(key.key), span.from_offset, span.until_offset] for key, span in asked)
    return BackfillOrder(name, table, definition_of(json.dumps({"into": table, "positions": positions}), rows))


def order_between(name: str, table: str, begin: datetime, until: datetime, rows: str) -> BackfillOrder:
    """Return the order of a backfill of what lies between two moments; `rows` as of `rows_of`. Performs no I/O."""
    moments = [it.astimezone(UTC).isoformat() for it in (begin, until)]
    return BackfillOrder(name, table, definition_of(json.dumps({"into": table, "between": moments}), rows))


def order_of_named(name: str, table: str, asked: Iterable[NamedSpan], rows: str) -> BackfillOrder:
    """Return the order of a backfill of ranges whose positions are texts; `rows` as of `rows_of`. Performs no I/O."""
    named = [[span.origin, span.partition, span.begin, span.end] for span in sorted(asked)]
    return BackfillOrder(name, table, definition_of(json.dumps({"into": table, "named": named}), rows))


def require_past(until: datetime, now: datetime) -> None:
    """Require that what lies before a moment can be looked up once and for all. Performs no I/O.

    Raises:
        BackfillRefused: if the moment is yet to come.
    """
    if until > now:
        raise BackfillRefused(
            f"The backfill is of records until {until.astimezone(UTC).isoformat()}, which is yet to come: its ranges are "
            "looked up once, and records that arrive later would be missing. Name a moment that has passed"
        )


def into_table(spec: StreamSpec, table: str) -> StreamSpec:
    """Return the spec of a stream with another table of the same database. Performs no I/O.

    A malformed record fails by itself there: dead letters are the stream's, which has them of its own table.

    Raises:
        BackfillRefused: if the sink has no other table, it is the stream's own, or the text names no table.
    """
    sink = spec.sink.spec
    if not isinstance(sink, TakesBackfills):
        raise BackfillRefused(
            f"spec.sink.{spec.sink.connector} takes no backfill into another table: only a table in the database of the ledger "
            "does, since the record of what has landed is in the transaction of the rows"
        )
    try:
        other = sink.into(table)
    except ValidationError as problem:
        sentences = one_line(" ".join(sentences_of(problem)), 300)
        raise BackfillRefused(f"{table!r:.80} is not a table to backfill into: {sentences}") from None
    if other.landing_place == sink.landing_place:
        raise BackfillRefused(
            f"{table} is the table of the stream itself, where a backfill would land its records twice. Name another table; "
            "to land there what a reset has skipped, or what has failed, replay it without naming a table"
        )
    form = spec.source.format.model_copy(update={"on_malformed": OnMalformed.FAIL})
    return spec.model_copy(
        update={
            "sink": spec.sink.model_copy(update={spec.sink.connector: other}),
            "source": spec.source.model_copy(update={"format": form}),
        }
    )


def landing_place_of(spec: StreamSpec) -> str:
    """Return what rows land into by a spec that takes replays. Performs no I/O."""
    assert isinstance(spec.sink.spec, TakesReplays), "others were refused"
    return spec.sink.spec.landing_place


def parts_of(
    source: Source, spans: Iterable[Span], may_ask: Callable[[], bool] = lambda: True
) -> tuple[FailureRow, ...]:
    """Return ranges as a backfill records them: with what tells later that the source still holds these very records.

    The source is asked once for one range of each partition, and no more once `may_ask` says no.

    Raises:
        RangesOverlap: if two of them hold the same record.
        BackfillRefused: if the source does not hold all of them, or there was no time to ask about all.
        SourceUnreachable, SourceRefused, OriginMissing: by situation.
    """
    parts: list[FailureRow] = []
    rounds = in_rounds(spans)
    for number, given in enumerate(rounds):
        if not may_ask():
            raise BackfillRefused(
                f"The source answers too slowly: it was asked about {number} of the {len(rounds)} ranges of a partition in "
                "time. Give fewer ranges of each partition in one backfill, or longer ones"
            )
        last = {key: span.until_offset - 1 for key, span in given.items()}
        view = source.view(frozenset(given), last)
        problems = list(_outside(given, view))
        if problems:
            raise BackfillRefused("; ".join(problems[:5]))
        parts += [
            FailureRow(
                OF_NO_BATCH,
                key,
                span.from_offset,
                span.until_offset,
                FailureStatus.QUARANTINED,
                source.address,
                "",
                origin_id=view.origin_ids.get(key.origin, ""),
                fingerprint=view.records.get(key),
            )
            for key, span in given.items()
        ]
    return tuple(sorted(parts, key=lambda row: (row.partition, row.from_offset)))


def _outside(given: Ranges, view: SourceView) -> Iterator[str]:
    for key, span in given.items():
        bounds = view.bounds.get(key)
        if bounds is None:
            yield f"{key} is not a partition that the source has now; name one that it has"
        elif span.from_offset < bounds.earliest:
            yield f"{key} {span} begins before {bounds.earliest}, the first record that the source holds; begin there"
        elif span.until_offset > bounds.latest:
            yield f"{key} {span} ends behind {bounds.latest}, where the source ends now; end there"


def require_origins(parts: Iterable[FailureRow], origin_ids: Mapping[str, str]) -> None:
    """Require that parts are of the topics in which their positions were looked up. Performs no I/O.

    Raises:
        BackfillRefused: naming one that is another by now; where an id is not known, nothing is compared.
    """
    for part in parts:
        if is_other_origin(origin_ids.get(part.partition.origin, ""), part.origin_id):
            raise BackfillRefused(
                f"{part.partition.origin} was deleted and created again since the ranges of the backfill were looked up, so "
                "their positions are those of other records. Nothing was landed; look at what it holds now, and ask again"
            )


def planned(
    ledger: Ledger,
    source: Source,
    stream_id: str,
    order: BackfillOrder,
    table: OtherTable,
    given: Mapping[Span, str],
) -> Backfill:
    """Return a backfill as it is recorded, and record it where it is not yet; what is recorded is never looked up again.

    `given` has for each range the id of the topic in which it was looked up, empty where that is not known.

    Raises:
        BackfillDiffers, BackfillRefused, RangesOverlap, IntoTakenTable, IntoOwnTable, NothingToReplayInto: with a sentence.
        CommitOutcomeUnknown: if the outcome stayed unknown; the next one finds it.
    """
    found = known_backfill(ledger, stream_id, order.name, order.definition)
    if found is not None:
        return found
    if not given:
        raise BackfillRefused(
            f"There is no record for the backfill {order.name}: nothing lies between these two moments. Name others"
        )
    parts = parts_of(source, given)
    require_origins(parts, {key.origin: origin_id for (key, _), origin_id in given.items()})
    return plan_backfill(ledger, stream_id, Backfill(order.name, table.into, order.definition, parts), table.own)
