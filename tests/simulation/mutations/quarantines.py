"""What a batch that is passed over is protected by, taken away piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from exactlyonce.ledger import publish
from exactlyonce.ledger.fence import Permit, fence
from exactlyonce.ledger.port import Ledger, Lock
from exactlyonce_spark import batch, bisection, landing, quarantine
from exactlyonce_spark.bisection import Part
from exactlyonce_spark.landing import finish_partitions
from exactlyonce_spark.left_out import keep_left_out
from exactlyonce_spark.planned import NOTHING_LEFT_OUT, LeftOut, PlannedBatch, Written
from tests.simulation import poison


@contextmanager
def positions_move_past_a_batch_that_no_failure_names() -> Iterator[None]:
    """A batch is passed over, and its ranges are not among the failures."""
    with mock.patch.object(quarantine, "failures_of", lambda *_: ()):
        yield


@contextmanager
def partitions_that_have_landed_are_quarantined_too() -> Iterator[None]:
    """Of a batch that is passed over all ranges are quarantined, also those that landed one by one."""
    with mock.patch.object(quarantine, "not_landed", lambda batch, _: batch.ranges):
        yield


@contextmanager
def any_batch_is_quarantined_once_one_is_to_be() -> Iterator[None]:
    """A driver that is to pass over one batch passes over each that it runs."""
    with mock.patch.object(quarantine, "is_to_be_quarantined", lambda *_: True):
        yield


@contextmanager
def a_quarantined_range_that_is_read_again_stays_replayable() -> Iterator[None]:
    """The positions are set back to before what is in quarantine, and it stays there, although the stream reads it again."""
    with mock.patch.object(publish, "read_again", lambda *_: ()):
        yield


@contextmanager
def records_are_left_out_that_no_failure_names() -> Iterator[None]:
    """A batch lands without the records that fail by themselves, and they are not among the failures."""
    with mock.patch.object(landing, "keep_left_out", lambda *_: None):
        yield


@contextmanager
def what_stands_beside_a_failing_record_is_left_out_with_it() -> Iterator[None]:
    """Of a part that fails nothing is divided: all of it is left out, with the good half."""

    def undivided(ranges: Any, fails: Any) -> tuple[Part, ...]:
        error = fails(ranges)
        return () if error is None else (Part(ranges, error),)

    with mock.patch.object(bisection, "failing_parts", undivided):
        yield


@contextmanager
def a_half_is_taken_for_the_failing_one_and_not_tried() -> Iterator[None]:
    """The half beside one that does not fail is left out once it is a single record, without a try of its own."""

    def untried(source: Any, fails: Any, parts: Any) -> Any:
        return found(source, lambda _: "it must fail", parts)

    found = bisection.records_that_fail
    with mock.patch.object(bisection, "records_that_fail", untried):
        yield


@contextmanager
def what_a_partition_leaves_out_is_recorded_once_the_batch_has_landed() -> Iterator[None]:
    """With `commit: Partition` what a partition landed without is recorded behind the landing of the whole batch."""

    def finish_and_record(
        ledger: Ledger, permit: Permit, planned: PlannedBatch, written: Written, read: int | None
    ) -> None:
        finish_partitions(ledger, permit, planned, written, read)
        with ledger.transaction() as transaction:
            keep_left_out(transaction, fence(transaction, permit, Lock.UPDATE), planned.number, planned.left_out)

    with (
        mock.patch.object(batch, "finish_partitions", finish_and_record),
        mock.patch.object(LeftOut, "of", lambda *_: NOTHING_LEFT_OUT),
    ):
        yield


@contextmanager
def what_is_tried_is_written() -> Iterator[None]:
    """The transaction in which a part of the batch is tried is committed."""

    def committed(ledger: Any, permit: Any, target: Any) -> Any:
        def take(rows: Any) -> None:
            with ledger.transaction(evicting=True) as transaction:
                target.write(transaction, rows)

        return take

    with mock.patch.object(poison, "rolled_back", committed):
        yield
