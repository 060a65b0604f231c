"""Rules of the whole spec for streams that read Kinesis. Performs no I/O."""

from __future__ import annotations

from typing import Any

from exactlyonce.schema.constraints import Rule


def _deletes_no_keys(spec: Any) -> bool:
    return spec.source.kinesis is None or spec.source.format.on_tombstone.value != "Delete"


STREAM_RULES = (
    Rule(
        "!has(self.source.kinesis) || self.source.format.onTombstone != 'Delete'",
        _deletes_no_keys,
        "source.format.onTombstone: Delete is for Kafka: a Kinesis record always has data, so no record says that its key is "
        "to be deleted",
    ),
)
