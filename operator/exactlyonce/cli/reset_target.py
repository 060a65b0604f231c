"""Where `exactlyonce offsets reset --to …` sets each partition: resolved once, against what the source holds now."""

from __future__ import annotations

from datetime import datetime

from exactlyonce.api.source import Source
from exactlyonce.bounded_text import some_of
from exactlyonce.errors import Refused
from exactlyonce.positions.ranges import PARTITION_END, Positions
from exactlyonce.reconcile.between_times import Open, position_of, started_at
from exactlyonce.schema.model import field_name
from exactlyonce.source.port import Source as OpenSource
from exactlyonce.source.port import SourceView

EARLIEST, LATEST, LANDED, TIMESTAMP = "earliest", "latest", "landed", "timestamp="
_FORMS = (
    f"{EARLIEST}, {LATEST}, {LANDED}, {TIMESTAMP}2026-01-31T12:00:00Z, or positions as JSON, such as "
    '\'{"orders":{"0":120}}\''
)


class TargetInvalid(Refused):
    """What is given with --to names no positions of this stream."""


def resolved(to: str, landed: Positions, source: Source, open_source: Open) -> Positions:
    """Return where each partition that has landed is to stand; what has been read to its end stays there.

    Partitions that the source has had since are not in it: they are read from their first record as before.

    Raises:
        TargetInvalid: if `to` is none of the forms, or names a partition that has not landed.
        ExactlyOnceError: if the source cannot be asked.
    """
    if to == LANDED:
        return landed
    if to != EARLIEST and not source.spec.positions_can_be_chosen:
        raise TargetInvalid(
            f"--to {to!r:.80} cannot be used with spec.source.{field_name(source.connector)}, whose positions stand for what "
            f"has been read; write {EARLIEST} or {LANDED}."
        )
    if to.startswith("{"):
        return _given(to, landed, open_source(source))
    if to not in (EARLIEST, LATEST) and not to.startswith(TIMESTAMP):
        raise TargetInvalid(f"--to {to!r:.80} names no positions; write {_FORMS}.")
    started = source if to == EARLIEST else _starting(source, to)
    opened = open_source(started)
    view = opened.view(frozenset(landed))
    found = _earliest(landed, view, opened) if to == EARLIEST else opened.start(view)
    return Positions({key: position_of(key, at, found, view) for key, at in landed.items()})


def _earliest(landed: Positions, view: SourceView, opened: OpenSource) -> Positions:
    """Return the first record of each partition that a stream can be set to.

    Where the start of a partition is not a position of a record, the source tells whoever stands there the first one that is
    left.
    """
    stands = {key: at if at == PARTITION_END else view.earliest.get(key, at) for key, at in landed.items()}
    return view.earliest.at_least(opened.view(frozenset(landed), None, stands).earliest)


def _starting(source: Source, to: str) -> Source:
    """Return the source with another start, which is resolved as that of a new stream is."""
    start = {"from": "Latest"} if to == LATEST else {"from": "Timestamp", "timestamp": _moment(to)}
    return started_at(source, start)


def _moment(to: str) -> str:
    text = to.removeprefix(TIMESTAMP)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise TargetInvalid(f"--to {to!r:.80} has no time in it; write {TIMESTAMP}2026-01-31T12:00:00Z.") from None
    if moment.tzinfo is None:
        raise TargetInvalid(f"--to {to!r:.80} has no time zone; write {TIMESTAMP}{text[:40]}Z if it is UTC.")
    return moment.isoformat()


def _given(text: str, landed: Positions, opened: OpenSource) -> Positions:
    try:
        given = opened.codec.parse_entry(text)
    except ValueError as problem:  # as a codec says that a line of the offset log is torn
        raise TargetInvalid(f"--to has no positions of this source: {problem}; write {_FORMS}.") from None
    unknown = [str(key) for key in given if key not in landed]
    if unknown:
        raise TargetInvalid(
            f"--to names {some_of(unknown)}, of which nothing has landed; the stream has landed {some_of([*map(str, landed)])}."
        )
    return Positions({**landed, **given})
