"""A folder of files with records in quarantine, for tests of replays into it; its batches land as a driver lands them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exactlyonce.connectors.files.columns import Type
from exactlyonce.connectors.files.connector import FILES
from exactlyonce.connectors.files.manifest import Manifest, ReplayWrite, Write
from exactlyonce.connectors.files.spec import FilesSink, ManifestKind
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.replay import ReplayClaim
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Ranges
from exactlyonce_spark.connectors.files.replaying import PreparedFolderOfReplay
from exactlyonce_spark.connectors.files.target import WrittenFiles
from exactlyonce_spark.manifest_landing import land_manifest
from exactlyonce_spark.planned import PlannedBatch
from exactlyonce_spark.replay import Replay
from exactlyonce_spark.replay_outcome import ReplayOutcome, ReplayPace
from tests.compacted_lake import COLUMNS, CompactedLake
from tests.ledgers import IDS, P0, P1, STREAM
from tests.object_logs import ledger_on
from tests.simulation.database import MemoryDatabase, MemoryLedger
from tests.simulation.objects import MemoryObjects
from tests.simulation.source import MemoryTopic

LEDGERS: dict[str, Callable[[], Ledger]] = {
    "in memory": lambda: MemoryLedger(MemoryDatabase()),
    "object log": lambda: ledger_on(MemoryObjects(), every=5),
}
KEY = RangeKey(BatchNumber(3), P0, 10)
IN_QUARANTINE = Counter(range(1010, 1020))


class Records:
    """A `RecordReader`: a record's id is its offset and 1,000."""

    def rows(self, ranges: Ranges) -> Sequence[int]:
        return [1000 + at for _, span in ranges.items() for at in range(span.from_offset, span.until_offset)]

    def malformed(self, ranges: Ranges) -> Sequence[Any]:
        return ()


class ReplayedLake(CompactedLake):
    """A folder whose batches land as a driver lands them, with ten records in quarantine."""

    def writer(self) -> Writer:
        """A driver, like a replay, writes the rows that it is given."""
        return Writer(self)

    def land(self, first: int, last: int) -> None:
        """Land batches as a driver lands them."""
        for batch in range(first, last + 1):
            ranges = Ranges({P0: OffsetRange(batch - 1, batch), P1: OffsetRange(0, 0)})
            planned = PlannedBatch(BatchNumber(batch), ranges, IDS)
            ids = [2 * batch, 2 * batch + 1]
            land_manifest(self.ledger, self.permit, self.target, planned, ids, lambda planned=planned: (planned, None))  # type: ignore[misc]

    def quarantine(self) -> None:
        """Put the ten records into quarantine."""
        row = FailureRow(
            BatchNumber(3), P0, 10, 20, FailureStatus.QUARANTINED, "memory", "it failed",
            origin_id="id-1", fingerprint=Fingerprint(19, "id-1 19", None, 0), life=self.author.life,
        )  # fmt: skip
        with self.ledger.transaction() as transaction:
            transaction.write_failures(STREAM, (row,))

    def replay(self, token: str, most: int = 100, columns: dict[str, Type] | None = None) -> ReplayOutcome:
        """Replay them under a token, so many at once."""
        return self.begun(token, most, columns).run([KEY])

    def begun(self, token: str, most: int = 100, columns: dict[str, Type] | None = None) -> Replay:
        """A replay that has not claimed anything yet."""
        folder = PreparedFolderOfReplay(
            self.folder.sink, self.store, self.ledger, STREAM, _columns=dict(columns or COLUMNS)
        )
        target = folder.with_writer(self.writer(), token)
        topic = MemoryTopic({P0: 40, P1: 40})
        return Replay(self.ledger, ReplayClaim(STREAM, token), target, topic, Records(), ReplayPace(most))

    def batches(self) -> set[BatchNumber | None]:
        """The batches of the files that the ledger names; None where no batch has taken one over."""
        return {file.batch for file in FILES.landed(self.folder.sink, self.ledger, STREAM)}

    def own(self, last: int) -> Counter[int]:
        """The ids of the batches themselves, up to this one."""
        return Counter(range(2, 2 * last + 2))


@dataclass
class Writer:
    """A `FileWriter` of a file for each attempt."""

    lake: ReplayedLake

    def write(self, write: Write | ReplayWrite, rows: Sequence[int]) -> WrittenFiles:
        return WrittenFiles((self.lake.put(write.name, rows),), len(rows))

    def learn(self, manifest: Manifest) -> None:
        """Sizes do not matter."""


def lake_at(
    path: Path, ledger: str = "in memory", manifest: ManifestKind = ManifestKind.SPARK_METADATA
) -> ReplayedLake:
    """A lake of four batches, with ten records in quarantine."""
    lake = ReplayedLake(FILES.folder(FilesSink(path=str(path / "lake"), manifest=manifest), {}), LEDGERS[ledger]())
    lake.land(1, 4)
    lake.quarantine()
    return lake


def empty_lake_at(path: Path) -> ReplayedLake:
    """A lake in which nothing has landed: all records so far are in quarantine."""
    lake = ReplayedLake(FILES.folder(FilesSink(path=str(path / "lake")), {}), LEDGERS["in memory"]())
    lake.quarantine()
    return lake
