"""What a log answers about dead letters: malformed records are kept by a sink whose own database holds the ledger."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import NoReturn

from exactlyonce.ledger.backfills import Backfill, Occupant
from exactlyonce.ledger.letters import LetterKey, LetterRow, SetBack, SetBacksUnknown
from exactlyonce.positions.ranges import Epoch


class NoLetters:
    """The part of a `LedgerTransaction` that is about dead letters and other tables, of which a log has none."""

    def delete_dead_letters(self, stream_id: str, age: timedelta, most: int) -> int:
        """There is none to delete."""
        return 0

    def read_letters(self, stream_id: str, keys: Collection[LetterKey]) -> tuple[LetterRow, ...]:
        """Return none."""
        return ()

    def write_letters(self, stream_id: str, rows: tuple[LetterRow, ...]) -> None:
        """There is none to write."""

    def write_sink(self, stream_id: str, epoch: Epoch, sink: str) -> None:
        """There is nothing to record: beside a log a stream has one folder, which cannot be changed and says whose it is."""

    def read_sink(self, stream_id: str) -> str | None:
        """Return that nothing is recorded."""
        return None

    def read_backfill(self, stream_id: str, name: str) -> Backfill | None:
        """Return that there is none."""
        return None

    def occupant_of(self, place: str, stream_id: str, own: str) -> Occupant | None:
        """Return that it is nobody's."""
        return None

    def write_backfill(self, stream_id: str, backfill: Backfill) -> None:
        """There is nothing to record: no other table takes rows beside a log."""

    def read_set_backs(self, stream_id: str) -> tuple[SetBack, ...]:
        """Return none: they are not recorded."""
        return ()

    def refuse_given_ranges(self, stream_id: str) -> NoReturn:
        """Refuse: what was Lost and is read again must not be taken up, and nothing says whether it is.

        Raises:
            SetBacksUnknown: always.
        """
        raise SetBacksUnknown(
            f"Ranges given by hand cannot be replayed into {stream_id}: its ledger is an object log, which does not record "
            "the positions to which the stream was set back, so which of these records have landed since is unknown. Replay "
            "what is in quarantine, without --from ranges."
        )

    def write_set_backs(self, stream_id: str, set_backs: tuple[SetBack, ...]) -> None:
        """They are not recorded: a log has no dead letters, and takes up no ranges given by hand."""
