"""What a person asks a replay for, by the options of the command or by a StreamReplay in a file. Performs no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from exactlyonce.api.replayed_ranges import GivenRange, NamedRange
from exactlyonce.api.stream_replay import DEFAULT_CHUNK, AskedLetters, FailedRanges, StreamReplay
from exactlyonce.cli.given_ranges import Moments

FAILURES, DEAD_LETTERS, RANGES = "failures", "dead-letters", "ranges"


@dataclass(frozen=True)
class AskedReplay:
    """What was asked for; moments are in UTC, and `transform` is a file that was given by an option."""

    kind: str
    identifiers: tuple[str, ...] = ()
    between: Moments | None = None
    matching: str | None = None
    given: tuple[str, ...] = ()
    by_timestamp: Moments | None = None
    into: str | None = None
    backfill: str | None = None
    transform: Path | None = None
    limit: float | None = None
    chunk: int = DEFAULT_CHUNK

    @classmethod
    def of_resource(cls, replay: StreamReplay) -> AskedReplay:
        """Return what a StreamReplay asks for, but for its transform and `dryRun`."""
        spec, origin = replay.spec, replay.spec.from_
        table, name = (None, None) if spec.into is None else (spec.into.table, spec.into.backfill)
        ranges = origin.ranges
        chosen: FailedRanges | AskedLetters | None = origin.failures or origin.dead_letters
        between = None if ranges is None else ranges.by_timestamp
        return cls(
            RANGES if ranges is not None else DEAD_LETTERS if origin.dead_letters is not None else FAILURES,
            identifiers=() if chosen is None else chosen.ids,
            between=None if chosen is None else _between(chosen),
            matching=None if chosen is None else chosen.error_matching,
            given=()
            if ranges is None
            else (*map(_text, ranges.positions or ()), *map(_named_text, ranges.named or ())),
            by_timestamp=None if between is None else (_in_utc(between.from_), _in_utc(between.until)),
            into=table,
            backfill=name,
            limit=spec.limit,
            chunk=spec.chunk,
        )


def _between(chosen: FailedRanges | AskedLetters) -> Moments | None:
    if chosen.from_ is None and chosen.until is None:
        return None
    begin = datetime.min if chosen.from_ is None else _in_utc(chosen.from_)
    return begin, datetime.max if chosen.until is None else _in_utc(chosen.until)


def _in_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None)


def _named_text(given: NamedRange) -> str:
    return json.dumps({given.origin: {given.partition: [given.from_, given.until]}})


def _text(span: GivenRange) -> str:
    ranges: Mapping[str, Mapping[str, tuple[int, int]]] = {span.topic: {str(span.partition): (span.from_, span.until)}}
    return json.dumps(ranges)
