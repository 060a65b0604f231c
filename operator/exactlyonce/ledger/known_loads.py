"""Which loads of a sink of two phases the ledger knows: those of the latest decided batch with rows. Performs no I/O.

They are in the stream's own row, so that neither retention nor a batch without rows, such as an empty seed, changes them. What
the sink has committed last is compared with them by label: a ledger that went back does not name it (docs/adr/0060).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from exactlyonce.bounded_json import parse_json
from exactlyonce.bounded_text import some_of
from exactlyonce.json_values import count, items, optional, text
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition, Positions, Ranges, key_of, offset_text

MOST_TOLD = 20
"""So many ranges are named in a sentence; the ledger has all of them."""

Span = tuple[Partition, OffsetRange]
"""Records of one partition. Several may be of the same one, where a load leaves out records between them. An empty one says
where the stream was in a partition of which its batch had no record."""


@dataclass(frozen=True, slots=True)
class LatestLoads:
    """The loads of the latest decided batch with rows, by their labels, and where they are decided to be committed.

    `before` is the label that the sink showed as its latest when the batch was decided: it still does where the loads never
    were committed. It is None where the sink showed none.
    """

    batch: BatchNumber
    labels: tuple[str, ...]
    before: str | None = None
    place: str = ""

    @property
    def label(self) -> str | None:
        """A label of the stream, of whatever life it was written in."""
        return next(iter(self.labels), self.before)

    def names(self, found: FoundLoad, place: str) -> bool:
        """Whether the ledger knows a load that the sink at a place has committed last.

        Where the stream wrote to another place meanwhile, the latest load there is not kept; it is of an earlier batch.
        """
        if found.label in self.labels or found.label == self.before:
            return True
        return place != self.place and found.batch < self.batch

    def replaced(self, before: Collection[str], after: Collection[str]) -> LatestLoads:
        """Return what is known once the record of the decided batch names other loads.

        Where it names new ones, those that it names no more were aborted, for good. Else they are known to be committed.
        """
        new = [label for label in after if label not in before]
        gone = {label for label in before if label not in after} if new else set[str]()
        labels = dict.fromkeys(label for label in (*self.labels, *new) if label not in gone)
        return replace(self, labels=tuple(labels))


@dataclass(frozen=True, slots=True)
class FoundLoad:
    """A load that the sink has committed and the ledger does not know, as the sink describes it.

    `spans` are the records whose rows it holds; None where the sink keeps only their `digest`. An empty `label` says that no
    load was found: something else knows more than the ledger, which had `batch` landed, and the sink has yet to be asked.
    """

    label: str
    batch: BatchNumber
    rows: int = 0
    spans: tuple[Span, ...] | None = None
    digest: str = ""
    place: str = ""

    @property
    def name(self) -> str:
        """How a request names it, so that a request that was made without knowing of it has no effect on it."""
        return self.label or f"behind-{self.batch}"

    @property
    def ends(self) -> Positions:
        """Where the stream was after its batch, in each partition."""
        ends: dict[Partition, int] = {}
        for key, offsets in self.spans or ():
            ends[key] = max(ends.get(key, 0), offsets.until_offset)
        return Positions(ends)

    def planned_as(self, ranges: Ranges) -> FoundLoad:
        """Return the load with its records, where it is of exactly these ranges."""
        spans = tuple(ranges.items())
        return replace(self, spans=spans) if self.spans is None and digest_of(spans) == self.digest else self

    def missing(self, positions: Positions) -> tuple[Span, ...]:
        """Return what a stream at these positions would pass over without its rows, if it continued after this load."""
        gaps: list[Span] = []
        at = dict(positions)
        for key, offsets in sorted(self.spans or (), key=_in_order):
            stands = at.get(key, 0)
            if stands < offsets.from_offset:
                gaps.append((key, OffsetRange(stands, offsets.from_offset)))
            at[key] = max(stands, offsets.until_offset)
        return tuple(gaps)

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON's objects."""
        told: dict[str, Any] = {"label": self.label, "batch": self.batch, "rows": self.rows}
        if self.spans is not None:
            told["spans"] = spans_document(self.spans)
        return told | {name: said for name, said in (("digest", self.digest), ("place", self.place)) if said}

    @classmethod
    def from_document(cls, found: Mapping[str, Any]) -> FoundLoad:
        """Return what `to_document` made.

        Raises:
            ValueError: if it is something else.
        """
        label, digest, place = (text(found.get(name, "")) for name in ("label", "digest", "place"))
        spans = None if "spans" not in found else spans_of(found["spans"])
        return cls(label, BatchNumber(count(found["batch"])), count(found["rows"]), spans, digest, place)


@dataclass(frozen=True, slots=True)
class KnownLoads:
    """What a stream's row says of its loads: the latest that are decided, and one that the sink has and nobody decided.

    Nothing may be decided while there is a `found` one: it is settled first.
    """

    latest: LatestLoads | None = None
    found: FoundLoad | None = None

    def names(self, found: FoundLoad, place: str) -> bool:
        """Whether the ledger knows a load that the sink at a place has committed last."""
        return self.latest is not None and self.latest.names(found, place)

    def to_json(self) -> str | None:
        """Render it; None where there is nothing. Equal ones give equal texts."""
        latest, document = self.latest, dict[str, Any]()
        if latest is not None:
            document["latest"] = {
                "batch": latest.batch, "labels": list(latest.labels), "before": latest.before, "place": latest.place
            }  # fmt: skip
        if self.found is not None:
            document["found"] = self.found.to_document()
        return json.dumps(document, sort_keys=True) if document else None

    @classmethod
    def from_json(cls, content: str | None) -> KnownLoads:
        """Parse what `to_json` renders.

        Raises:
            ValueError: if it is anything else.
        """
        if content is None:
            return cls()
        try:
            document = parse_json(content)
            latest, found = document.get("latest"), document.get("found")
            return cls(
                None if latest is None else _latest_from(latest),
                None if found is None else FoundLoad.from_document(found),
            )
        except (AttributeError, KeyError, TypeError) as problem:
            raise ValueError("JSON that does not say which loads are known") from problem


NO_LOADS = KnownLoads()


def spans_without(ranges: Ranges, left_out: Iterable[Span]) -> tuple[Span, ...]:
    """Return what is left of ranges, in order, where records are left out: an empty span of one that is left out as a whole."""
    spans = list(ranges.items())
    for key, gone in left_out:
        spans = [(at, part) for at, span in spans for part in (_around(span, gone) if at == key else (span,))]
    return tuple(spans)


def spans_document(spans: Iterable[Span]) -> dict[str, dict[str, list[list[int]]]]:
    """Return records as JSON's objects: `{"topic": {"0": [[from, until], …]}}`."""
    document: dict[str, dict[str, list[list[int]]]] = {}
    for key, offsets in spans:
        pairs = document.setdefault(key.origin, {}).setdefault(str(key.key), [])
        pairs.append([offsets.from_offset, offsets.until_offset])
    return document


def spans_of(document: Any) -> tuple[Span, ...]:
    """Return what `spans_document` made.

    Raises:
        ValueError: if it is something else.
    """
    try:
        spans = [
            (Partition(origin, key_of(key)), OffsetRange(count(begin), count(end)))
            for origin, partitions in document.items()
            for key, pairs in partitions.items()
            for begin, end in pairs
        ]
    except (AttributeError, TypeError) as problem:
        raise ValueError("JSON that names no records") from problem
    return tuple(sorted(spans, key=_in_order))


def told_spans(spans: Iterable[Span] | None, shown: Callable[[int], str] = offset_text) -> str:
    """Return records in words; `shown` is how the source writes a position."""
    if spans is None:
        return "records that the sink does not name"
    told = [f"{key} {offsets.text(shown)}" for key, offsets in spans if offsets.record_count]
    return some_of(told, MOST_TOLD) or "no records"


def digest_of(spans: Iterable[Span]) -> str:
    """Return a digest of records, by which it can be told whether a load is of them."""
    records = sorted((span for span in spans if span[1].record_count), key=_in_order)
    told = json.dumps(spans_document(records), sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def _in_order(span: Span) -> tuple[Partition, OffsetRange]:
    return span


def _around(span: OffsetRange, gone: OffsetRange) -> tuple[OffsetRange, ...]:
    if not span.record_count:
        return (span,)
    first = (span.from_offset, min(span.until_offset, max(span.from_offset, gone.from_offset)))
    last = (max(span.from_offset, min(span.until_offset, gone.until_offset)), span.until_offset)
    left = tuple(OffsetRange(begin, end) for begin, end in (first, last) if begin < end)
    return left or (OffsetRange(span.from_offset, span.from_offset),)


def _latest_from(found: Mapping[str, Any]) -> LatestLoads:
    labels = tuple(text(label) for label in items(found["labels"]))
    return LatestLoads(
        BatchNumber(count(found["batch"])), labels, optional(text, found["before"]), text(found["place"])
    )
