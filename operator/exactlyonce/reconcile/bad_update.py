"""Whether drivers of a changed resource came as far as running Spark, counted for the roll back. Performs no I/O.

Spark counts as up once a batch of the attempt's epoch is in the ledger, or the driver has said that it drained or completed.
Only endings that say something of what the driver was made of count against an update; those of nodes and stores do not.
docs/adr/0024
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import assert_never

from exactlyonce.api.attempt_status import BadUpdate, GoodAttempt
from exactlyonce.api.recovery import OnBadUpdate, Recovery
from exactlyonce.api.status import DriverStatus, StreamStatus
from exactlyonce.launch.last_message import Ending
from exactlyonce.launch.pod_endings import Reason
from exactlyonce.launch.port import Ended, Gone, ManifestRefused, NotCreated
from exactlyonce.ledger.rows import BatchStatus, LedgerView
from exactlyonce.reconcile.recorded import told_of

NOT_CREATED, MANIFEST_REFUSED = "NotCreated", "ManifestRefused"

_ANSWERED_FOR_GOOD, _WAITED, _ENDED_AT_ONCE, _ASKED_QUICKLY = 1, 2, 3, 5

_TRIES: Mapping[str, int] = {
    Reason.IMAGE_NOT_PULLABLE: _WAITED,
    Reason.UNSCHEDULABLE: _WAITED,
    Reason.START_TIMED_OUT: _WAITED,
    Reason.REJECTED_BY_NODE: _ENDED_AT_ONCE,
    Reason.CANNOT_START: _ENDED_AT_ONCE,
    Reason.CRASHED: _ENDED_AT_ONCE,
    Reason.OUT_OF_MEMORY: _ENDED_AT_ONCE,
    Ending.FAILED: _ENDED_AT_ONCE,
    Ending.REFUSED: _ANSWERED_FOR_GOOD,
    MANIFEST_REFUSED: _ANSWERED_FOR_GOOD,
    NOT_CREATED: _ASKED_QUICKLY,
}
"""How many attempts in a row make an update a bad one, by how the latest ended; what is not here says nothing of an update.

One whose answer never changes is enough. Two where each has waited for minutes (three for an image, `driver.startTimeout` for a
node): a registry that is down for a minute ends no attempt at all. Three where each ends within seconds. Five where the API
server said no, which it is asked again four times a minute.
"""

_BETWEEN_REHEARSALS = timedelta(seconds=14)
"""Passes that come sooner count as one: whatever wakes a stream must not hasten a roll back."""


def was_up(attempt: int, view: LedgerView | None) -> bool:
    """Whether the ledger shows that the driver of an attempt has planned a batch; a seed is planned by reconciliation."""
    rows = () if view is None else view.batches
    return any(row.epoch == attempt and row.status is not BatchStatus.SEEDED for row in rows)


def after_running(status: StreamStatus, driver: DriverStatus) -> dict[str, object]:
    """Return what changes in a status when a driver is known to have run Spark."""
    if driver.plan is None:
        return {}
    good = GoodAttempt(attempt=driver.attempt, plan=driver.plan, image=driver.image)
    bad = status.bad_update
    is_over = bad is not None and _is_of(bad, driver)
    return {"last_good": good, "bad_update": None if is_over else bad}


def after_end(
    status: StreamStatus, driver: DriverStatus, ending: Ended | Gone, view: LedgerView | None, now: datetime
) -> dict[str, object]:
    """Return what changes in a status when a driver has ended, for what the ledger and its last message say of it."""
    words = ending.words if isinstance(ending, Ended) else None
    ran = words is not None and words.ending in (Ending.DRAINED, Ending.COMPLETED)
    if ran or was_up(driver.attempt, view):
        return after_running(status, driver)
    return _counted(status, driver, *told_of(ending, driver), now)


def after_refusal(status: StreamStatus, problem: Exception, now: datetime) -> dict[str, object]:
    """Return what changes in a status when the driver of the latest attempt could not be created."""
    driver = status.current_driver
    if driver is None or driver.ended is not None:
        return {}
    match problem:
        case ManifestRefused():
            return _counted(status, driver, MANIFEST_REFUSED, str(problem), now)
        case NotCreated():
            return _counted(status, driver, NOT_CREATED, str(problem), now)
        case _:
            return {}


def after_rehearsal(status: StreamStatus, plan: str, problem: Exception, now: datetime) -> dict[str, object]:
    """Return what changes in a status when the API server would refuse the driver's pod, so that no attempt was made."""
    bad = status.bad_update
    if not isinstance(problem, NotCreated) or (
        bad is not None and bad.plan == plan and now - bad.at < _BETWEEN_REHEARSALS
    ):
        return {}
    return _counted(status, DriverStatus(attempt=0, plan=plan), NOT_CREATED, str(problem), now)


def after_proof(status: StreamStatus, view: LedgerView | None) -> dict[str, object]:
    """Return what changes where the ledger shows that the latest attempt of a bad update ran all the same."""
    bad = status.bad_update
    if bad is None or bad.attempt is None or not was_up(bad.attempt, view):
        return {}
    good = GoodAttempt(attempt=bad.attempt, plan=bad.plan, image=bad.image)
    return {"last_good": good, "bad_update": None}


def is_due(status: StreamStatus, recovery: Recovery) -> bool:
    """Whether enough attempts of a changed resource have failed to roll back to the last good one."""
    bad = status.bad_update
    if bad is None or status.last_good is None or bad.failures < bad.tries:
        return False
    match recovery.on_bad_update:
        case OnBadUpdate.ROLL_BACK:
            return True
        case OnBadUpdate.STAY:
            return False
        case _:
            assert_never(recovery.on_bad_update)


def is_to_be_settled(status: StreamStatus, recovery: Recovery) -> bool:
    """Whether the next pass has to find out if the stream can be rolled back."""
    bad = status.bad_update
    return bad is not None and is_due(status, recovery) and not bad.rolled_back and bad.not_rolled_back_message is None


def _counted(status: StreamStatus, driver: DriverStatus, reason: str, message: str, now: datetime) -> dict[str, object]:
    """Count one more attempt (0: none was made) against what it was made of, unless its ending says nothing of that."""
    good, bad, tries = status.last_good, status.bad_update, _TRIES.get(reason)
    if good is None or driver.plan is None or tries is None or not _is_another(driver, good):
        return {}
    before = bad if bad is not None and _is_of(bad, driver) else None
    if before is not None and driver.attempt and before.attempt == driver.attempt:
        return {}  # an attempt counts once
    counted = BadUpdate(
        plan=driver.plan,
        image=driver.image,
        attempt=driver.attempt or None,
        at=now,
        failures=1 if before is None else before.failures + 1,
        tries=tries,
        reason=reason,
        message=message,
        not_rolled_back_message=None if before is None else before.not_rolled_back_message,
    )
    return {"bad_update": counted}


def _is_another(driver: DriverStatus, good: GoodAttempt) -> bool:
    """Whether a driver was made of something else than the last good one: another spec, or another default image."""
    return driver.plan != good.plan or (None not in (driver.image, good.image) and driver.image != good.image)


def _is_of(bad: BadUpdate, driver: DriverStatus) -> bool:
    """Whether a driver was made of what a bad update is made of; an image that nobody has seen may be any."""
    return bad.plan == driver.plan and (None in (bad.image, driver.image) or bad.image == driver.image)
