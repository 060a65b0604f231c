"""What a replay into files is protected by, taken away piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from exactlyonce.connectors.files import orphans, standing
from exactlyonce.ledger import replay
from exactlyonce.ledger.port import Lock
from exactlyonce_spark import replay as run
from exactlyonce_spark.connectors.files.target import FilesTarget
from tests.simulation.database import MemoryTransaction


@contextmanager
def files_of_a_replay_are_listed_before_its_claim_is_compared() -> Iterator[None]:
    """A replay records its files in a transaction of their own, and then its claim is compared and its ranges are marked."""
    land = replay.land_pieces

    def listed_first(ledger: Any, claim: Any, pieces: Any, write: Callable[[Any], int]) -> int | None:
        with ledger.transaction() as transaction:
            transaction.lock_stream(claim.stream_id, Lock.UPDATE)
            rows = write(transaction)
        return land(ledger, claim, pieces, lambda _: rows)

    with mock.patch.object(run, "land_pieces", listed_first):
        yield


@contextmanager
def files_of_a_replay_that_is_at_work_are_orphans() -> Iterator[None]:
    """A file of a replay that no manifest names is removed, whether or not the replay holds ranges that it may land."""
    inner = orphans.orphans
    with mock.patch.object(orphans, "orphans", lambda *given, **named: inner(*given[:6], **named)):
        yield


@contextmanager
def what_a_batch_has_taken_over_stays() -> Iterator[None]:
    """A batch takes over what replays have landed, and it stays for the next batch, too."""
    with mock.patch.object(MemoryTransaction, "take_replayed", MemoryTransaction.read_replayed):
        yield


@contextmanager
def what_a_replay_has_landed_is_no_batchs() -> Iterator[None]:
    """No batch takes over what replays have landed, so that readers of Spark's log never see it."""
    with mock.patch.object(FilesTarget, "takes_replays", False):
        yield


@contextmanager
def what_no_batch_has_taken_over_does_not_count() -> Iterator[None]:
    """Whoever looks for orphans asks batches alone what counts, and not what replays have landed since the latest one."""
    inner = standing.standing

    def without_replayed(*given: Any) -> Any:
        return replace(inner(*given), replayed=())

    with mock.patch.object(orphans, "standing", without_replayed):
        yield
