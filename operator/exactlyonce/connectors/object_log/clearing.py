"""What a log whose streams are all forgotten still holds of them is deleted."""

from __future__ import annotations

import logging

from exactlyonce.connectors.object_log.log import LogMissing, ObjectLog
from exactlyonce.errors import ExactlyOnceError

log = logging.getLogger("exactlyonce.object_log")


def clear(of: ObjectLog) -> None:
    """Delete the objects of a log without a row, but for its first one and those that say that there is none.

    Rows that were deleted are still in older entries, snapshots and archives, which go once two newer snapshots stand for them.
    Two are made; then a driver that wakes up, and whoever folds the log meanwhile, find what they find after every pruning.
    The first object stays: a stream that is recreated in this very moment may have read it, and would begin in a log that is
    gone. Whoever dies before the end, or gets no answer, leaves objects that nobody reads.
    """
    try:
        for _ in range(2):
            fold = of.fold()
            if fold.state.tables:
                return
            of.append(fold, {})
            of.shorten()
    except LogMissing:
        return
    except ExactlyOnceError as problem:
        log.warning("Objects of a stream that was deleted are left in the object log at %s: %s", of.location, problem)
