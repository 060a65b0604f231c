"""Which rows of its result a query emits, and what that asks of the rest of the spec. Performs no I/O."""

from __future__ import annotations

from enum import StrEnum

from exactlyonce.schema.constraints import Rule


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
)
"""Rules of the whole spec."""
