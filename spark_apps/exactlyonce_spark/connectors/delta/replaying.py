"""A table with a log as a replay writes to it: files that no log names, then the ledger's entry. No pyspark here.

The replay commits nothing to the table: the next batch that lands takes its files over, and commits them with its own, in the
version that has its number. So no commit of a replay has to be told from its repetition. docs/adr/0052.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exactlyonce.connectors.files.manifest import Author, ReplayWrite
from exactlyonce.ledger.port import Ledger, LedgerTransaction
from exactlyonce.ledger.replay import NothingToReplayInto
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.connectors.delta.manifest import TableManifest
from exactlyonce_spark.connectors.delta.prepared import TableOfStream
from exactlyonce_spark.connectors.delta.target import TableTarget
from exactlyonce_spark.connectors.ports import FittedColumn, PositionPart, YieldedColumn
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.target import DeadLetter


@dataclass(frozen=True, slots=True)
class WrittenChunk:
    """The files of a chunk, under the name of the attempt that wrote them."""

    name: str
    manifest: TableManifest


@dataclass(frozen=True, slots=True)
class TableReplayTarget:
    """A `ReplayTarget` that `WritesAhead`, of the replay with a token, in one life of the stream."""

    stream_id: str
    life: str
    token: str
    table: TableTarget

    def prepare(self, batch: BatchNumber, rows: Any) -> WrittenChunk:
        """Write the rows into files that neither the ledger nor the table's log names."""
        write = ReplayWrite.draw(self.life, self.token, batch)
        manifest = self.table.written(write, rows)
        reached("replay.files-written", batch)
        return WrittenChunk(write.name, manifest)

    def write(self, transaction: LedgerTransaction, rows: WrittenChunk) -> int:
        """Let the files count; a chunk of which no row was made has none."""
        if rows.manifest.manifest.files:
            transaction.write_replayed(self.stream_id, rows.name, rows.manifest.to_json())
        return rows.manifest.manifest.rows

    def write_dead_letters(
        self, transaction: Any, batch: BatchNumber, letters: Sequence[DeadLetter], origin_ids: Mapping[str, str]
    ) -> int:
        """There are none: a rule of the resource refuses them with such a sink."""
        raise AssertionError("a table with a log keeps no dead letters")


@dataclass(frozen=True)
class PreparedTableOfReplay:
    """A `PreparedReplay`: the table, as the stream's latest driver has left it."""

    table: TableOfStream
    ledger: Ledger

    def fit(
        self, yielded: Sequence[YieldedColumn], positions: Mapping[str, PositionPart], *, deletes: bool
    ) -> tuple[FittedColumn, ...]:
        """Return the columns, which are handed over as they are."""
        return self.table.fit(yielded, positions, deletes=deletes)

    def target(self, columns: Sequence[FittedColumn], token: str) -> TableReplayTarget:
        """Return the target, whose rows have no column that the table lacks.

        Raises:
            Refused: if a driver would be refused, or the rows do not fit the table.
        """
        return replay_target(self.table.opened(), self.ledger, self.table.stream_id, self.table.author.life, token)


def prepare_table_replay(
    ledger: Ledger, stream_id: str, table: Callable[[Author], TableOfStream]
) -> PreparedTableOfReplay:
    """Return the table of a stream, for a replay; nothing is asked of it before the columns are known.

    Raises:
        NothingToReplayInto: if the ledger does not know the stream.
    """
    return PreparedTableOfReplay(table(Author.of(stream_in(ledger, stream_id))), ledger)


def stream_in(ledger: Ledger, stream_id: str) -> StreamRow:
    """Return the stream's row.

    Raises:
        NothingToReplayInto: if there is none.
    """
    view = ledger.view(stream_id)
    if view is None:
        raise NothingToReplayInto(f"The ledger has no row of {stream_id}; start the stream first.")
    return view.stream


def replay_target(target: TableTarget, ledger: Ledger, stream_id: str, life: str, token: str) -> TableReplayTarget:
    """Return the target of a replay over a table, which is held to the ledger first.

    Raises:
        Refused: as `PreparedTableOfReplay.target`.
    """
    with ledger.transaction() as transaction:
        committables = transaction.read_committables(stream_id)
    target.require_replayable(committables)
    return TableReplayTarget(stream_id, life, token, target)
