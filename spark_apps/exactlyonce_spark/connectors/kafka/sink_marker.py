"""What a stream's latest committed transaction in Kafka was: an offset of a consumer group, committed in it. No I/O here.

The offset is in the transaction, so it is there if, and only if, the rows are. docs/adr/0048 tells what follows from one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from exactlyonce.bounded_json import parse_json
from exactlyonce.json_values import count, text
from exactlyonce.ledger.known_loads import FoundLoad, Span, digest_of, spans_document, spans_of
from exactlyonce.positions.ranges import BatchNumber

MOST_CHARACTERS = 3_500
"""Brokers take metadata of 4,096 characters by default (offset.metadata.max.bytes)."""

_MOST_COUNTED = (1 << 62) - 1
"""Of batches and rows: Spark numbers batches in 63 bits, and the next one has to have a number, too."""

_LABEL, _BATCH, _ROWS, _SPANS, _DIGEST = "label", "batch", "rows", "spans", "digest"
_OF_NO_LOAD = {_LABEL, _BATCH}


@dataclass(frozen=True, slots=True)
class Marker:
    """The label and the batch of the latest transaction with rows; both are None where none was committed yet.

    With a label and no batch it says that nothing is known of that transaction and of those before it: brokers had forgotten.
    `spans` are the records that the rows are made of; None where they do not fit in a marker, which keeps their `digest` then.
    """

    label: str | None = None
    batch: BatchNumber | None = None
    rows: int = 0
    spans: tuple[Span, ...] | None = None
    digest: str = ""

    @property
    def offset(self) -> int:
        """The offset to commit, which is of no account: it must not be negative."""
        return self.batch or 0

    @property
    def load(self) -> FoundLoad | None:
        """The load of the transaction; None where the marker names none."""
        if self.label is None or self.batch is None:
            return None
        return FoundLoad(self.label, self.batch, self.rows, self.spans, self.digest)

    def to_metadata(self) -> str:
        """Render it as the metadata of a committed offset; with a digest in place of records that are too many."""
        document: dict[str, Any] = {_LABEL: self.label, _BATCH: self.batch}
        if self.batch is None:
            return _rendered(document)
        document[_ROWS] = self.rows
        if self.spans is not None:
            whole = _rendered(document | {_SPANS: spans_document(self.spans)})
            if len(whole) <= MOST_CHARACTERS:
                return whole
        return _rendered(document | {_DIGEST: self.digest if self.spans is None else digest_of(self.spans)})

    @classmethod
    def from_metadata(cls, content: str | None) -> Marker | None:
        """Return what `to_metadata` rendered; None for anything else, which somebody else has committed or reset."""
        try:
            found = parse_json(content or "")
            return _parsed(found) if isinstance(found, dict) else None
        except ValueError:
            return None


def _parsed(found: dict[str, Any]) -> Marker | None:
    label, batch = found.get(_LABEL), found.get(_BATCH)
    if batch is None:
        is_one = found.keys() == _OF_NO_LOAD and (label is None or isinstance(label, str))
        return Marker(label) if is_one else None
    if found.keys() not in ({*_OF_NO_LOAD, _ROWS, _SPANS}, {*_OF_NO_LOAD, _ROWS, _DIGEST}):
        return None
    rows, spans = count(found[_ROWS]), spans_of(found[_SPANS]) if _SPANS in found else None
    if max(count(batch), rows) > _MOST_COUNTED:
        return None
    return Marker(text(label), BatchNumber(batch), rows, spans, text(found.get(_DIGEST, "")))


def _rendered(document: dict[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"))
