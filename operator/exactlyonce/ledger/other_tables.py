"""Whether a backfill may land into a table: not where a stream lands, nor into what the ledger itself keeps.

A database knows one table by several names, and rows of one table are rows of another: of the one that it is a partition of, or
inherits from. So the ledger's database is asked, under the stream's lock (docs/adr/0050).
"""

from __future__ import annotations

from dataclasses import dataclass

from exactlyonce.errors import Refused
from exactlyonce.ledger.port import LedgerTransaction


class IntoTakenTable(Refused):
    """A backfill is to land where a stream lands, or into a table of the ledger; nothing was written."""


class IntoOwnTable(IntoTakenTable):
    """A backfill is to land into the stream's own table, where its records would be twice."""


@dataclass(frozen=True, slots=True)
class OtherTable:
    """What a backfill lands into, and what the stream's resource names as its own; empty where nobody knows that."""

    into: str
    own: str = ""


def require_other_table(transaction: LedgerTransaction, stream_id: str, table: OtherTable) -> None:
    """Require that rows of a backfill reach no table that a stream lands into, and none of the ledger.

    Asked after rows were written, the answer holds until the COMMIT: the lock of an INSERT keeps another name, and an ATTACH of
    the table as a partition, out.

    Raises:
        IntoOwnTable: naming the way into the stream's own.
        IntoTakenTable: naming the other stream, or the ledger.
    """
    found = transaction.occupant_of(table.into, stream_id, table.own)
    if found is None:
        return
    if found.stream_id is None:
        raise IntoTakenTable(
            f"{table.into} is a table of the ledger, which a backfill would damage. Name a table of your own"
        )
    if found.stream_id != stream_id:
        raise IntoTakenTable(
            f"The stream {found.stream_id} lands into {table.into}, or rows of the one table are rows of the other. Name a "
            "table that no stream lands into"
        )
    raise IntoOwnTable(
        f"{stream_id} itself lands into {table.into}, or rows of the one table are rows of the other, and a backfill would "
        "land its records there twice. Name another table; to land there what a reset has skipped, or what has failed, "
        "replay it without naming a table"
    )
