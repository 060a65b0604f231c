"""A person's word on a ledger that went back under its replays: what the sink has of its quarantine. Then they continue.

The sink has committed loads with numbers that the ledger does not know (docs/adr/0058). What those loads have rows of only a
person can find out, by looking for the records.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from exactlyonce.errors import Refused
from exactlyonce.ledger.held import held_failures
from exactlyonce.ledger.port import Ledger, Lock
from exactlyonce.ledger.races import rerun_after_lost_race, rerun_while_unknown
from exactlyonce.ledger.replay_decisions import COUNT_ENTRY, standing_of
from exactlyonce.ledger.replay_rules import Piece, parted
from exactlyonce.ledger.rows import FailureRow, FailureStatus

LEAP = 1_000_000
"""The next number is behind a multiple of this, so that a person need not know how many loads the ledger has forgotten."""

_PART = re.compile(r"(?P<batch>[0-9]{1,19})/(?P<partition>.+)/(?P<start>[0-9]{1,80})(-(?P<end>[0-9]{1,80}))?")


class PartUnfit(Refused):
    """What a person has found in the sink is nothing that the ledger has in quarantine; nothing was changed."""


@dataclass(frozen=True, slots=True)
class FoundPart:
    """What of a range in quarantine the sink has: `end` is the position behind it, None where it has all of the range."""

    batch: int
    partition: str
    start: int
    end: int | None

    @classmethod
    def parse(cls, text: str) -> FoundPart:
        """Parse the id of a range, such as `12/orders-0/340`, or of a part of one, such as `12/orders-0/340-350`.

        Raises:
            PartUnfit: if it is something else.
        """
        found = _PART.fullmatch(text)
        end = None if found is None or found["end"] is None else int(found["end"])
        if found is None or (end is not None and end <= int(found["start"])):
            raise PartUnfit(
                f"{text!r} names no part of a range. Write the id of a range, such as 12/orders-0/340, or a part of one with "
                "the position behind it, such as 12/orders-0/340-350."
            )
        return cls(int(found["batch"]), found["partition"], int(found["start"]), end)

    def __str__(self) -> str:
        return f"{self.batch}/{self.partition}/{self.start}{'' if self.end is None else f'-{self.end}'}"

    def is_in(self, row: FailureRow) -> bool:
        """Whether a range holds this part."""
        end = row.until_offset if self.end is None else self.end
        is_there = (row.batch, str(row.partition)) == (self.batch, self.partition)
        return is_there and row.from_offset <= self.start < end <= row.until_offset and not row.is_decided


@rerun_while_unknown
@rerun_after_lost_race
def settle_restored(ledger: Ledger, stream_id: str, parts: Sequence[FoundPart]) -> int:
    """Mark parts of the quarantine as Replayed, and let the next replay have a number that the sink does not know.

    Returns the count of decided loads from now on. Where the sink knows the next number nonetheless, replays are refused again.

    Raises:
        PartUnfit: if a part is in no range in quarantine, or is decided.
        CommitOutcomeUnknown: if the outcome stayed unknown; look at the quarantine before it is repeated.
    """
    with ledger.transaction() as transaction:
        if transaction.lock_stream(stream_id, Lock.UPDATE) is None:
            raise PartUnfit(f"The ledger does not know the stream {stream_id}; nothing was changed.")
        held = list(held_failures(transaction, stream_id))
        changed: dict[FailureRow, None] = {}
        for part in sorted(parts, key=lambda it: (it.batch, it.partition, it.start)):
            row = next((it for it in held if part.is_in(it)), None)
            if row is None:
                raise PartUnfit(
                    f"The ledger has no range in quarantine that holds {part} and is not decided, so nothing was changed. "
                    "`exactlyonce failures` lists the ranges."
                )
            left, done, rest = _split(row, part)
            changed.pop(row, None)
            held = [it for it in held if it != row] + list(rest)
            changed.update(dict.fromkeys((*left, done, *rest)))
        if changed:
            transaction.write_failures(stream_id, tuple(changed))
        count = (standing_of(transaction.read_replayed(stream_id)).count // LEAP + 1) * LEAP
        transaction.write_replayed(stream_id, COUNT_ENTRY, str(count))
        return count


def _split(row: FailureRow, part: FoundPart) -> tuple[tuple[FailureRow, ...], FailureRow, tuple[FailureRow, ...]]:
    """Return what of a range is before a part, the part, and what is behind it; the rest stays in quarantine."""
    row = replace(row, status=FailureStatus.QUARANTINED, replay="")
    left: tuple[FailureRow, ...] = ()
    if part.start > row.from_offset:
        before, row = parted(Piece(row, part.start), FailureStatus.QUARANTINED)
        left = (before,)
    done, *rest = parted(Piece(row, row.until_offset if part.end is None else part.end), FailureStatus.REPLAYED)
    return left, done, tuple(rest)
