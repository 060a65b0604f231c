"""Which positions of a source belong to a moment: resolved once, by whoever asks, as the start of a new stream is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from exactlyonce.api.source import Source
from exactlyonce.positions.ranges import PARTITION_END, OffsetRange, Partition, Positions, Ranges
from exactlyonce.source.port import Source as OpenSource
from exactlyonce.source.port import SourceView

Open = Callable[[Source], OpenSource]
"""Opens a source with the login of the stream."""


def started_at(source: Source, start: Mapping[str, str]) -> Source:
    """Return the source with another start."""
    document = source.to_document()
    name = next(name for name in document if name != "format")
    return Source.model_validate({**document, name: {**document[name], "start": dict(start)}})


def position_of(key: Partition, landed: int, found: Positions, view: SourceView) -> int:
    """Return where one partition is to stand.

    One that is not in `found` follows on another that is to be read before it, so all of it is to be read. What has been read
    to its end, or could be passed over to its end, stays where it is: what follows on it may have been read.
    """
    if landed == PARTITION_END or key not in view.bounds:
        return landed
    at = found.get(key, 0)
    return landed if at == PARTITION_END else at


def ranges_between(
    begin: datetime, until: datetime, landed: Positions | None, source: Source, open_source: Open
) -> Ranges:
    """Return what lies between two moments in each partition, as far as the stream has come, or to where the source ends now.

    Raises:
        ExactlyOnceError: if the source cannot be asked.
    """
    return found_between(begin, until, landed, source, open_source).ranges


@dataclass(frozen=True)
class FoundBetween:
    """Ranges, and the ids that the topics had in which they were looked up, as far as a source tells them."""

    ranges: Ranges
    origin_ids: Mapping[str, str]

    @property
    def spans(self) -> Mapping[tuple[Partition, OffsetRange], str]:
        """Each range with the id of its topic, empty where that is not known."""
        return {(key, span): self.origin_ids.get(key.origin, "") for key, span in self.ranges.items()}


def found_between(
    begin: datetime, until: datetime, landed: Positions | None, source: Source, open_source: Open
) -> FoundBetween:
    """Return the same, and where the source says how far it goes the ids that its topics had before that was looked up.

    Raises:
        ExactlyOnceError: if the source cannot be asked.
    """
    origin_ids: Mapping[str, str] = {}
    if landed is None:
        view = open_source(source).view()
        landed, origin_ids = view.latest, view.origin_ids
    ends = [_positions_at(moment, landed, source, open_source) for moment in (begin, until)]
    spans = {key: (min(ends[0][key], at), min(ends[1][key], at)) for key, at in landed.items()}
    ranges = Ranges({key: OffsetRange(start, end) for key, (start, end) in spans.items() if start < end})
    return FoundBetween(ranges, origin_ids)


def _positions_at(moment: datetime, landed: Positions, source: Source, open_source: Open) -> Positions:
    opened = open_source(started_at(source, {"from": "Timestamp", "timestamp": moment.isoformat()}))
    view = opened.view(frozenset(landed))
    found = opened.start(view)
    return Positions({key: position_of(key, at, found, view) for key, at in landed.items()})
