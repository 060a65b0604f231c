"""A stream is deleted: what is decided is finished before its records are taken away, within a bound.

The passes are those of a stream at rest. Once the bound is over the deletion continues, and an event says what is left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_never

from exactlyonce.api.resource import ResourceInvalid, Stream
from exactlyonce.api.status import Phase
from exactlyonce.control.deletion import FINALIZER
from exactlyonce.control.lease import NotLeading
from exactlyonce.control.pass_ports import Making
from exactlyonce.control.resource_status import ResourceStatus
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.reconcile.finish_first import finished_by, finishes
from exactlyonce.reconcile.loop import Done, Halted, PassResult, StatusConflict, StreamLoop, Waiting, Wanted, Watching

log = logging.getLogger("exactlyonce.operator")

LOOK_SECONDS = 2.0
_LACKING_SECONDS = 10.0
BOUND = timedelta(minutes=6)
"""How much longer than a driver may drain a deletion waits: for a pod that starts on a busy cluster, and a few tries."""

Report = Callable[[str, str], None]


@dataclass(frozen=True)
class LastFinish:
    """Runs the passes of a stream that is deleted, while it may have left something."""

    making: Making
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def run(self, document: Mapping[str, Any], statuses: ResourceStatus, report: Report) -> float | None:
        """Do what is to be done now; return the seconds until the next look, or None when the deletion may continue.

        A driver with a query is drained or killed by the deletion, and its end is recorded here.
        """
        stream = self._parsed(document)
        if stream is None or stream.spec.sink.spec.holds_ledger or _is_halted(statuses):
            return None  # rows in the ledger's own database are there once their batch has landed
        since = datetime.fromisoformat(document["metadata"]["deletionTimestamp"])
        if self.now() - since > stream.spec.drain_timeout + BOUND:
            _tell_what_is_left(statuses, report)
            return None
        try:
            ports = self.making.ports_of(stream, document, statuses, report)
            result = StreamLoop(stream, ports.context).run_pass(Wanted.REST, ports.plan)
        except (NotLeading, StatusConflict):
            raise
        except ExactlyOnceError as problem:  # such as a secret that is gone
            log.warning("%s", problem)
            return _LACKING_SECONDS
        return self._after(result, statuses)

    def _after(self, result: PassResult, statuses: ResourceStatus) -> float | None:
        """Return when to look again while something may be left; a driver with a query is the deletion's to end."""
        status = statuses.read()[0]
        shown_at = None if status.landed_shown is None else status.landed_shown.retry_at
        match result:
            case Watching():
                return LOOK_SECONDS if finishes(status.driver) else None
            case Waiting(until=until) if until == shown_at:
                return None  # only to show somewhere else where it has landed, which nobody waits for
            case Waiting(until=until):
                return max((until - self.now()).total_seconds(), 0.0)
            case Halted() | Done():
                return None
            case _:
                assert_never(result)

    def _parsed(self, document: Mapping[str, Any]) -> Stream | None:
        if FINALIZER not in document["metadata"].get("finalizers", []):
            return None
        try:
            return self.making.parse(document)
        except ResourceInvalid:
            return None  # nobody knows its sink


def _tell_what_is_left(statuses: ResourceStatus, report: Report) -> None:
    """Say it where a driver was started to finish something and has not said that it has."""
    status = statuses.read()[0]
    if finishes(status.driver) and finished_by(status) is None:
        report(
            "LeftBehind",
            f"The stream is deleted, and batch {status.verdict.batch if status.verdict else '?'} is not known to be finished: "
            f"{status.message} Look in the sink for its rows.",
        )


def _is_halted(statuses: ResourceStatus) -> bool:
    """Whether only a person could say how it continues: what could be finished was, or was tried."""
    return statuses.read()[0].phase in (Phase.HALTED, Phase.COMPLETED)
