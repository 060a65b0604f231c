"""A world in which the sink is changed while replays run that were decided for the one before, and backfills land elsewhere.

What a backfill lands is of a table of its own, which the oracle counts after every commit: each record at most once, and
exactly those of which the backfill's record says that they have landed. All parts together are what was asked for at all times,
and a run that nothing disturbs leaves none of them. Once in a while the stream itself moves to the table of a backfill.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from functools import partial

from exactlyonce.ledger.backfills import OF_NO_BATCH, Backfill
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.other_tables import IntoOwnTable
from exactlyonce.ledger.planned_backfills import plan_backfill
from exactlyonce.ledger.replay import ReplayClaim, SinkChanged
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import OffsetRange, Partition
from exactlyonce_spark.replay import Replay
from exactlyonce_spark.replay_outcome import ReplayPace
from tests.simulation.database import MemoryDatabase, MemoryTransaction
from tests.simulation.replay_world import MemoryRecords, ReplayWorld
from tests.simulation.resource import STREAM_ID
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Process
from tests.simulation.target import MemoryTarget

MOST_BACKFILLS = 8
NAMES = ("january", "february")


Place = tuple[Partition, int]


def _span(row: FailureRow) -> OffsetRange:
    return OffsetRange(row.from_offset, row.until_offset)


def _places(rows: Sequence[FailureRow]) -> set[Place]:
    return {(row.partition, offset) for row in rows for offset in range(row.from_offset, row.until_offset)}


class DecidedTarget(MemoryTarget):
    """The table that a replay was decided for; `left` are landings into one that the stream had left."""

    def __init__(self, database: MemoryDatabase, sink: str, left: list[str]) -> None:
        super().__init__(database, 0)
        self._sink, self._left = sink, left

    def write(self, transaction: MemoryTransaction, rows: Sequence[Hashable]) -> int:
        """Write rows, and note where the stream lands: nobody else changes that before this transaction has ended."""
        lands_into = transaction.read_sink(STREAM_ID)
        if rows and lands_into not in (None, self._sink):
            self._left.append(f"a replay lands into {self._sink}, and the stream into {lands_into}: {rows}")
        return super().write(transaction, rows)


Row = tuple[str, int, int]
"""A record as the topic has it: the topic's id, the partition and the offset."""


class OtherTable(MemoryTarget):
    """The table of a backfill, beside the stream's own."""

    def __init__(self, database: MemoryDatabase, name: str) -> None:
        super().__init__(database, 0)
        self._name = name

    def write(self, transaction: MemoryTransaction, rows: Sequence[Hashable]) -> int:
        """Write rows, and on a COMMIT note where the stream lands: nobody changes that before this transaction has ended."""
        if (lands_into := transaction.read_sink(STREAM_ID)) == f"table public.{self._name}":
            transaction.writes[("into own table", self._name)] = (
                f"a backfill lands into {lands_into}, as the stream does"
            )
        transaction._step("write rows of a backfill")
        for row in rows:
            key = ("backfilled", self._name, row)
            transaction.writes[key] = (transaction._get(key) or 0) + 1
        return len(rows)


class BesideWorld(ReplayWorld):
    """A world of replays with a sink that changes; the resource has the new one before any driver has."""

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        super().__init__(seed, scenario)
        self._dice = random.Random(
            f"beside {seed}"
        )  # so that what strikes the stream stays what it is in a ReplayWorld
        self.sink_of_drivers: str | None = "table 0"
        self.changes = 0
        self.left: list[str] = []
        self.refusals: list[str] = []
        self._decided: dict[Process, str] = {}
        self._moves = random.Random(f"moves {seed}")
        self.backfills: list[Process] = []
        self.meant: dict[str, set[Hashable]] = {}
        self.ordered: dict[str, list[set[Place]]] = {name: [] for name in NAMES}
        self.unfinished: list[str] = []
        self._is_finishing = False

    def strike_sink(self) -> None:
        """Somebody changes the sink, and a driver of it is started sooner or later."""
        super().strike_sink()
        if not self.calm and self._dice.random() < 0.005:
            self.changes += 1
            moves = self._moves.random() < 0.3
            self.sink_of_drivers = f"table public.{NAMES[0]}" if moves else f"table {self.changes}"
        if not self.calm and len(self.backfills) < MOST_BACKFILLS and self._dice.random() < 0.02:
            process = self.new_process(f"backfill {len(self.backfills) + 1}")
            self.backfills.append(process)
            self.compactors.append(process)
            name, asked = self._dice.choice(NAMES), self._given()
            self.simulation.spawn(process, process.name, partial(self._backfill, process, name, asked))
        for process in self.backfills:
            if not process.ended and self._dice.random() < 0.01:
                self.simulation.kill(process)

    def _given(self) -> tuple[FailureRow, ...]:
        """Return ranges of what the topic holds now."""
        parts = []
        for partition, end in sorted(self.topic.ends.items()):
            begin = self._dice.randint(0, end)
            until = self._dice.randint(begin, end)
            if begin < until:
                parts.append(
                    FailureRow(
                        OF_NO_BATCH, partition, begin, until, FailureStatus.QUARANTINED, "memory", "",
                        origin_id=self.topic.id_of(partition.origin),
                        fingerprint=self.topic._fingerprint(partition, until - 1),
                    )
                )  # fmt: skip
        return tuple(parts)

    def calm_sink(self) -> None:
        """Somebody has each backfill continued."""
        super().calm_sink()
        if not self._is_finishing:
            self._is_finishing = True
            for name in NAMES:
                process = self.new_process(f"last backfill of {name}")
                self.compactors.append(process)
                self.simulation.spawn(process, process.name, partial(self._finish, process, name))

    def _finish(self, process: Process, name: str) -> None:
        """Run a backfill that is there until its end, and once more: its second COMMIT shows what the first run has left."""
        for _ in range(2):
            if ("backfill", STREAM_ID, name) in self.database.tables.rows:
                self._backfill(process, name, ())

    def _backfill(self, process: Process, name: str, asked: tuple[FailureRow, ...]) -> None:
        """Run one backfill of a name; those of one name are asked for the same."""
        meant = {record for row in asked for record in self.records_in(row.partition, _span(row))}
        is_calm, own = self.calm, self.sink_of_drivers or ""
        self.ordered[name].append(_places(asked))
        try:
            planned = plan_backfill(self.ledger(), STREAM_ID, Backfill(name, f"table {name}", "", asked), own)
            if planned.parts == asked:
                self.meant[name] = meant
            claim = ReplayClaim(STREAM_ID, process.name, f"table {name}", name, own)
            pace = ReplayPace(self._dice.randint(1, 5))
            target = OtherTable(self.database, name)
            replay = Replay(self.ledger(), claim, target, self.source_check(), MemoryRecords(self, process), pace)
            outcome = replay.run(())
        except IntoOwnTable as problem:
            self.refusals.append(str(problem))
            return
        found = self.database.tables.rows.get(("backfill", STREAM_ID, name))
        left = [row for row in found.parts if row.status in HELD] if found else []
        if is_calm and left and not outcome.told:
            self.unfinished.append(f"a backfill has ended, said nothing, and left {left}")

    def _wrong_backfill(self) -> str | None:
        """Return what is wrong with the tables of the backfills, by what their own records say."""
        rows = self.database.tables.rows
        for key, backfill in rows.items():
            if key[0] == "into own table":
                return str(backfill)
            if key[0] == "backfill" and _places(backfill.parts) not in self.ordered[key[2]]:
                return f"the parts of a backfill are not what was asked for: {backfill.parts}"
        if self.unfinished:
            return self.unfinished.pop()
        counts = {key[1:]: count for key, count in rows.items() if key[0] == "backfilled"}
        doubled = [key for key, count in counts.items() if count > 1]
        others = [(name, row) for name, row in counts if name in self.meant and row not in self.meant[name]]
        if others:
            return f"a backfill has landed what it was not asked for: {others}"
        if doubled:
            return f"a backfill has landed twice: {doubled}"
        said = {
            (key[2], row.partition.key, offset)
            for key, backfill in rows.items()
            if key[0] == "backfill"
            for row in backfill.parts
            if row.status is FailureStatus.REPLAYED
            for offset in range(row.from_offset, row.until_offset)
        }
        found = {(name, row[1], row[2]) for name, row in counts}
        return f"of this, record and table of a backfill differ: {sorted(said ^ found)}" if said != found else None

    def claim_of(self, process: Process) -> ReplayClaim:
        """Return the claim of a replay, which is decided for what the resource has now."""
        sink = self.sink_of_drivers or ""
        self._decided[process] = sink
        return ReplayClaim(STREAM_ID, process.name, sink)

    def target_of(self, process: Process) -> MemoryTarget:
        """Return what a replay writes to."""
        return DecidedTarget(self.database, self._decided[process], self.left)

    def wrong_since_commit(self) -> str | None:
        """A replay has landed into what the stream does not land into any more."""
        return self.left.pop() if self.left else self._wrong_backfill() or super().wrong_since_commit()

    def _replay(self, process: Process) -> None:
        try:
            super()._replay(process)
        except SinkChanged as problem:
            self.refusals.append(str(problem))
