"""A stream with ranges in quarantine, and StreamReplays of it: the rows and documents that tests of replays begin with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from exactlyonce.api.resource import API_VERSION
from exactlyonce.api.stream_replay import REPLAY_KIND
from exactlyonce.control.wakeups import Key
from exactlyonce.ledger.history import FailureSummary, RecordedFailure
from exactlyonce.ledger.rows import DatabaseIdentity, FailureRow, FailureStatus, Owner, StreamRow
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition

KEY = Key("shop", "orders")
OWNER = Owner("cluster-1", "shop/orders/u-1")
ROW = StreamRow("shop/orders", "token", OWNER, DatabaseIdentity("1", 1), Epoch(1), "ticket")
BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
WHOLE = 1_000_000


def failed(
    batch: int, number: int, start: int, until: int, status: FailureStatus = FailureStatus.QUARANTINED
) -> FailureRow:
    """Return a range that a stream has in quarantine."""
    partition = Partition("orders", number)
    return FailureRow(
        BatchNumber(batch), partition, start, until, status, "", "division by zero", origin_id="t-1", life=ROW.life
    )


def replay(name: str = "mend", created: str = "2026-03-01T12:00:00Z", **spec: Any) -> dict[str, Any]:
    """Return a StreamReplay that nobody has looked at."""
    return {
        "apiVersion": API_VERSION,
        "kind": REPLAY_KIND,
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "generation": 1,
            "resourceVersion": "1",
            "creationTimestamp": created,
        },
        "spec": {"stream": "orders", "from": {"failures": {}}, **spec},
    }


def summed(found: Sequence[RecordedFailure], moments: Sequence[datetime]) -> FailureSummary:
    """Count what a ledger counts."""
    since = (sum(it.row.offset_count for it in found if it.changed_at > moment) for moment in moments)
    return FailureSummary(min((it.changed_at for it in found), default=None), tuple(since))
