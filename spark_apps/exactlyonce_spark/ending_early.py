"""Whether a query that is to end after the current batch need not be waited for. Performs no I/O.

Whoever stops a query at any moment loses nothing with ExactlyOnce and AtLeastOnce: the next driver runs the batch again, or
recognises it. So a batch is only waited for while it can land.
"""

from __future__ import annotations

from exactlyonce.api.spec import Delivery

SETTLING_SECONDS = 5.0
"""How long Spark has to write its commit log after a batch, or to plan one; without that log the batch is replayed."""


def ends_at_once(
    delivery: Delivery, *, has_batch: bool, in_trigger: bool, executors: int | None, asked_seconds: float
) -> bool:
    """Return whether the query is stopped now, `asked_seconds` after it was to end.

    `has_batch` says that a batch is running, `in_trigger` that Spark plans one or finishes it. `executors` is None where
    the driver's own process runs the tasks. A batch that AtMostOnce has taken would be lost, so it waits for an executor.
    """
    if has_batch:
        return executors == 0 and delivery is not Delivery.AT_MOST_ONCE
    return not in_trigger or asked_seconds >= SETTLING_SECONDS
