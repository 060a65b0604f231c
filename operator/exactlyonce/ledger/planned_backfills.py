"""The transactions that record what a backfill is to land, before any of it is read; over any ledger that takes replays."""

from __future__ import annotations

from exactlyonce.bounded_text import one_line
from exactlyonce.errors import Refused
from exactlyonce.ledger.backfills import Backfill, asked_in
from exactlyonce.ledger.other_tables import OtherTable, require_other_table
from exactlyonce.ledger.port import Ledger, Lock
from exactlyonce.ledger.races import rerun_after_lost_race, rerun_while_unknown
from exactlyonce.ledger.replay import NothingToReplayInto


class BackfillDiffers(Refused):
    """A backfill of that name was asked for something else."""


def known_backfill(ledger: Ledger, stream_id: str, name: str, definition: str | None) -> Backfill | None:
    """Return what is recorded of a backfill, None where nothing is yet; without a definition whatever it was asked for.

    Raises:
        BackfillDiffers: if the one of that name is of another definition.
    """
    with ledger.transaction() as transaction:
        found = transaction.read_backfill(stream_id, name)
    return found if found is None or definition is None else _same(stream_id, found, definition)


@rerun_while_unknown
@rerun_after_lost_race
def plan_backfill(ledger: Ledger, stream_id: str, wanted: Backfill, own: str = "") -> Backfill:
    """Record a backfill, unless one of its name and definition is there already, and return what is recorded.

    Safe to repeat; of two at once both get what the first has recorded. `own` is what the stream's resource lands into.

    Raises:
        NothingToReplayInto: if the ledger has no row of the stream.
        IntoOwnTable, IntoTakenTable: if a stream lands there, or it is a table of the ledger.
        BackfillDiffers: if the one of that name is of another definition; nothing was changed.
        CommitOutcomeUnknown: if the outcome stayed unknown; what was recorded is found by the next one.
    """
    with ledger.transaction() as transaction:
        stream = transaction.lock_stream(stream_id, Lock.UPDATE)
        if stream is None:
            raise NothingToReplayInto(f"The ledger has no row of {stream_id}; start the stream first.")
        found = transaction.read_backfill(stream_id, wanted.name)
        if found is not None:
            return _same(stream_id, found, wanted.definition)
        require_other_table(transaction, stream_id, OtherTable(wanted.into, own))
        transaction.write_backfill(stream_id, wanted)
        return wanted


def _same(stream_id: str, found: Backfill, definition: str) -> Backfill:
    if found.definition == definition:
        return found
    asked = asked_in(found.definition)
    if asked == asked_in(definition):
        raise BackfillDiffers(
            f"{stream_id} has a backfill {found.name!r} of these ranges already, whose rows are made by another transform, "
            "format or way to write, so what has landed of it is other rows. To continue it, ask with the former ones; to land "
            "rows made as they are now, give another name, and another table or only the ranges that are left"
        )
    raise BackfillDiffers(
        f"{stream_id} has a backfill {found.name!r} already, which was asked for {one_line(asked, 300)}. To continue it, ask "
        "for the same; else give this one another name"
    )
