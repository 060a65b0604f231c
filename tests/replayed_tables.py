"""A stream over a table with a log, of either kind, that has records in quarantine, and replays of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import Field, write_deltalake
from deltalake.schema import PrimitiveType
from pyiceberg.types import LongType, StringType

from exactlyonce.connectors.files.columns import Type
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.replay import ReplayClaim
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Ranges
from exactlyonce_spark.connectors.delta import replaying
from exactlyonce_spark.connectors.delta.replaying import replay_target, stream_in
from exactlyonce_spark.connectors.delta.target import TableTarget
from exactlyonce_spark.manifest_landing import land_manifest
from exactlyonce_spark.planned import PlannedBatch
from exactlyonce_spark.replay import Replay
from exactlyonce_spark.replay_outcome import ReplayOutcome, ReplayPace
from tests.delta_rig import DeltaStream, Row
from tests.iceberg_rig import IDENTIFIER, IcebergStream
from tests.ledgers import IDS, P0, P1, STREAM
from tests.replayed_lake import LEDGERS
from tests.simulation.source import MemoryTopic

KEY = RangeKey(BatchNumber(3), P0, 10)
IN_QUARANTINE = list(range(1010, 1020))


@dataclass
class RecordsOf:
    """A `RecordReader`: a record's id is its offset and 1,000."""

    stream: DeltaStream

    def rows(self, ranges: Ranges) -> Sequence[Row]:
        offsets = [at for _, span in ranges.items() for at in range(span.from_offset, span.until_offset)]
        return [self.stream.row(1000 + at, self.stream.days[at % 2]) for at in offsets]

    def malformed(self, ranges: Ranges) -> Sequence[Any]:
        return ()


def stream_at(kind: type[DeltaStream], path: Path, ledger: str = "in memory", **more: Any) -> DeltaStream:
    """A stream of two batches, with ten records in quarantine."""
    stream = kind(path / "table", LEDGERS[ledger](), **more)
    stream.land(stream.driver(), 1, 2)
    quarantine(stream)
    return stream


def quarantine(stream: DeltaStream) -> None:
    """Put the ten records into quarantine."""
    row = FailureRow(
        BatchNumber(3), P0, 10, 20, FailureStatus.QUARANTINED, "memory", "it failed",
        origin_id="id-1", fingerprint=Fingerprint(19, "id-1 19", None, 0), life=life_of(stream.ledger),
    )  # fmt: skip
    with stream.ledger.transaction() as transaction:
        transaction.write_failures(STREAM, (row,))


def life_of(ledger: Ledger) -> str:
    """The stream's life, as names of files have it."""
    return stream_in(ledger, STREAM).life


def begun(stream: DeltaStream, token: str, most: int = 100, columns: Mapping[str, Type] | None = None) -> Replay:
    """A replay that has not claimed anything yet, with columns of its own or those of the stream."""
    before, stream.columns = stream.columns, columns or stream.columns
    target = stream.target()
    stream.columns = before
    landing = replay_target(target, stream.ledger, STREAM, life_of(stream.ledger), token)
    topic = MemoryTopic({P0: 40, P1: 40})
    return Replay(stream.ledger, ReplayClaim(STREAM, token), landing, topic, RecordsOf(stream), ReplayPace(most))


def replayed(stream: DeltaStream, token: str, most: int = 100) -> ReplayOutcome:
    """Replay the ten records under a token, so many at once."""
    return begun(stream, token, most).run([KEY])


def waiting(stream: DeltaStream) -> Mapping[str, str]:
    """What replays have landed and no batch has taken over."""
    with stream.ledger.transaction() as transaction:
        return dict(transaction.read_replayed(STREAM))


def files_of_replays(stream: DeltaStream) -> list[Path]:
    """The files that replays have written."""
    return sorted(path for path in stream.root.rglob("replay-*/**/*.parquet") if path.is_file())


def own(last: int) -> Counter[int]:
    """The ids of the batches themselves, up to this one."""
    return Counter(range(2, 2 * last + 2))


def land_nothing(stream: DeltaStream, target: TableTarget, number: int) -> None:
    """Land a batch of whose records no rows were made."""
    ranges = Ranges({P0: OffsetRange(number - 1, number), P1: OffsetRange(0, 0)})
    planned = PlannedBatch(BatchNumber(number), ranges, IDS)
    land_manifest(stream.ledger, stream.permit, target, planned, [], lambda: (planned, None))


def add_column(stream: DeltaStream, name: str) -> None:
    """Somebody adds a column of numbers to the table."""
    if isinstance(stream, IcebergStream):
        with stream.table().update_schema() as update:
            update.add_column(name, LongType())
        return
    stream.table().alter.add_columns([Field(name, PrimitiveType("long"))])


def retype(stream: DeltaStream) -> None:
    """Somebody makes the column of days another one: of another type, or, as Iceberg has it, with another id."""
    if isinstance(stream, IcebergStream):
        with stream.table().update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("day")
        with stream.table().update_schema() as update:
            update.add_column("day", StringType())
        return
    others = pa.table({"id": [900], "day": pa.array([7], pa.int64())})
    write_deltalake(str(stream.root), others, mode="overwrite", schema_mode="overwrite")


def notes(stream: DeltaStream) -> Counter[Any]:
    """Count the values of the column `note` as the table's library reads them."""
    if isinstance(stream, IcebergStream):
        return Counter(stream.table().scan(selected_fields=("note",)).to_arrow()["note"].to_pylist())
    return Counter(stream.table().to_pyarrow_table(columns=["note"])["note"].to_pylist())


def recreate(stream: DeltaStream) -> None:
    """Somebody drops the table and makes another one of its name, whose files stay where they were."""
    if isinstance(stream, IcebergStream):
        stream.catalog().drop_table(IDENTIFIER)
        stream.made_by_another()
        return
    for version in (stream.root / "_delta_log").glob("*.json"):
        version.unlink()
    write_deltalake(str(stream.root), pa.table({"id": pa.array([], pa.int64()), "day": pa.array([], pa.string())}))


def told(stream: DeltaStream, key: str) -> list[str]:
    """What the table's history says of this stream's commits under a key, as far as they have it."""
    if isinstance(stream, IcebergStream):
        found = [snapshot.summary for snapshot in stream.table().snapshots()]
        said = [summary.additional_properties.get(f"exactlyonce.{key}") for summary in found if summary is not None]
    else:
        said = [commit.get("exactlyonce", {}).get(key) for commit in stream.table().history()]
    return [str(value) for value in said if value is not None]


def at_its_files(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something, once, when a replay has written the files of a chunk."""

    def reached(point: str, batch: int | None = None) -> None:
        assert point == "replay.files-written"
        monkeypatch.setattr(replaying, "reached", lambda *_: None)
        act()

    monkeypatch.setattr(replaying, "reached", reached)
