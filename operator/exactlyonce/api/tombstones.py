"""What tombstones that delete rows ask of the rest of the spec. Performs no I/O."""

from __future__ import annotations

from exactlyonce.api.format import OnTombstone
from exactlyonce.api.output_mode import OutputMode
from exactlyonce.schema.constraints import Rule

_NO_DELETIONS = "self.source.format.onTombstone != 'Delete'"

TOMBSTONE_RULES = (
    Rule(
        f"{_NO_DELETIONS} || self.outputMode == 'Append'",
        lambda it: it.source.format.on_tombstone is not OnTombstone.DELETE or it.output_mode is OutputMode.APPEND,
        "source.format.onTombstone: Delete needs outputMode: Append, since a row of an aggregation belongs to no single record",
    ),
    Rule(
        f"{_NO_DELETIONS} || has(self.transform)",
        lambda it: it.source.format.on_tombstone is not OnTombstone.DELETE or it.transform is not None,
        "source.format.onTombstone: Delete needs a transform, which takes the keys of a deletion from _key",
    ),
)
"""Rules of the whole spec."""
