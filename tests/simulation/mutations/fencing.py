"""The fence and the raise, broken on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from exactlyonce.ledger import fence, publish
from exactlyonce.ledger.fence import Fenced, Permit
from exactlyonce.ledger.port import Ledger, Lock
from exactlyonce.ledger.rows import LedgerView, StreamRow
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile import act, launching, observe, pass_operations
from exactlyonce.reconcile.observation import Observation
from exactlyonce_spark import landing, witnesses


@contextmanager
def no_lock_at_the_fence() -> Iterator[None]:
    """The fence reads epoch and claim without a lock, so a raise slips in before the commit."""

    def unlocked(transaction: Any, permit: Permit, lock: Lock) -> StreamRow:
        row: StreamRow | None = transaction._get(("stream", permit.stream_id))
        if row is None or (row.epoch, row.claim) != (permit.epoch, permit.claim):
            raise Fenced("not mine")
        return row

    with mock.patch.object(landing, "fence", unlocked), mock.patch.object(witnesses, "fence", unlocked):
        yield


@contextmanager
def no_claim() -> Iterator[None]:
    """One epoch may be claimed twice: whoever comes later is let in and the former keeps its permit."""

    def claim_anyway(
        ledger: Ledger, stream_id: str, epoch: Epoch, *_compared: object, writes: bool
    ) -> tuple[Permit, StreamRow]:
        with ledger.transaction() as transaction:
            row = transaction.lock_stream(stream_id, Lock.UPDATE)
            if row is None or row.epoch != epoch:
                raise Fenced("not mine")
            claimed = replace(row, claim="anyone")
            if writes:
                claimed = replace(claimed, writer=epoch, writer_released=False)
            transaction.update_stream(claimed)
            return Permit(stream_id, epoch, "anyone"), claimed

    with mock.patch.object(fence, "_claim_once", claim_anyway):
        yield


@contextmanager
def decided_before_the_raise() -> Iterator[None]:
    """The operator observes, then raises: what lands in between is overwritten by a generation seeded at the old position."""
    raised, observed = fence.raise_epoch, observe.observe
    seen: dict[Epoch, LedgerView | None] = {}

    def look_first(ledger: Ledger, stream: fence.NewStream, epoch: Epoch, *rest: Any) -> fence.Raised:
        seen[epoch] = ledger.view(stream.stream_id)
        return raised(ledger, stream, epoch, *rest)

    def observe_what_was(stores: observe.Stores, request: Any, epoch: Epoch, *rest: Any) -> Observation:
        stale = seen.get(epoch)
        return observed(
            stores if stale is None else replace(stores, ledger=_Stale(stale, stores)), request, epoch, *rest
        )

    def publish_without_comparing(ledger: Ledger, stream_id: str, publication: publish.Publication) -> None:
        with ledger.transaction() as transaction:
            standing = transaction.read_positions(stream_id).positions
        publish.publish(ledger, stream_id, replace(publication, before=standing))

    with (
        mock.patch.object(pass_operations, "raise_epoch", look_first),
        mock.patch.object(launching, "observe", observe_what_was),
        mock.patch.object(act, "publish", publish_without_comparing),
    ):
        yield


class _Stale:
    """A ledger as it was before the raise."""

    def __init__(self, view: LedgerView, stores: observe.Stores) -> None:
        self._view = view
        self._stores = stores

    def view(self, stream_id: str) -> LedgerView:
        return self._view

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stores.ledger, name)


@contextmanager
def tickets_not_asked_for() -> Iterator[None]:
    """Who is of the right epoch may claim it, a driver of the stream's former life too."""
    with mock.patch.object(fence, "holds_ticket", lambda row, ticket: True):
        yield
