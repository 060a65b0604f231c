"""Which leases of a table are not the stream's to write. Performs no I/O.

A table in which one lease is not the stream's is left alone as a whole: it is that of an application, or of another stream,
and a single lease that is added there or moved would already change what its owner reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from exactlyonce.connectors.kinesis.lease_marks import is_same_stream
from exactlyonce.connectors.kinesis.leases import (
    Checkpoint,
    Lease,
    StartsAt,
    StartsAtTip,
    StartsAtUnknownMoment,
    StartsBehind,
    continuation,
)
from exactlyonce.connectors.kinesis.positions import SHARD_END, UserRecord

_UNTOUCHED = Checkpoint("TRIM_HORIZON")


class Other(Enum):
    """Why a lease is not the stream's."""

    APPLICATION = "application"
    """No stream has written it, or an application has moved it since one did."""
    STREAM = "stream"
    """Another stream has written it."""
    SUCCESSOR = "successor"
    """Another stream has taken it over from this one."""
    MOVED_ON = "moved on"
    """This stream has written it, and an application has moved it since."""


def not_own(
    found: Mapping[str, Lease],
    landed: Mapping[str, int],
    listed: Mapping[str, object],
    name: str,
    *,
    took_over: bool,
) -> dict[str, Other]:
    """Return the leases of a table that are not of the stream `name`, by shard.

    Own are those that the stream has written and that nobody has moved since; those that an earlier life of it left like
    that; and, where it `took_over` from this table, those that are not ahead of what has landed: whoever continues there
    misses nothing. A lease that an application has made beside own ones and has not begun with changes nothing.
    """
    others = {
        key: other
        for key, lease in found.items()
        if (other := _other(lease, landed.get(key), key in listed, name, took_over=took_over)) is not None
    }
    if len(others) == len(found):
        return others
    return {key: other for key, other in others.items() if not _changes_nothing(found[key], landed.get(key))}


def _other(lease: Lease, position: int | None, is_listed: bool, name: str, *, took_over: bool) -> Other | None:
    """Return why a lease is not the stream's, None where it is; `position` is what has landed of its shard, if it was begun."""
    mark = lease.mark
    is_moved = mark is None or mark.checkpoint != lease.checkpoint.text or lease.is_prepared
    if mark is not None and name in mark.streams:
        if mark.stream != name:
            return Other.SUCCESSOR
        return Other.MOVED_ON if is_moved else None
    if mark is not None and not is_moved and is_same_stream(mark.stream, name):
        return None
    if took_over and not lease.is_prepared and not _is_ahead(lease, position, is_listed):
        return None
    return Other.APPLICATION if is_moved else Other.STREAM


def _is_ahead(lease: Lease, position: int | None, is_listed: bool) -> bool:
    """Whether records in front of a lease may not have landed."""
    if position is None:  # shards that expired before the stream began are at their ends
        return lease.checkpoint != _UNTOUCHED and (is_listed or not lease.checkpoint.is_end)
    match continuation(lease.checkpoint):
        case StartsAt(start):
            return start > position
        case StartsBehind(last):
            return UserRecord(last.sequence_number, last.sub_sequence_number + 1).position > position
        case StartsAtTip():
            return False
        case StartsAtUnknownMoment():
            return True


def _changes_nothing(lease: Lease, position: int | None) -> bool:
    """Whether a lease beside own ones is of a shard of which nothing, or for both of them everything, is processed."""
    if lease.checkpoint.is_end:
        return position == SHARD_END
    return lease.mark is None and lease.checkpoint == _UNTOUCHED and not lease.is_prepared
