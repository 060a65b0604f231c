"""Ledgers over an object log as tests need them: landings, what a reader sees, and a process that dies."""

from __future__ import annotations

from collections.abc import Callable

from exactlyonce.checkpoint.store import ObjectStore
from exactlyonce.connectors.object_log.bounds import BOUNDS, Bounds
from exactlyonce.connectors.object_log.ledger import ObjectLogLedger
from exactlyonce.connectors.object_log.log import ObjectLog
from exactlyonce.ledger.fence import Permit, raise_epoch
from exactlyonce.ledger.port import Ledger, LedgerTransaction
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Ranges
from exactlyonce_spark.landing import land_batch
from exactlyonce_spark.planned import PlannedBatch, Written
from tests.ledgers import IDS, P0, P1, STREAM, new_stream, started
from tests.simulation.objects import MemoryObjects


class Crashed(BaseException):
    """Ends a process as SIGKILL does."""


def ledger_on(
    store: ObjectStore,
    every: int = 100,
    reached: Callable[[str], None] = lambda point: None,
    bounds: Bounds = BOUNDS,
) -> ObjectLogLedger:
    """A ledger of a process of its own on a log."""
    # Committables leave the state with each snapshot, where in production a megabyte of them has to be there.
    made = ObjectLogLedger(
        ObjectLog(store, "ledger", snapshot_every=every, archived_from_bytes=1, bounds=bounds, reached=reached)
    )
    made.prepare()
    return made


def land(ledger: Ledger, permit: Permit, number: int) -> None:
    """Land a batch of one record, whose id is the batch's number."""
    ranges = Ranges({P0: OffsetRange(number - 1, number), P1: OffsetRange(0, 0)})

    def write(transaction: LedgerTransaction) -> Written:
        transaction.write_committable(STREAM, BatchNumber(number), f"record {number}")
        return Written(1)

    land_batch(ledger, permit, PlannedBatch(BatchNumber(number), ranges, IDS), write)


def visible(ledger: Ledger) -> list[str]:
    """What a reader of the log sees."""
    with ledger.transaction() as transaction:
        return list(transaction.read_committables(STREAM).values())


def records(last: int) -> list[str]:
    return [f"record {number}" for number in range(1, last + 1)]


def entries(store: MemoryObjects) -> list[str]:
    return sorted(path.rsplit("/", 1)[1] for path in store.objects if path.endswith(".entry"))


def snapshots(store: MemoryObjects) -> list[str]:
    return sorted(path.rsplit("/", 1)[1] for path in store.objects if path.endswith(".snapshot"))


def archives(store: MemoryObjects) -> list[str]:
    return sorted(path.rsplit("/", 1)[1] for path in store.objects if path.endswith(".committables"))


def go_on(ledger: ObjectLogLedger, epoch: int) -> Permit:
    """Start the stream, or take it over from whoever died."""
    from exactlyonce.ledger.fence import claim_epoch

    view = ledger.view(STREAM)
    if view is None or view.stream.checkpoint_path is None:
        return started(ledger, epoch)
    raise_epoch(ledger, new_stream(ledger), Epoch(epoch), "ticket")
    return claim_epoch(ledger, STREAM, Epoch(epoch), f"claim-{epoch}", "ticket")[0]


def before_create(act: Callable[[], object]) -> Callable[[str], None]:
    """Do something before the next create takes effect."""
    return once(lambda label: label.startswith("create"), act)


def once(when: Callable[[str], bool], act: Callable[[], object]) -> Callable[[str], None]:
    """Do something at the first step that fits, before that takes effect."""
    done = False

    def step(label: str) -> None:
        nonlocal done
        if not done and when(label):
            done = True
            act()

    return step
