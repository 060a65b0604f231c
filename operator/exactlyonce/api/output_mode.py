"""Which rows of its result a query emits, and what that asks of the rest of the spec. Performs no I/O."""

from __future__ import annotations

from enum import StrEnum

from exactlyonce.api.constraints import Rule
from exactlyonce.api.sink import Combine, Commit, Write


class OutputMode(StrEnum):
    """Which rows of its result a query emits in each batch."""

    APPEND = "Append"
    UPDATE = "Update"
    COMPLETE = "Complete"


OUTPUT_MODE_RULES = (
    Rule(
        "self.outputMode == 'Append' || self.delivery == 'ExactlyOnce'",
        lambda it: it.output_mode is OutputMode.APPEND or it.delivery == "ExactlyOnce",
        "outputMode: Update and Complete belong to delivery: ExactlyOnce",
    ),
    Rule(
        "self.outputMode == 'Append' || !has(self.sink.postgres) || self.sink.postgres.commit == 'Batch'",
        lambda it: it.output_mode is OutputMode.APPEND or it.sink.postgres.commit is Commit.BATCH,
        "outputMode: Update and Complete need sink.postgres.commit: Batch, since a result is no single Kafka partition's",
    ),
    Rule(
        "self.outputMode != 'Update' || !has(self.sink.postgres) || self.sink.postgres.write != 'Append'",
        lambda it: it.output_mode is not OutputMode.UPDATE or it.sink.postgres.write is not Write.APPEND,
        "outputMode: Update emits a row again when it has changed, so it needs sink.postgres.write: Upsert or Merge",
    ),
    Rule(
        "self.outputMode != 'Update' || !has(self.sink.postgres) || !has(self.sink.postgres.merge) || "
        "!self.sink.postgres.merge.exists(column, self.sink.postgres.merge[column] == 'Sum')",
        lambda it: it.output_mode is not OutputMode.UPDATE or Combine.SUM not in it.sink.postgres.merge.values(),
        "outputMode: Update emits each total anew, and merge: Sum would add it to the former one; write Last",
    ),
    Rule(
        "self.outputMode != 'Complete' || !has(self.sink.postgres) || self.sink.postgres.write == 'Append'",
        lambda it: it.output_mode is not OutputMode.COMPLETE or it.sink.postgres.write is Write.APPEND,
        "outputMode: Complete replaces all rows of the table, so it needs sink.postgres.write: Append",
    ),
)
"""Rules of the whole spec."""
