"""What a stream's latest committed transaction in Kafka was: an offset of a consumer group, committed in it. No I/O here.

The offset is in the transaction, so it is there if, and only if, the rows are. docs/adr/0048 tells what follows from one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from exactlyonce.bounded_json import parse_json
from exactlyonce.positions.ranges import BatchNumber

_LABEL, _BATCH = "label", "batch"


@dataclass(frozen=True, slots=True)
class Marker:
    """The label and the batch of the latest transaction with rows; both are None where none was committed yet.

    With a label and no batch it says that nothing is known of that transaction and of those before it: brokers had forgotten.
    """

    label: str | None = None
    batch: BatchNumber | None = None

    @property
    def offset(self) -> int:
        """The offset to commit, which is of no account: it must not be negative."""
        return self.batch or 0

    def to_metadata(self) -> str:
        """Render it as the metadata of a committed offset, far below the 4,096 bytes that brokers take by default."""
        return json.dumps({_LABEL: self.label, _BATCH: self.batch}, sort_keys=True)

    @classmethod
    def from_metadata(cls, text: str | None) -> Marker | None:
        """Return what `to_metadata` rendered; None for anything else, which somebody else has committed or reset."""
        try:
            found = parse_json(text or "")
        except ValueError:
            return None
        if not isinstance(found, dict) or found.keys() != {_LABEL, _BATCH}:
            return None
        label, batch = found[_LABEL], found[_BATCH]
        if label is None and batch is None:
            return cls()
        if isinstance(label, str) and batch is None:
            return cls(label)
        if isinstance(label, str) and isinstance(batch, int) and not isinstance(batch, bool) and batch >= 0:
            return cls(label, BatchNumber(batch))
        return None
