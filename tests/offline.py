"""A stream as drivers would have left it, made without any: by the calls that seed, claim and land."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from exactlyonce.api.phases import TransitionReason
from exactlyonce.api.status import Phase, StreamStatus
from exactlyonce.checkpoint import files
from exactlyonce.checkpoint.generation import Generation, Marker, create_marker, write_seed
from exactlyonce.cli.local_stream import LocalStream
from exactlyonce.cli.main import main
from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.ledger.fence import NewStream, Permit, claim_epoch, fence, raise_epoch, release
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.publish import Publication, publish
from exactlyonce.ledger.rows import BatchRow, BatchStatus, LandedPositions, QueryMark
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition, Positions, Ranges
from exactlyonce.reconcile.observe import request_of
from exactlyonce_spark.landing import land_batch
from exactlyonce_spark.planned import PlannedBatch, Written
from tests.rig import Rig

TOKEN = "token-of-the-stream"
SHUFFLE_PARTITIONS = 2


class OfflineStream:
    """The stream of a rig whose attempt 1 has claimed generation 1 and run its empty batch 0 at the start of the topic."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.opened: LocalStream = rig.open()
        self._ids = dict(self.opened.stores.source.view().origin_ids)
        self._stands = self.at(0, 0, 0, 0)
        self._seed()

    def at(self, *offsets: int) -> Positions:
        """Return one position per partition, in order."""
        return Positions({Partition(self.rig.name, number): offset for number, offset in enumerate(offsets)})

    @property
    def folder(self) -> Path:
        """The checkpoint directory."""
        return self.rig.location / Generation(1, Epoch(1)).folder

    def plan(self, batch: int, *ends: int) -> None:
        """Write what Spark writes before a batch runs."""
        (self.folder / "offsets" / str(batch)).write_bytes(
            files.render_offsets(CODEC.render_entry(self.at(*ends)), SHUFFLE_PARTITIONS)
        )

    def checkpoint(self, batch: int) -> None:
        """Write what Spark writes after a batch has run."""
        commits = self.folder / "commits"
        commits.mkdir(exist_ok=True)
        (commits / str(batch)).write_bytes(files.render_commit())

    def land(self, batch: int, *ends: int) -> None:
        """Land a batch that reads from where the stream stands up to `ends`."""
        ranges = self._ranges(*ends)
        planned = PlannedBatch(BatchNumber(batch), ranges, self._ids)
        land_batch(self.opened.ledger, self._permit, planned, lambda _: Written(ranges.record_count))
        self._stands = ranges.ends

    def land_in_part(self, batch: int, partition: int, *ends: int) -> None:
        """Land one partition of a batch, as a task does with `commit: Partition`, and record the batch in progress."""
        ranges = self._ranges(*ends)
        key = Partition(self.rig.name, partition)
        row = BatchRow(BatchNumber(batch), Epoch(1), BatchStatus.IN_PROGRESS, ranges)
        with self.opened.ledger.transaction() as transaction:
            fence(transaction, self._permit, Lock.SHARE)
            transaction.write_batch(self.opened.stream.stream_id, row)
            moved = transaction.advance_positions(self.opened.stream.stream_id, Ranges({key: ranges[key]}), self._ids)
            assert moved == 1

    def run(self, batch: int, *ends: int) -> None:
        """Plan, land and checkpoint a batch."""
        self.plan(batch, *ends)
        self.land(batch, *ends)
        self.checkpoint(batch)

    def release(self) -> None:
        """Say that the driver has stopped."""
        release(self.opened.ledger, self._permit)

    def _ranges(self, *ends: int) -> Ranges:
        return self._stands.ranges_until(self.at(*ends))

    def _seed(self) -> None:
        opened, stream_id = self.opened, self.opened.stream.stream_id
        _, version = opened.statuses.read()
        opened.statuses.write(StreamStatus(phase=Phase.SUSPENDED, attempt=1), version, TransitionReason.AT_REST)
        opened.ledger.prepare()
        database = opened.ledger.database_identity()
        raise_epoch(opened.ledger, NewStream(stream_id, TOKEN, opened.owner, database), Epoch(1), "ticket")
        create_marker(opened.stores.checkpoints, Marker(stream_id, TOKEN))
        generation, request = Generation(1, Epoch(1)), request_of(opened.stream, opened.owner)
        write_seed(opened.stores.checkpoints, CODEC, generation, BatchNumber(0), self._stands, SHUFFLE_PARTITIONS)
        self.checkpoint(0)
        seed = Publication(
            epoch=Epoch(1),
            generation=1,
            path=generation.path(str(self.rig.location)),
            seed_batch=BatchNumber(0),
            before=Positions(),
            after=LandedPositions(self._stands, self._ids),
            note="made by a test",
            query=QueryMark(request.source, request.query, request.limit, request.shrunk),
        )
        publish(opened.ledger, stream_id, seed)
        self._permit: Permit = claim_epoch(opened.ledger, stream_id, Epoch(1), "claim", "ticket")[0]


def command(rig: Rig, name: str, *options: str, changes: dict[str, Any] | None = None) -> Result:
    """Run one of the commands that only look, in this process, and return its output and exit status."""
    file = rig.folder / "stream.yaml"
    file.write_text(yaml.safe_dump(rig.document(changes)))
    arguments = [name, str(file), "--state", str(rig.folder / "state"), "--secrets", str(rig.secrets), *options]
    return CliRunner().invoke(main, arguments)


@dataclass(frozen=True)
class Everything:
    """All that a stream has on disk and in its database, to compare a before with an after."""

    on_disk: dict[str, tuple[int, str]]
    in_the_database: dict[str, list[str]]

    @classmethod
    def of(cls, rig: Rig) -> Everything:
        """Look at every file with its time and every row with its version, the locks on it included."""
        tables = rig.sql(
            "select quote_ident(schemaname) || '.' || quote_ident(tablename) from pg_tables "
            "where schemaname not in ('pg_catalog', 'information_schema') order by 1"
        )
        rows = {
            str(table): [
                json.dumps(row, default=str) for row in rig.sql(f"select xmin, xmax, ctid, t.* from {table} t")
            ]
            for (table,) in tables
        }
        folders = [rig.location, rig.folder / "state", rig.secrets]
        found = [path for folder in folders for path in [folder, *folder.rglob("*")] if path.exists()]
        return cls({str(path): (path.stat().st_mtime_ns, _content(path)) for path in found}, rows)


def _content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "a folder"
