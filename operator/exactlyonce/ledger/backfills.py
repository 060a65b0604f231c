"""What a backfill has landed into another table than the stream's own: its ranges, part by part. Performs no I/O.

A backfill is of records that the stream may have landed long ago, so neither positions nor failures say what it has landed. Its
own record does, and is written in the transaction of the rows. Parts are rows as those of failed ranges are, and a replay
claims and lands them by the same rules: what is yet to be landed is Quarantined (docs/adr/0050).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from exactlyonce.bounded_json import parse_json
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Partition, key_of

OF_NO_BATCH = BatchNumber(0)


@dataclass(frozen=True, slots=True)
class Occupant:
    """Whose a table is: that of the stream with this id, or one of the ledger itself, where it is None."""

    stream_id: str | None


_ROWS = " rows "


def definition_of(asked: str, rows: str) -> str:
    """Return what a backfill was asked for together with a mark of what makes its rows."""
    return f"{asked}{_ROWS}{rows}"


def asked_in(definition: str) -> str:
    """Return what a backfill was asked for, without the mark of what makes its rows."""
    return definition.rpartition(_ROWS)[0] or definition


@dataclass(frozen=True, slots=True)
class Backfill:
    """One backfill of a stream. `definition` is what it was asked for, as text; another one is another backfill.

    `into` is what it lands into, as a sink says it, and `parts` are all of its ranges, of which none overlaps another.
    """

    name: str
    into: str
    definition: str
    parts: tuple[FailureRow, ...]

    def changed(self, rows: Iterable[FailureRow]) -> Backfill:
        """Return it after some parts have changed; those with the same beginning are replaced.

        Neighbours that have landed become one: a backfill of a year has no more parts than one of a day.

        Raises:
            ValueError: if two parts would hold the same record, which then would land twice.
        """
        parts = {_place(row): row for row in self.parts} | {_place(row): row for row in rows}
        merged: list[FailureRow] = []
        for row in sorted(parts.values(), key=lambda it: (it.partition, it.from_offset)):
            if merged and merged[-1].overlaps(row):
                raise ValueError(f"two parts of the backfill {self.name} hold {row.partition} {row.from_offset}")
            if merged and _are_neighbours(merged[-1], row):
                merged[-1] = replace(row, from_offset=merged[-1].from_offset)
            else:
                merged.append(row)
        return replace(self, parts=tuple(merged))

    def has_landed(self, row: FailureRow) -> bool:
        """Whether all records of a range have landed."""
        return any(
            part.status is FailureStatus.REPLAYED
            and part.partition == row.partition
            and part.from_offset <= row.from_offset
            and row.until_offset <= part.until_offset
            for part in self.parts
        )

    def to_json(self) -> str:
        """Render the parts."""
        return json.dumps([_rendered(row) for row in self.parts])


def parts_from_json(text: str) -> tuple[FailureRow, ...]:
    """Parse what `to_json` renders.

    Raises:
        JsonRefused, KeyError, TypeError, ValueError: if the text is anything else.
    """
    return tuple(
        FailureRow(
            OF_NO_BATCH,
            Partition(it["origin"], key_of(it["partition"])),
            it["from"],
            it["until"],
            FailureStatus(it["status"]),
            it["address"],
            it["error"],
            origin_id=it["originId"],
            fingerprint=Fingerprint.from_json(it["fingerprint"]),
            replay=it["replay"],
        )
        for it in parse_json(text)
    )


def _rendered(row: FailureRow) -> dict[str, object]:
    return {
        "origin": row.partition.origin,
        "partition": str(row.partition.key),
        "from": row.from_offset,
        "until": row.until_offset,
        "status": str(row.status),
        "address": row.address,
        "error": row.error,
        "originId": row.origin_id,
        "fingerprint": None if row.fingerprint is None else row.fingerprint.to_json(),
        "replay": row.replay,
    }


def _place(row: FailureRow) -> tuple[Partition, int]:
    return row.partition, row.from_offset


def _are_neighbours(before: FailureRow, row: FailureRow) -> bool:
    landed = before.status is row.status is FailureStatus.REPLAYED
    return landed and (before.partition, before.until_offset) == (row.partition, row.from_offset)
