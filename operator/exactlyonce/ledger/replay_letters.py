"""The transactions of a replay of dead letters, over any ledger: take letters, land their rows, keep those that fail again.

As with ranges (`ledger.replay`), each locks the stream's row, and none touches its epoch, claim, positions or batches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.letters import (
    LetterKey,
    LetterRow,
    LetterStatus,
    is_held_as,
    status_of,
    taken_by,
    why_letter_stays,
)
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.ledger.races import rerun_after_lost_race, rerun_while_unknown, settle
from exactlyonce.ledger.replay import NothingToReplayInto, ReplayClaim, require_sink


class LettersNotHeld(ExactlyOnceError):
    """Another replay has taken letters, or the stream reads them again, or they are gone; nothing was changed.

    `keys` are theirs, and `told` a sentence for each.
    """

    def __init__(self, keys: frozenset[LetterKey], told: tuple[str, ...]) -> None:
        super().__init__(" ".join(told))
        self.keys, self.told = keys, told


@dataclass(frozen=True, slots=True)
class ClaimedLetters:
    """The letters that a replay has taken, and a sentence for each that it may not take."""

    rows: tuple[LetterRow, ...]
    refused: tuple[str, ...] = ()


@rerun_while_unknown
@rerun_after_lost_race
def claim_letters(ledger: Ledger, claim: ReplayClaim, wanted: Collection[LetterRow]) -> ClaimedLetters:
    """Take letters as they were read, and from another replay that has them: it can land nothing of them any more.

    Safe to repeat. One that is not there any more, or is of another batch by now, is refused by a sentence.

    Raises:
        NothingToReplayInto: if the ledger has no row of the stream.
        CommitOutcomeUnknown: if the outcome stayed unknown; a later replay takes them all the same.
    """
    with ledger.transaction() as transaction:
        stream = transaction.lock_stream(claim.stream_id, Lock.UPDATE)
        if stream is None:
            raise NothingToReplayInto(f"The ledger has no row of {claim.stream_id}; start the stream first.")
        require_sink(transaction, claim)
        found = _found(transaction, claim.stream_id, [row.key for row in wanted])
        set_backs = transaction.read_set_backs(claim.stream_id)
        rows: list[LetterRow] = []
        refused: list[str] = []
        for read in wanted:
            row = found.get(read.key)
            if row is None or row.batch != read.batch:
                refused.append(
                    f"The dead letter {read.identifier} is gone, or the stream has read its record again; nothing was changed."
                )
            elif (reason := why_letter_stays(row, status_of(row, set_backs), stream.life)) is not None:
                refused.append(reason)
            else:
                rows.append(taken_by(row, claim.token))
        transaction.write_letters(claim.stream_id, tuple(rows))
        return ClaimedLetters(tuple(rows), tuple(refused))


def settle_letters(
    ledger: Ledger,
    claim: ReplayClaim,
    held: Sequence[LetterRow],
    changed: Sequence[LetterRow],
    write: Callable[[LedgerTransaction], int] = lambda _: 0,
) -> int | None:
    """Write the rows of some letters and what became of each, in one transaction; return how many rows took effect.

    `held` are the letters as they were claimed, `changed` the same afterwards: `letters.replayed` or `letters.kept_on`. The
    number is None where the outcome had to be looked for.

    Raises:
        LettersNotHeld: if some are not this replay's any more; nothing was written.
        SinkChanged: if rows are to land, and the stream lands into something else by now.
        CommitOutcomeUnknown: if the outcome could not be settled; a later replay finds what is left.
    """
    return settle(
        lambda: _settle_once(ledger, claim, held, changed, write), lambda: _has_changed(ledger, claim, changed)
    )


@rerun_after_lost_race
def _settle_once(
    ledger: Ledger,
    claim: ReplayClaim,
    held: Sequence[LetterRow],
    changed: Sequence[LetterRow],
    write: Callable[[LedgerTransaction], int],
) -> int:
    with ledger.transaction() as transaction:
        require_letters_held(transaction, claim, held)
        if any(row.status is LetterStatus.REPLAYED for row in changed):
            require_sink(transaction, claim)
        written = write(transaction)
        transaction.write_letters(claim.stream_id, tuple(changed))
        return written


def require_letters_held(transaction: LedgerTransaction, claim: ReplayClaim, held: Sequence[LetterRow]) -> None:
    """Lock the stream, and require that the ledger has each letter as this replay has claimed it: its compare-and-set.

    Raises:
        LettersNotHeld: if it has not.
    """
    stream = transaction.lock_stream(claim.stream_id, Lock.UPDATE)
    found = _found(transaction, claim.stream_id, [row.key for row in held])
    set_backs = transaction.read_set_backs(claim.stream_id)
    lost = [
        row
        for row in held
        if stream is None or row.life != stream.life or not is_held_as(found.get(row.key), row, set_backs)
    ]
    if lost:
        raise LettersNotHeld(
            frozenset(row.key for row in lost),
            tuple(
                f"The dead letter {row.identifier} is not held by this replay any more: another replay has taken it, the "
                "stream reads its record again, or it is gone. Nothing was written of it by this replay."
                for row in lost
            ),
        )


@rerun_after_lost_race
def _has_changed(ledger: Ledger, claim: ReplayClaim, changed: Sequence[LetterRow]) -> bool:
    """Look under the stream's lock whether the letters are what this replay has made of them.

    A letter that was landed stays that; one that was kept may be another replay's by now, and is asked only where there is no
    other one. To keep it once more changes nothing.
    """
    with ledger.transaction() as transaction:
        transaction.lock_stream(claim.stream_id, Lock.UPDATE)
        landed = [row for row in changed if row.status is LetterStatus.REPLAYED]
        asked = landed or list(changed)
        found = _found(transaction, claim.stream_id, [row.key for row in asked])
        return all(_is_there(found.get(row.key), row) for row in asked)


def _is_there(found: LetterRow | None, row: LetterRow) -> bool:
    return found is not None and (found.batch, found.status, found.replay) == (row.batch, row.status, row.replay)


def _found(transaction: LedgerTransaction, stream_id: str, keys: Collection[LetterKey]) -> dict[LetterKey, LetterRow]:
    return {row.key: row for row in transaction.read_letters(stream_id, keys)}
