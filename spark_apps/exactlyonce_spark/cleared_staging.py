"""What was staged for a batch that has landed. No pyspark here."""

from __future__ import annotations

import logging

from exactlyonce.errors import OutcomeUnknown, Refused, Unreachable
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.target import Target

log = logging.getLogger("exactlyonce.batch")


def clear_staging_if_possible(target: Target, batch: BatchNumber) -> None:
    """Forget what was staged for a batch that has landed: what is left of it is no reason to end as failed."""
    try:
        target.clear_staging(batch)
    except (Unreachable, Refused, OutcomeUnknown) as problem:
        log.warning("What was staged for batch %s stays until the next attempt: %s", batch, problem)
