"""The ranges of `exactlyonce replay --from ranges`: as positions, or as those between two times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from exactlyonce.api.replay import Replayed
from exactlyonce.bounded_text import one_line
from exactlyonce.cli.local_stream import LocalStream
from exactlyonce.errors import Refused
from exactlyonce.ledger.given_ranges import Taken, all_of, in_rounds, look_at, take_up_all, taken_of
from exactlyonce.positions.named_spans import NamedSpan
from exactlyonce.positions.ranges import Ranges
from exactlyonce.reconcile.between_times import Open, ranges_between

Moments = tuple[datetime, datetime]
"""From one until another, without a time zone: UTC."""


def replayed_by(kind: str, by_timestamp: Moments | None, into: str | None, given: Sequence[str] = ()) -> Replayed:
    """Return what the options of `exactlyonce replay` ask for; `kind` is that of --from.

    Raises:
        RangesUnreadable: if the ranges are given as what they are not.
    """
    asked = Replayed(kind)
    if asked is not Replayed.RANGES:
        return asked
    named = bool(named_spans(given))
    return Replayed.of_ranges(between=by_timestamp is not None, into_other=into is not None, named=named)


def named_spans(given: Sequence[str]) -> tuple[NamedSpan, ...]:
    """Return the ranges of texts such as {"orders":{"shardId-000000000000":["after 495","after 497"]}}; none of other texts.

    Raises:
        RangesUnreadable: if some positions are texts and others are not.
    """
    spans: list[NamedSpan] = []
    texts = [text for text in given if '["' in "".join(text.split())]  # others have numbers, or are refused as such
    if texts and len(texts) < len(given):
        raise RangesUnreadable(_unreadable("some positions are texts and others are not"))
    for text in texts:
        try:
            found = [
                NamedSpan(origin, partition, *span)
                for origin, partitions in json.loads(text).items()
                for partition, span in partitions.items()
            ]
        except (AttributeError, TypeError):
            raise RangesUnreadable(_unreadable("it does not have two positions for each partition")) from None
        except ValueError as problem:
            raise RangesUnreadable(_unreadable(str(problem))) from None
        if not all(isinstance(it, str) for span in found for it in (span.begin, span.end)):
            raise RangesUnreadable(_unreadable("some positions are texts and others are not"))
        spans += found
    return tuple(spans)


class RangesUnreadable(Refused):
    """What was given names no ranges."""


def given_ranges(text: str) -> Ranges:
    """Return the ranges of a text such as {"orders": {"0": [100, 200]}}.

    Raises:
        RangesUnreadable: if it is something else.
    """
    try:
        given = Ranges.from_json(text)
    except ValueError as problem:
        raise RangesUnreadable(_unreadable(str(problem))) from None
    backwards = [str(key) for key, span in given.items() if span.from_offset >= span.until_offset]
    if backwards:
        raise RangesUnreadable(_unreadable(f"{', '.join(backwards)} ends where it begins, or before"))
    return given


def _unreadable(problem: str) -> str:
    return (
        f"--ranges names no ranges ({one_line(problem, 200)}); write the first position of each partition and the one behind "
        'the last, such as {"orders":{"0":[100,200]}}, or as texts where `exactlyonce offsets` shows texts.'
    )


def taken_from(opened: LocalStream, asked: Sequence[str] | Moments, open_source: Open, *, yes: bool) -> Taken:
    """Return what of the ranges asked for may be landed; with `yes` it is in quarantine then, before anything else is done.

    What lies between two moments and has landed long ago goes without a word.

    Raises:
        RangesUnreadable, RangesOverlap: if what was asked for names no ranges, or one record twice.
        TooMuchInQuarantine, NothingToReplayInto: as `take_up`.
    """
    ledger, stream = opened.ledger, opened.stream
    standing = look_at(ledger, stream.stream_id)
    texts = [it for it in asked if isinstance(it, str)]
    if texts:
        rounds = in_rounds(span for text in texts for span in given_ranges(text).items())
    else:
        begin, until = (it.replace(tzinfo=UTC) for it in asked if isinstance(it, datetime))
        rounds = (ranges_between(begin, until, standing.positions, stream.spec.source, open_source),)
    recovery = stream.spec.recovery
    most = recovery.max_quarantined if recovery.on_poison_batch.continues else None
    found = (
        take_up_all(ledger, stream.stream_id, rounds, most)
        if yes
        else all_of([taken_of(standing, given) for given in rounds])
    )
    return found if texts else replace(found, refused=())
