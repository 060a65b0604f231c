"""Which loads have a label of the published rule, and which task's it is. Performs no I/O; no pyspark here.

Such a label names neither epoch nor run, so a load under it may be of an earlier driver, or of another run of the task. That
takes nothing from a decision, which names transactions: what is under a label and not finished is aborted by its id, and what
is committed is what the ledger names by its id. Rows that are made again have a label of the stream's own form: the task that
makes them has an index of its own, and the label of the former load may be in use by then.
"""

from __future__ import annotations

from exactlyonce.connectors.doris.labels import compatible_label
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.tasks import AGAIN, DRIVER


def published_label(checkpoint_location: str, batch: BatchNumber, part: str) -> str | None:
    """Return the label of a part of a batch by the published rule; None for rows that are made again.

    What the driver loads as one is what a single task would load.
    """
    whose = part.partition("-")[0]
    if whose == AGAIN:
        return None
    return compatible_label(checkpoint_location, batch, 0 if whose == DRIVER else int(whose))
