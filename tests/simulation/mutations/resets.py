"""What a reset of the positions is protected by, taken away piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from greenlet import getcurrent, greenlet

from exactlyonce.ledger import fence, publish
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.ledger.publish import Publication
from exactlyonce.ledger.read_again import read_again
from exactlyonce.ledger.rows import FailureRow, FailureStatus, LandedPositions, LedgerView, StreamRow
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile import act, asked_reset, reset_offsets
from exactlyonce.reconcile.asked_reset import AskedReset


@contextmanager
def skipped_records_leave_no_trace() -> Iterator[None]:
    """Resets: the positions are set forward, and no failure names what is skipped."""
    with mock.patch.object(reset_offsets, "_skipped", lambda *_: ()):
        yield


@contextmanager
def what_is_to_be_kept_is_given_up() -> Iterator[None]:
    """Resets: what is skipped and to be kept is recorded as lost, so that no replay finds it."""
    skipped = reset_offsets._skipped

    def lost(*arguments: Any) -> Iterator[FailureRow]:
        return (replace(row, status=FailureStatus.LOST) for row in skipped(*arguments))

    with mock.patch.object(reset_offsets, "_skipped", lost):
        yield


@contextmanager
def what_was_skipped_stays_lost_when_it_is_read_again() -> Iterator[None]:
    """Resets: the positions are set back to before what was given up, and it counts as lost although it lands."""

    def of_held(
        rows: Sequence[FailureRow], after: LandedPositions, known_ids: Mapping[str, str]
    ) -> tuple[FailureRow, ...]:
        return read_again([row for row in rows if row.status in HELD], after, known_ids)

    with mock.patch.object(publish, "read_again", of_held):
        yield


@contextmanager
def a_reset_acts_at_each_launch() -> Iterator[None]:
    """Resets: what the annotation asks for is done whatever has landed since, so it is done again at each launch."""

    def always(text: str | None, ledger: LedgerView | None) -> AskedReset | None:
        if not text or ledger is None or not ledger.stream.landed_batch:
            return None
        asked = AskedReset.from_json(text)
        moved = {key: asked.after.get(key, position) for key, position in ledger.landed.positions.items()}
        return replace(
            asked, batch=ledger.stream.landed_batch, before=ledger.landed.positions, after=type(asked.after)(moved)
        )

    with mock.patch.object(reset_offsets, "to_be_reset", always), mock.patch.object(asked_reset, "to_be_reset", always):
        yield


@contextmanager
def positions_that_have_moved_are_reset() -> Iterator[None]:
    """Resets: partitions that have landed one by one since it was asked for are set to the positions that were asked for."""

    def moved(text: str | None, ledger: LedgerView | None) -> AskedReset | None:
        asked = asked_reset.to_be_reset(text, ledger)
        if asked is None or ledger is None or asked.before.keys() != ledger.landed.positions.keys():
            return asked
        return replace(asked, before=ledger.landed.positions)

    with mock.patch.object(reset_offsets, "to_be_reset", moved):
        yield


@contextmanager
def a_reset_without_the_fence() -> Iterator[None]:
    """Resets: the transaction that moves the positions asks neither for the epoch, nor where the stream stands by now."""
    unclaimed, resetting = fence.lock_unclaimed, set[greenlet]()

    def noting(ledger: Ledger, stream_id: str, publication: Publication) -> None:
        view = ledger.view(stream_id) if publication.resets else None
        if view is not None:
            resetting.add(getcurrent())
            publication = replace(publication, before=view.landed.positions)
        try:
            publish.publish(ledger, stream_id, publication)
        finally:
            resetting.discard(getcurrent())

    def locked(transaction: LedgerTransaction, stream_id: str, epoch: Epoch) -> StreamRow:
        row = transaction.lock_stream(stream_id, Lock.UPDATE) if getcurrent() in resetting else None
        return unclaimed(transaction, stream_id, epoch) if row is None else row

    with mock.patch.object(publish, "lock_unclaimed", locked), mock.patch.object(act, "publish", noting):
        yield
