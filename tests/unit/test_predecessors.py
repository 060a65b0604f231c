"""When the driver before counts as dead."""

from __future__ import annotations

import pytest

from exactlyonce.api.status import DriverStatus, StreamStatus
from exactlyonce.launch.port import DriverState, Ended, Gone, NeverStarted, Running
from exactlyonce.ledger.fence import claim_epoch, release
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.rows import DatabaseIdentity, StreamRow
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.observation import MayLive, NoPredecessor, Predecessor, ProvenDead
from exactlyonce.reconcile.predecessor import predecessor_of
from tests.unit.passes import FIRST, ME, STREAM, Drivers, started

WRITER = StreamRow(STREAM, "t", ME, DatabaseIdentity("1", 1), Epoch(4), "ticket", writer=Epoch(3))
KNOWS_PROOF = DriverStatus(attempt=3, ended="Died", proof="its container has terminated")


@pytest.mark.parametrize(
    ("row", "state", "driver", "predecessor"),
    [
        (None, NeverStarted(), None, NoPredecessor()),
        (
            StreamRow(STREAM, "t", ME, DatabaseIdentity("1", 1), Epoch(4), "ticket"),
            NeverStarted(),
            None,
            NoPredecessor(),
        ),
        (WRITER, Ended("it was reaped", None, ""), None, ProvenDead("it was reaped")),
        (WRITER, NeverStarted(), KNOWS_PROOF, ProvenDead("its container has terminated")),
        (WRITER, NeverStarted(), None, MayLive("nothing proves that the driver of attempt 3 ended")),
        (
            WRITER,
            NeverStarted(),
            KNOWS_PROOF.model_copy(update={"attempt": 2}),
            MayLive("nothing proves that the driver of attempt 3 ended"),
        ),
        (
            WRITER,
            NeverStarted(),
            KNOWS_PROOF.model_copy(update={"proof": None}),
            MayLive("nothing proves that the driver of attempt 3 ended"),
        ),
        (WRITER, Running("here"), None, MayLive("nothing proves that the driver of attempt 3 ended")),
        (WRITER, Gone("its node is lost"), None, MayLive("its node is lost")),
    ],
)
def test_a_predecessor_is_dead_by_proof_only(
    row: StreamRow | None, state: DriverState, driver: DriverStatus | None, predecessor: Predecessor
) -> None:
    drivers = Drivers(lambda name: None, {Epoch(3): state})
    assert predecessor_of(row, StreamStatus(driver=driver), drivers) == predecessor


def test_a_predecessor_of_which_the_ledger_says_that_it_has_stopped_is_dead() -> None:
    machine = started()
    permit, _ = claim_epoch(machine.ledger, STREAM, FIRST, "claim 1", machine.drivers.ticket(FIRST))
    release(machine.ledger, permit)
    with machine.ledger.transaction() as transaction:
        row = transaction.lock_stream(STREAM, Lock.SHARE)
    assert predecessor_of(row, StreamStatus(), machine.drivers) == ProvenDead(
        "the ledger says that the driver of attempt 1 has stopped"
    )
