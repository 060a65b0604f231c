"""Ranges in quarantine that a person gives up, because nothing can replay them or they are of no use; and takes back.

A range that is given up takes no effect and is offered to no replay. Its row says so, who did it, when and why, and names no
replay any more: one that had taken the range finds that when it lands, under the same lock, and writes nothing. A person who
wants it after all takes it back into quarantine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from exactlyonce.errors import Refused
from exactlyonce.ledger.held import HELD, held_failures
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.ledger.races import rerun_after_lost_race, rerun_while_unknown
from exactlyonce.ledger.replay_decisions import why_decided
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.rows import FailureRow, FailureStatus

_BEFORE = " It had failed: "


class NothingToGiveUp(Refused):
    """The ledger does not know the stream; nothing was changed."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Who gives ranges up, when, and why, as a sentence."""

    by: str
    at: datetime
    message: str

    def __str__(self) -> str:
        told = f"Given up by {self.by} at {self.at.astimezone(UTC).isoformat()}: {self.message.rstrip('.')}."
        # What is taken back has the error behind these words, so a person's sentence must not hold them.
        return told.replace(_BEFORE, _BEFORE.replace(":", ""))


@dataclass(frozen=True, slots=True)
class Changed:
    """The rows as the ledger has them now, and a sentence for each range that stays as it was."""

    rows: tuple[FailureRow, ...]
    refused: tuple[str, ...]


def why_not_given_up(row: FailureRow) -> str | None:
    """Return why a range cannot be given up, as a sentence; None where it can. Performs no I/O."""
    if row.is_decided:
        return why_decided([row])[0]
    if row.status in HELD:
        return None
    return f"The range {RangeKey.of(row)} is {row.status}; only a range in quarantine can be given up."


def why_not_taken_back(row: FailureRow, life: str) -> str | None:
    """Return why a range cannot return to quarantine, as a sentence; None where it can. Performs no I/O.

    What the stream may have read in another life would land twice; what it has read again in this one is Superseded.
    """
    name = f"The range {RangeKey.of(row)}"
    if row.status is not FailureStatus.GIVEN_UP:
        return f"{name} is {row.status}; only a range that is GivenUp can be taken back."
    if row.life != life:
        return f"{name} stays given up: the stream has since started over, so its records may have landed."
    return None


def given_up(row: FailureRow, told: GivenUp) -> FailureRow:
    """Return the row of a range in quarantine once it is given up; no replay holds it any more. Performs no I/O."""
    return replace(row, status=FailureStatus.GIVEN_UP, replay="", error=f"{told}{_BEFORE}{row.error}")


def taken_back(row: FailureRow) -> FailureRow:
    """Return the row of a range once it is in quarantine again, with the error that it had. Performs no I/O."""
    _, is_told, before = row.error.partition(_BEFORE)
    return replace(row, status=FailureStatus.QUARANTINED, replay="", error=before if is_told else row.error)


def give_up_ranges(ledger: Ledger, stream_id: str, shown: Sequence[FailureRow], told: GivenUp) -> Changed:
    """Give up ranges as a person was shown them, in one transaction under the stream's lock; safe to repeat.

    One that is not in quarantine any more, or has another end by now, is refused by a sentence.

    Raises:
        NothingToGiveUp: if the ledger has no row of the stream.
        CommitOutcomeUnknown: if the outcome stayed unknown; repeat it.
    """

    def change(found: FailureRow, _life: str) -> FailureRow | str:
        return why_not_given_up(found) or given_up(found, told)

    def is_done(found: FailureRow) -> bool:
        return found.status is FailureStatus.GIVEN_UP and found.error.startswith(f"{told}{_BEFORE}")

    return _changed(ledger, stream_id, shown, change, is_done)


def take_back_ranges(ledger: Ledger, stream_id: str, shown: Sequence[FailureRow]) -> Changed:
    """Return ranges that were given up to quarantine, in one transaction under the stream's lock; safe to repeat.

    Raises:
        NothingToGiveUp, CommitOutcomeUnknown: as `give_up_ranges`.
        LedgerRefused: if the stream has continued without the same records since, under another number.
    """

    def change(found: FailureRow, life: str) -> FailureRow | str:
        return why_not_taken_back(found, life) or taken_back(found)

    return _changed(ledger, stream_id, shown, change, lambda found: found.status in HELD)


_Change = Callable[[FailureRow, str], FailureRow | str]
"""Given a row and the life of the stream, returns the row that takes its place, or why none does, as a sentence."""


@rerun_while_unknown
@rerun_after_lost_race
def _changed(
    ledger: Ledger,
    stream_id: str,
    shown: Sequence[FailureRow],
    change: _Change,
    is_done: Callable[[FailureRow], bool],
) -> Changed:
    with ledger.transaction() as transaction:
        stream = transaction.lock_stream(stream_id, Lock.UPDATE)
        if stream is None:
            raise NothingToGiveUp(
                f"The ledger does not know the stream {stream_id}; nothing was changed. Check its namespace and name."
            )
        found = _rows(transaction, stream_id)
        done: list[FailureRow] = []
        changed: list[FailureRow] = []
        refused: list[str] = []
        for row in sorted(shown, key=RangeKey.of):
            now = found.get(RangeKey.of(row))
            if now is None or now.until_offset != row.until_offset:
                refused.append(
                    f"The range {RangeKey.of(row)} has changed since it was shown: a replay has landed some of it, or the "
                    "stream is reading it again. `exactlyonce failures --all` shows its status now."
                )
            elif is_done(now):
                done.append(now)
            elif isinstance(it := change(now, stream.life), str):
                refused.append(it)
            else:
                changed.append(it)
        if changed:
            transaction.write_failures(stream_id, tuple(changed))
        return Changed((*done, *changed), tuple(refused))


def _rows(transaction: LedgerTransaction, stream_id: str) -> dict[RangeKey, FailureRow]:
    """Return what is in quarantine or was given up; what is anything else by now is not to be changed."""
    rows = (*held_failures(transaction, stream_id), *transaction.read_failures(stream_id, FailureStatus.GIVEN_UP))
    return {RangeKey.of(row): row for row in rows}
