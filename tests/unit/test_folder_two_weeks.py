"""Two weeks of batches in fast motion: real files in a real folder, planned and landed; what is kept, and that it stays small.

Without Spark, which no claim here is about: its two log files of each batch are written, and removed after a hundred batches,
as it does. The planner, its lists and their compaction, the ledger (an object log on the same disk) with its retention, and the
generations' are the product's own. `make test-full` runs 10,000 batches, a batch every two minutes for two weeks; its figures
stand in docs/growth.md.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from exactlyonce.api.checkpoint_retention import GenerationRetention
from exactlyonce.api.ledger_retention import FEWEST_BATCHES, BatchRetention, LedgerRetention
from exactlyonce.checkpoint.files import render_commit, render_metadata, render_offsets
from exactlyonce.checkpoint.generation import Generation
from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.connectors.files.source_codec import CODEC
from exactlyonce.connectors.files.source_folder import LocalFolder
from exactlyonce.connectors.files.source_lists import COMPACT_EACH, FileLists
from exactlyonce.connectors.files.source_plan import FileLimit
from exactlyonce.connectors.files.source_position import NOTHING_READ, count_of
from exactlyonce.connectors.object_log.ledger import ObjectLogLedger
from exactlyonce.connectors.object_log.log import ObjectLog
from exactlyonce.ledger.expiry import delete_expired
from exactlyonce.ledger.fence import Permit, claim_epoch, raise_epoch
from exactlyonce.ledger.port import LedgerTransaction
from exactlyonce.ledger.publish import Publication, publish
from exactlyonce.ledger.rows import LandedPositions
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Positions, Ranges
from exactlyonce_spark.connectors.files.source_planner import FolderPlanner, Ready
from exactlyonce_spark.landing import land_batch
from exactlyonce_spark.old_generations import remove_superseded
from exactlyonce_spark.planned import PlannedBatch, Written
from tests.combinations import in_full
from tests.ledgers import QUERY, STREAM, new_stream

BATCHES = in_full(10_000, otherwise=300)
FILES_EACH = 2
BATCHES_OF_A_DRIVER = in_full(200, otherwise=60)
SPARK_RETAINS = 100
KEPT_GENERATIONS = 3
CHORES_EACH = 50

IDS = {"/incoming": "folder"}
FOLDER = Partition("/incoming", 0)
NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


@dataclass
class Kept:
    """The most that was there at once, and what is there at the end, by kind: files and bytes."""

    most: Counter[str] = field(default_factory=Counter)
    last: Counter[str] = field(default_factory=Counter)

    def weigh(self, root: Path) -> None:
        """Walk through what is kept."""
        self.last = Counter()
        for file in root.rglob("*"):
            if file.is_file():
                kind = file.relative_to(root).parts[0].partition("-")[0]
                self.last.update({kind: 1, f"{kind} bytes": file.stat().st_size})
        self.most |= self.last


class Stream:
    """One stream's disk, and the driver that runs; each driver knows nothing but what is on the disk."""

    def __init__(self, folder: Path) -> None:
        self.incoming, self.checkpoint = folder / "incoming", folder / "checkpoint"
        self.incoming.mkdir()
        self.store = LocalLogStore(str(self.checkpoint))
        self.landed: Counter[int] = Counter()
        self.position, self.next_batch, self.epoch = NOTHING_READ, 0, 0
        self.start_driver()

    def start_driver(self) -> None:
        """Raise the epoch, seed a generation where the ledger stands, claim: the checkpoint before was lost."""
        self.ledger = ObjectLogLedger(ObjectLog(self.store, "ledger"))
        self.ledger.prepare()
        self.epoch += 1
        epoch = Epoch(self.epoch)
        raise_epoch(self.ledger, new_stream(self.ledger), epoch, "ticket")
        view = self.ledger.view(STREAM)
        assert view is not None
        self.generation = Generation(self.epoch, epoch)
        seed, after = BatchNumber(self.next_batch), LandedPositions(Positions({FOLDER: self.position}), IDS)
        path = self.generation.path(str(self.checkpoint))
        before = view.landed.positions
        publish(self.ledger, STREAM, Publication(epoch, self.epoch, path, seed, before, after, "rebuilt", QUERY))
        self.store.create(f"{self.generation.folder}/metadata", render_metadata(f"query-{epoch}"))
        self.permit: Permit = claim_epoch(self.ledger, STREAM, epoch, f"claim-{epoch}", "ticket")[0]
        lists = FileLists(self.store, "source", "life-1")
        ready = Ready(timedelta(0), latest_first=False, delete=True)
        self.planner = FolderPlanner(LocalFolder(str(self.incoming)), lists, FileLimit(FILES_EACH, 1 << 30), ready)
        self.next_batch += 1

    def run_batch(self) -> None:
        """Plan, land, and keep Spark's logs of the batch."""
        end, number = self.planner.end(self.position), BatchNumber(self.next_batch)
        logs = self.generation.folder
        self.store.create(f"{logs}/offsets/{number}", render_offsets(CODEC.render_entry(Positions({FOLDER: end})), 2))
        ids = [int(Path(file.path).stem) for file in self.planner.files(self.position, end)]

        def write(_: LedgerTransaction) -> Written:
            self.landed.update(ids)
            return Written(len(ids))

        ranges = Ranges({FOLDER: OffsetRange(self.position, end)})
        land_batch(self.ledger, self.permit, PlannedBatch(number, ranges, IDS), write)
        self.store.create(f"{logs}/commits/{number}", render_commit())
        for log in ("offsets", "commits"):
            (self.checkpoint / logs / log / str(number - SPARK_RETAINS)).unlink(missing_ok=True)
        self.position, self.next_batch = end, number + 1

    def do_chores(self) -> None:
        """Remove what is not kept, as a driver does beside its batches."""
        batches = BatchRetention(count=FEWEST_BATCHES)
        delete_expired(self.ledger, self.permit, LedgerRetention(batches=batches))
        kept = GenerationRetention(count=KEPT_GENERATIONS)
        remove_superseded(self.ledger, self.permit, self.store, kept, NOW)


@pytest.mark.timeout(7200)  # ten thousand batches, each with some files that are flushed to the disk
def test_nothing_is_read_twice_and_what_is_kept_stays_small_however_long_the_stream_runs(tmp_path: Path) -> None:
    stream, numbers, kept = Stream(tmp_path), count(), Kept()
    for batch in range(1, BATCHES + 1):
        for number in (next(numbers) for _ in range(FILES_EACH)):
            (stream.incoming / f"{number:07}.json").write_text(f'{{"id": {number}}}\n')
        stream.run_batch()
        if batch % CHORES_EACH == 0:
            stream.do_chores()
            kept.weigh(stream.checkpoint)
        if batch % BATCHES_OF_A_DRIVER == 0:
            stream.start_driver()

    files = BATCHES * FILES_EACH
    assert stream.landed == Counter(range(files))
    assert count_of(stream.position) == files
    view = stream.ledger.view(STREAM)
    assert view is not None
    assert view.landed.positions == {FOLDER: stream.position}
    print(f"{files} files; at most {dict(kept.most)}; at the end {dict(kept.last)}")

    assert kept.most["source"] <= 2 * COMPACT_EACH + 1
    assert kept.most["source bytes"] <= 2 * 120 * files + 10_000, "two compact lists, and what follows on them"
    of_one = 2 * (SPARK_RETAINS + 1) + 1
    assert kept.most["generation"] <= (KEPT_GENERATIONS + 2) * of_one
    assert kept.most["generation bytes"] <= kept.most["generation"] * 1000
    assert kept.most["ledger"] <= 500
    assert kept.most["ledger bytes"] <= 3_000_000
    # The planner removes what landed, so the folder holds no more than the last batch.
    assert len(list(stream.incoming.iterdir())) <= 2 * FILES_EACH
