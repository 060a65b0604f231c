"""Rules of the whole spec for streams that write to Postgres. Performs no I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from exactlyonce.schema.constraints import Rule


def _rule(unless: tuple[str, Callable[[Any], bool]], needs: tuple[str, Callable[[Any], bool]], sentence: str) -> Rule:
    """Return a rule: `unless` holds, of the whole spec, or `needs`, of its Postgres sink; each in CEL and in Python."""
    return Rule(
        f"{unless[0]} || !has(self.sink.postgres) || {needs[0]}",
        lambda it: unless[1](it) or it.sink.postgres is None or needs[1](it.sink.postgres),
        sentence,
    )


_APPENDS = ("self.outputMode == 'Append'", lambda it: it.output_mode == "Append")
_NO_UPDATES = ("self.outputMode != 'Update'", lambda it: it.output_mode != "Update")
_NOT_COMPLETE = ("self.outputMode != 'Complete'", lambda it: it.output_mode != "Complete")
_NO_DELETIONS = (
    "self.source.format.onTombstone != 'Delete'",
    lambda it: it.source.format.on_tombstone != "Delete",
)
_BY_BATCH = ("self.sink.postgres.commit == 'Batch'", lambda sink: sink.commit == "Batch")

STREAM_RULES = (
    _rule(
        ("self.delivery == 'ExactlyOnce'", lambda it: it.delivery == "ExactlyOnce"),
        _BY_BATCH,
        "sink.postgres.commit: Partition belongs to delivery: ExactlyOnce",
    ),
    _rule(
        _APPENDS,
        _BY_BATCH,
        "outputMode: Update and Complete need sink.postgres.commit: Batch, because a result does not belong to a single "
        "partition",
    ),
    _rule(
        _NO_UPDATES,
        ("self.sink.postgres.write != 'Append'", lambda sink: sink.write != "Append"),
        "outputMode: Update emits a row again when it has changed, so it needs sink.postgres.write: Upsert or Merge",
    ),
    _rule(
        _NO_UPDATES,
        (
            "!has(self.sink.postgres.merge) || !self.sink.postgres.merge.exists(merged, merged.combine == 'Sum')",
            lambda sink: "Sum" not in sink.combined.values(),
        ),
        "outputMode: Update emits each total again, and combine: Sum would add it to the former one; write Last",
    ),
    _rule(
        _NOT_COMPLETE,
        ("self.sink.postgres.write == 'Append'", lambda sink: sink.write == "Append"),
        "outputMode: Complete replaces all rows of the table, so it needs sink.postgres.write: Append",
    ),
    _rule(
        _NO_DELETIONS,
        ("self.sink.postgres.write == 'Upsert'", lambda sink: sink.write == "Upsert"),
        "source.format.onTombstone: Delete needs sink.postgres.write: Upsert, whose keys say which row is deleted",
    ),
    _rule(
        _NO_DELETIONS,
        ("!has(self.sink.postgres.version)", lambda sink: sink.version is None),
        "source.format.onTombstone: Delete excludes sink.postgres.version: a deleted row keeps no version, so an older record "
        "would bring the row back",
    ),
)
