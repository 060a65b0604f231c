"""`deletionPolicy: Delete`: take away a stream's ledger rows and its checkpoint, where they are this resource's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from exactlyonce.api.checkpoint import Checkpoint
from exactlyonce.api.resource import parse_stream
from exactlyonce.api.spec import StreamSpec
from exactlyonce.checkpoint.generation import MARKER, SOURCE_FOLDER, Marker, list_generations, read_marker
from exactlyonce.checkpoint.locations import StoreInPods
from exactlyonce.checkpoint.store import ErasableStore
from exactlyonce.connectors.specs import TakesReplays
from exactlyonce.control.deletion import StillErasing
from exactlyonce.control.lease import require_lease
from exactlyonce.control.owners import owner_of
from exactlyonce.control.stream_assembly import StreamAssembly
from exactlyonce.ledger.connector import OpenLedger
from exactlyonce.ledger.replay_decisions import ReplayDecision, made_visible, read_decisions
from exactlyonce.ledger.rows import BatchStatus, FailureStatus, LedgerView, StreamRow

_NAMED = 10
"""Of the entries of replays."""

_ONE_PASS_SECONDS = 2.0
"""Shorter than what counts as a store that hangs (bulkheads.HANGS_SECONDS): a large checkpoint delays nobody."""

_MOST_LOADS = 3
"""So many loads of replays are named in the event: it has room for a thousand characters, and a label alone has a hundred."""


def erase(
    assembly: StreamAssembly, document: Mapping[str, Any], clock: Callable[[], float] = time.monotonic
) -> str | None:
    """Take away the checkpoint, then the ledger's rows; done again, it finds nothing and is content.

    A resource that only names another one's stream (a copy that was halted for it) takes nothing away, and nothing goes that
    the marker in the location does not say to be this stream's. The rows go last: they tell whose the checkpoint is, if this is
    interrupted. Returns sentences for what is left behind; what only pods of the stream reach is: it has none any more. So is a
    batch that a driver landed and may not have come to show in the sink, and what a replay landed since, or has decided: no
    driver follows that would show or commit it.

    Raises:
        NotLeading: if the Lease is lost on the way.
        StillErasing: if this pass has done its share, and there is more.
        ExactlyOnceError: if the spec is invalid, a secret is missing, or a store does not answer.
    """
    stream, owner = parse_stream(document, "the resource"), owner_of(assembly.cluster, document)
    ends = clock() + _ONE_PASS_SECONDS
    erasable = assembly.erasable(stream)
    ledger, store = erasable.ledger, erasable.checkpoints
    with erasable.at_ledger.entered():
        view = ledger.view(stream.stream_id)
    if view is None:
        return None  # it never ran, or all of it is gone already
    if view.stream.owner != owner:
        return (
            f"The ledger's {stream.stream_id} and its checkpoint belong to {view.stream.owner}, and not to this resource, "
            "which takes nothing of them away."
        )
    if isinstance(store, StoreInPods):
        left: str | None = _left_behind(store, stream.spec.checkpoint)
    else:

        def is_enough() -> bool:
            require_lease(assembly.may_act)
            return clock() >= ends

        with erasable.at_checkpoints.entered():
            left = _erase_checkpoint(store, view.stream, is_enough)
    require_lease(assembly.may_act)
    with erasable.at_ledger.entered():
        replayed = _not_taken_over(ledger, view, stream.spec)
        waiting = _not_committed(read_decisions(ledger, stream.stream_id))
        ledger.forget(stream.stream_id, owner)
    return " ".join(filter(None, (_unshown(view, stream.spec), replayed, waiting, left))) or None


def _not_taken_over(ledger: OpenLedger, view: LedgerView, spec: StreamSpec) -> str | None:
    """Return a sentence for what replays have landed in files and no batch has taken over: none follows that would show it.

    The ledger's entries tell whether there is any, and which files: those of a replay that died have such names as well. How
    many records it is follows from the moments of landings, and is not told where a clock was ahead.
    """
    sink = spec.sink.spec
    if sink.holds_ledger or sink.two_phases or not isinstance(sink, TakesReplays):
        return None
    with ledger.transaction() as transaction:
        names = sorted(made_visible(transaction.read_replayed(view.stream.stream_id)))
    if not names:
        return None
    landed = [row.landed_at for row in view.batches if row.status is BatchStatus.LANDED and row.landed_at is not None]
    since = max(landed, default=datetime.fromtimestamp(0, UTC))
    (records,) = ledger.summed_failures(view.stream.stream_id, (FailureStatus.REPLAYED,), (since,)).records_since
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        f"{f'{records} records' if records else 'Records'} were landed by replays, in files whose path has one of these "
        f"names: {', '.join(names[:_NAMED])}{more}. No batch has taken them over, so readers of the sink's log are not shown "
        "them. Look for these files there, since nothing is left of their record."
    )


def _not_committed(waiting: Sequence[ReplayDecision]) -> str | None:
    """Return a sentence for the loads that replays have decided, which nobody commits any more. Performs no I/O."""
    if not waiting:
        return None
    loads = f"{len(waiting)} loads" if len(waiting) > 1 else "a load"
    more = f"; and {len(waiting) - _MOST_LOADS} more" if len(waiting) > _MOST_LOADS else ""
    named = "; ".join(f"{it.load!s:.200} in {it.decided.sink}" for it in waiting[:_MOST_LOADS])
    return (
        f"Replays have decided {loads}, and nothing says whether the sink has committed them: look there for their rows, since "
        f"nothing is left of their record but this: {named}{more}."
    )


def _unshown(view: LedgerView, spec: StreamSpec) -> str | None:
    """Return a sentence for the batch that has landed by the ledger alone, or may have. Performs no I/O.

    A driver that has ended by its own word has shown in the sink what it landed; of one that died nobody can tell.
    """
    row, sink = view.stream, spec.sink.spec
    decided = None if view.decided is None else view.decided.batch
    may_lack = not (row.writer_released or sink.holds_ledger or sink.two_phases)
    number = decided if decided is not None else row.landed_batch if may_lack else None
    batch = None if number is None else view.batch(number)
    if number is None or (decided is None and (batch is None or batch.status is not BatchStatus.LANDED)):
        return None
    ranges = "" if batch is None else f" ({batch.ranges.text(spec.source.spec.position_text)})"
    found = "is decided in the ledger and not committed in the sink: some or all of its rows are not there, and never will be"
    if decided is None:
        found = (
            "has landed by the ledger, and the driver that landed it did not end by its own word: its rows may be in the sink, "
            "or in files that no reader is shown"
        )
    return f"Batch {number} {found}. Look for them there, since nothing is left of its record but this: batch {number}{ranges}."


def _left_behind(store: StoreInPods, checkpoint: Checkpoint) -> str:
    volume = checkpoint.volume
    if volume is not None:
        return (
            f"The checkpoint stays in {store.location} on the claim {volume.claim_name}, which the operator does not reach; "
            "delete that folder, or the claim, before another stream uses it."
        )
    return (
        f"The checkpoint stays in {store.location}, because {store.why}; delete that folder before another stream uses it. "
        "An administrator can allow it in the chart's checkpoints.locations for streams that are deleted later."
    )


def _erase_checkpoint(store: ErasableStore, row: StreamRow, is_enough: Callable[[], bool]) -> str | None:
    """Remove every generation and what a source keeps beside them, then the marker, which says whose they are.

    It is read again before each: whoever adopts the location meanwhile keeps what is still there.
    """
    own, generations = Marker(row.stream_id, row.token), list_generations(store)
    if not generations and read_marker(store) is None:
        return None
    for folder in (*(generation.folder for generation in generations), SOURCE_FOLDER):
        found = read_marker(store)
        if found != own:
            return _kept(store, found)
        if not store.remove(folder, is_enough) or is_enough():
            raise StillErasing(f"The checkpoint in {store.location} is being erased; there is more of it.")
    found = read_marker(store)
    if found != own:
        return _kept(store, found)
    store.remove(MARKER)
    return None


def _kept(store: ErasableStore, found: Marker | None) -> str:
    whose = "is marked by no stream.json" if found is None else "is marked as that of another stream"
    return f"The checkpoint in {store.location} {whose}, so it stays; whoever owns it deletes it by hand."
