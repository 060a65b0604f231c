"""A stream that is deleted: what is decided is finished before its records go, within a bound, and the rest is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from exactlyonce.api.attempt_status import DriverTask
from exactlyonce.api.status import Phase
from exactlyonce.control.last_finish import BOUND, LOOK_SECONDS
from exactlyonce.control.next_pass import Next
from exactlyonce.errors import Unreachable
from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.launch.port import Ended, Running
from exactlyonce.ledger.fence import claim_epoch
from exactlyonce.ledger.two_phase import land_decided
from exactlyonce.positions.ranges import Epoch
from tests.resource_documents import DORIS
from tests.unit.decided_streams import FIRST_BATCH
from tests.unit.life_in_memory import Life
from tests.unit.passes import STREAM

DELETED = Next(1.0, "deleting")
"""The deletion itself continues: `Life` answers so in its place."""


def deleted(seconds_ago: float = 1.0, *, decides: bool = True) -> Life:
    """Return a stream into Doris whose driver was killed, with a decided batch, and that is deleted."""
    life = Life(**{"spec.sink": {"doris": DORIS}, "spec.drainTimeout": "60s"})
    life.settle(life.driver_is_there)
    attempt = Epoch(life.status.attempt)
    if decides:
        life.begin_batch(attempt)
        life.decide_batch()
    life.pods.states[attempt] = Ended("reaped", None, "it was killed")
    since = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    life.change(**{"metadata.deletionTimestamp": since.isoformat()})
    return life


def passes(life: Life, count: int) -> list[Next]:
    return [life.run_pass() for _ in range(count)]


def finish(life: Life, attempt: Epoch) -> None:
    """Be the driver without a query."""
    orders, ledger = life.pods.orders[attempt], life.machine.ledger
    assert orders.task is DriverTask.FINISH_ONLY
    permit, _ = claim_epoch(ledger, STREAM, attempt, f"claim {attempt}", orders.ticket, writes=False)
    land_decided(ledger, permit, FIRST_BATCH)
    life.pods.states[attempt] = Ended("reaped", LastMessage(Ending.FINISHED, "It has landed."), "it ended")


def test_a_deletion_waits_until_what_is_decided_has_landed() -> None:
    life = deleted()
    assert life.run_pass() != DELETED, "it writes down how the driver ended"
    assert life.run_pass() == Next(LOOK_SECONDS, "deleting")
    assert life.run_pass() == Next(LOOK_SECONDS, "deleting")
    assert life.pods.drained == []
    finish(life, Epoch(2))
    assert life.run_pass() != DELETED
    assert life.run_pass() == DELETED
    assert life.machine.view().decided is None
    assert "LeftBehind" not in life.server.events


def test_with_nothing_decided_it_goes_on_at_once() -> None:
    life = deleted(decides=False)
    life.run_pass()
    assert life.run_pass() == DELETED
    assert life.pods.states.keys() == {Epoch(1)}


def test_a_driver_with_a_query_is_the_deletions_to_end() -> None:
    life = deleted()
    life.pods.states[Epoch(1)] = Running("in memory")
    assert life.run_pass() == DELETED
    assert life.pods.drained == [Epoch(1)]


def test_a_deletion_does_not_wait_for_ever_and_says_what_is_left() -> None:
    life = deleted()
    passes(life, 2)
    since = datetime.now(UTC) - timedelta(seconds=61) - BOUND
    life.change(**{"metadata.deletionTimestamp": since.isoformat()})
    assert life.run_pass() == DELETED
    assert "LeftBehind" in life.server.events
    assert "batch 1 is not known to be finished" in life.server.told[-1]


def test_what_a_person_has_to_answer_first_is_not_waited_for() -> None:
    life = deleted()
    passes(life, 2)
    words = LastMessage(Ending.REFUSED, "The sink no longer knows.", case="LoadsInDoubt")
    life.pods.states[Epoch(2)] = Ended("reaped", words, "it ended")
    assert life.run_pass() == DELETED
    assert life.status.phase is Phase.HALTED
    assert life.run_pass() == DELETED


def test_a_ledger_that_does_not_answer_is_waited_for_within_the_bound() -> None:
    life = deleted()
    life.run_pass()
    silent = Unreachable("The ledger does not answer.")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(life.machine.ledger, "view", lambda *_: (_ for _ in ()).throw(silent))
        assert life.run_pass() != DELETED
        since = datetime.now(UTC) - timedelta(seconds=61) - BOUND
        life.change(**{"metadata.deletionTimestamp": since.isoformat()})
        assert life.run_pass() == DELETED


def test_a_spec_that_cannot_be_read_names_no_sink_to_wait_for() -> None:
    life = deleted()
    life.change(**{"spec.delivery": "Sometimes"})
    assert life.run_pass() == DELETED
