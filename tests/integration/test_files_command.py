"""`exactlyonce files` on folders made without Spark: what it prints is read by pyarrow, and ids are counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
import yaml
from click.testing import CliRunner, Result

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.cli import files as files_command
from exactlyonce.cli.main import main
from exactlyonce.connectors.files import columns
from exactlyonce.connectors.files.manifest import Author, DataFile, Manifest, Write
from exactlyonce.connectors.files.spark_metadata import SparkMetadata
from exactlyonce.connectors.files.spec import FilesSink, ManifestKind
from exactlyonce.connectors.files.tenancy import Tenant, take_place
from exactlyonce.ledger.fence import NewStream, Permit, claim_epoch, raise_epoch
from exactlyonce.ledger.port import LedgerTransaction
from exactlyonce.ledger.publish import Publication, publish
from exactlyonce.ledger.rows import LandedPositions, Owner
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Positions, Ranges
from exactlyonce.positions.spans import PositionSpan
from exactlyonce_spark.landing import land_batch
from exactlyonce_spark.planned import PlannedBatch, Written
from tests.ledgers import QUERY
from tests.rig import Rig

ORIGIN = Partition("orders", 0)
IDS = {"orders": "id-1"}


@dataclass
class Lake:
    """A stream that writes files; each batch is one file with one record, whose id is the batch's number."""

    rig: Rig
    manifest: ManifestKind = ManifestKind.SPARK_METADATA
    permit: Permit = field(init=False)

    def __post_init__(self) -> None:
        self.rig.overrides |= {
            "spec.sink": {"files": {"path": str(self.path)}},
            "spec.ledger": {"postgres": {"secretRef": {"name": "warehouse"}}},
        }
        opened = self.rig.open()
        self.ledger, self.stream_id = opened.ledger, opened.stream.stream_id
        self.store = LocalLogStore(str(self.path))

    @property
    def path(self) -> Path:
        """The folder; a space in its name is part of an address like anything else."""
        return self.rig.folder / "the lake"

    def start(self) -> None:
        """Start the stream's first driver."""
        self.ledger.prepare()
        self.next_driver(1)
        seed = Publication(
            epoch=Epoch(1),
            generation=1,
            path="/c/generation-000001-a1",
            seed_batch=BatchNumber(0),
            before=Positions(),
            after=LandedPositions(Positions({ORIGIN: 0}), IDS),
            note="made by a test",
            query=QUERY,
        )
        publish(self.ledger, self.stream_id, seed)
        self.permit, _ = claim_epoch(self.ledger, self.stream_id, Epoch(1), "claim-1", "ticket")
        identity = self.ledger.identity()
        sink = FilesSink(path=str(self.path), manifest=self.manifest)
        take_place(self.store, Tenant.of(sink, self.stream_id, identity))

    def next_driver(self, epoch: int) -> None:
        """Raise the epoch; from the second on, claim it too."""
        new = NewStream(self.stream_id, "token", Owner("c", "u"), self.ledger.database_identity())
        raise_epoch(self.ledger, new, Epoch(epoch), "ticket")
        if epoch > 1:
            self.permit, _ = claim_epoch(self.ledger, self.stream_id, Epoch(epoch), f"claim-{epoch}", "ticket")

    def write(self, batch: int) -> DataFile:
        """Write the file of a batch, as an attempt does."""
        view = self.ledger.view(self.stream_id)
        assert view is not None
        author = Author.of(view.stream)
        path = f"{Write.draw(author, BatchNumber(batch)).name}-part-0.parquet"
        rows = {"id": [batch], columns.ORIGIN: ["orders"], columns.PARTITION: [0], columns.OFFSET: [batch - 1]}
        pyarrow.parquet.write_table(pa.table(rows), self.path / path, store_schema=False)
        return DataFile(
            path, (self.path / path).stat().st_size, 1, 1, (PositionSpan("orders", 0, batch - 1, batch - 1),)
        )

    def land(self, batch: int, file: DataFile) -> None:
        """Record a batch."""
        manifest = Manifest(BatchNumber(batch), 1, (file,), "columns")

        def record(transaction: LedgerTransaction) -> Written:
            transaction.write_committable(self.stream_id, BatchNumber(batch), manifest.to_json())
            return Written(1)

        ranges = Ranges({ORIGIN: OffsetRange(batch - 1, batch)})
        land_batch(self.ledger, self.permit, PlannedBatch(BatchNumber(batch), ranges, IDS), record)

    def show(self, batch: int, file: DataFile) -> None:
        """Show a batch to Spark's readers."""
        manifest = Manifest(BatchNumber(batch), 1, (file,), "columns")
        SparkMetadata(self.store, str(self.path)).publish({manifest.batch: manifest})

    def run(self, *options: str, typed: str | None = None, command: str = "files") -> Result:
        """Run the command on the stream's file."""
        file = self.rig.folder / "stream.yaml"
        file.write_text(yaml.safe_dump(self.rig.document()))
        arguments = [command, str(file), "--secrets", str(self.rig.secrets), "--state", str(self.rig.folder / "state")]
        result = CliRunner().invoke(main, [*arguments, *options], input=typed)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    def names(self) -> list[str]:
        """Everything in the folder."""
        return sorted(self.store.tree(""))


@pytest.fixture
def lake(rig: Rig) -> Lake:
    return Lake(rig)


def ids_in(addresses: Sequence[str]) -> Counter[Any]:
    return Counter(pyarrow.dataset.dataset(list(addresses)).to_table()["id"].to_pylist())


def ids_in_duckdb(addresses: Sequence[str]) -> Counter[Any]:
    duckdb: Any = import_module("duckdb")  # by name: its types are no part of what the linters need
    with duckdb.connect() as connection:
        return Counter(row[0] for row in connection.read_parquet(list(addresses)).project("id").fetchall())


def test_a_reader_of_exactly_the_files_listed_reads_each_record_once(lake: Lake) -> None:
    lake.start()
    lake.write(1)  # an attempt that failed: the folder holds id 1 twice
    landed = [lake.write(1), lake.write(2)]
    for batch, file in enumerate(landed, 1):
        lake.land(batch, file)
    listed = lake.run()
    assert (listed.exit_code, listed.stderr) == (0, "")
    assert ids_in(listed.stdout.splitlines()) == ids_in_duckdb(listed.stdout.splitlines()) == Counter([1, 2])
    assert ids_in_duckdb([f"{lake.path}/*.parquet"]) == Counter([1, 1, 2]), "the folder holds more than what counts"
    as_data = json.loads(lake.run("-o", "json").stdout)
    assert as_data == [
        {
            "address": str(lake.path / file.path),
            "batch": batch,
            "sizeBytes": file.size_bytes,
            "rows": 1,
            "positions": [{"origin": "orders", "partition": 0, "first": batch - 1, "last": batch - 1}],
        }
        for batch, file in enumerate(landed, 1)
    ]


def test_orphans_are_removed_once_somebody_agrees_and_readers_see_the_same(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.start()
    lake.land(1, lake.write(1))
    left = lake.write(2)
    lake.next_driver(2)
    before, counted = lake.names(), lake.run().stdout
    shown = lake.run("--orphans")
    assert shown.stdout.splitlines() == [str(lake.path / left.path)]
    assert shown.stderr == f"1 orphan of {left.size_bytes:,} bytes.\n"

    alone = lake.run("--remove-orphans")
    assert (alone.exit_code, alone.stdout) == (1, "")
    assert "nothing was removed, because there is no terminal to ask for confirmation; give --yes." in alone.stderr
    monkeypatch.setattr(files_command, "_can_ask", lambda: True)
    for typed in ("n\n", "\n", ""):
        refused = lake.run("--remove-orphans", typed=typed)
        assert (refused.exit_code, lake.names()) == (1, before)

    assert lake.run("--remove-orphans", typed="y\n").exit_code == 0
    assert lake.names() == [name for name in before if name != left.path]
    again = lake.run("--remove-orphans", "--yes")
    assert (again.exit_code, again.stdout, again.stderr) == (0, "", "0 orphans of 0 bytes.\n")
    assert lake.run().stdout == counted
    assert ids_in(counted.splitlines()) == Counter([1])


def test_a_ledger_in_another_schema_of_the_same_database_calls_no_file_an_orphan(lake: Lake) -> None:
    lake.start()
    lake.land(1, lake.write(1))
    before = lake.names()
    lake.rig.overrides["spec.ledger"] = {"postgres": {"secretRef": {"name": "warehouse"}, "schema": "other"}}
    other = lake.rig.open().ledger
    other.prepare()
    new = NewStream(lake.stream_id, "token", Owner("c", "u"), other.database_identity())
    raise_epoch(other, new, Epoch(5), "ticket")
    refused = lake.run("--remove-orphans", "--yes")
    assert (refused.exit_code, lake.names()) == (1, before)
    assert "with another ledger, which alone knows what landed there" in refused.stderr


def test_a_lost_ledger_is_made_up_for_by_the_rows_that_readers_are_shown(lake: Lake) -> None:
    lake.start()
    for batch in range(1, 13):
        if batch in (3, 12):
            lake.write(batch)  # an attempt that failed
        file = lake.write(batch)
        lake.land(batch, file)
        lake.show(batch, file)
    known = lake.run(command="recover")
    assert (known.exit_code, known.stdout) == (1, "")
    assert "up to batch 12, so nothing has to be recovered" in known.stderr

    lake.rig.sql("drop schema exactlyonce cascade")
    before = lake.names()
    recovered = lake.run("-o", "json", command="recover")
    assert (recovered.exit_code, recovered.stderr) == (0, "")
    assert json.loads(recovered.stdout) == [
        {"topic": "orders", "partition": 0, "offset": 12, "file": str(lake.path / file.path)}
    ]
    assert lake.names() == before
    as_text = lake.run(command="recover").stdout
    start = {"from": "Offsets", "offsets": [{"topic": "orders", "partition": 0, "offset": 12}]}
    assert yaml.safe_load(as_text[as_text.index("start:") :]) == {"start": start}


def test_a_file_that_may_have_landed_unseen_has_to_be_moved_away_before_a_ledger_is_made_up_for(lake: Lake) -> None:
    lake.start()
    shown, unseen = lake.write(1), lake.write(2)
    lake.land(1, shown)
    lake.show(1, shown)
    lake.land(2, unseen)
    lake.rig.sql("drop schema exactlyonce cascade")
    refused = lake.run(command="recover")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert f"{lake.path / unseen.path} may have landed without being shown to readers" in refused.stderr
    (lake.path / unseen.path).rename(lake.rig.folder / "moved.parquet")
    assert json.loads(lake.run("-o", "json", command="recover").stdout)[0]["offset"] == 1
    (lake.path / shown.path).unlink()
    lost = lake.run(command="recover")
    assert (lost.exit_code, lost.stdout) == (1, "")
    assert "which readers are shown, is missing: its records would not be read again" in lost.stderr


def test_small_files_are_merged_once_somebody_says_so_and_readers_of_the_list_read_the_same(lake: Lake) -> None:
    lake.manifest = ManifestKind.NONE
    lake.start()
    for batch in (1, 2, 3):
        lake.land(batch, lake.write(batch))
    before, counted, size = (
        lake.names(),
        lake.run().stdout,
        sum(file.stat().st_size for file in lake.path.iterdir() if file.is_file()),
    )
    shown = lake.run("--compact")
    assert (shown.exit_code, lake.names(), lake.run().stdout) == (0, before, counted)
    assert shown.stdout == f"{lake.path}/  3 files of {size:,} bytes into one\n"
    assert (
        shown.stderr
        == f"3 files of {size:,} bytes would become 1 file; nothing was changed. Give --yes to merge them.\n"
    )
    planned = json.loads(lake.run("--compact", "-o", "json").stdout)
    assert planned == [{"folder": f"{lake.path}/", "files": 3, "sizeBytes": size, "rows": 3}]

    done = lake.run("--compact", "--yes")
    assert (done.exit_code, done.stdout) == (0, shown.stdout)
    assert done.stderr.startswith(
        f"3 files of {size:,} bytes became 1 file. --remove-orphans removes what they replace after"
    )
    (merged,) = json.loads(lake.run("-o", "json").stdout)
    assert (merged["batch"], merged["rows"]) == (3, 3)
    assert merged["positions"] == [{"origin": "orders", "partition": 0, "first": 0, "last": 2}]
    assert ids_in([merged["address"]]) == Counter([1, 2, 3]) == ids_in(counted.splitlines())
    again = lake.run("--compact", "--yes")
    assert (again.exit_code, again.stdout, again.stderr) == (0, "", f"No small files to merge in {lake.path}.\n")
    assert lake.run("--orphans").stdout == "", "who listed the small files may still read them"
    lake.next_driver(2)


def test_what_cannot_be_listed_is_said_in_one_sentence(lake: Lake) -> None:
    unknown = lake.run()
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert (
        ": the stream has never run, or this is not its ledger; compare spec.ledger and spec.streamId" in unknown.stderr
    )
    for options in (("--orphans", "--remove-orphans"), ("--yes",), ("--orphans", "--yes"), ("--compact", "--orphans")):
        assert lake.run(*options).exit_code == 2, "an error of use"
    lake.rig.overrides |= {"spec.sink": {"postgres": {"secretRef": {"name": "warehouse"}, "table": "public.orders"}}}
    del lake.rig.overrides["spec.ledger"]
    other = lake.run()
    assert (other.exit_code, other.stdout) == (1, "")
    assert other.stderr == "The stream writes to spec.sink.postgres, which has no files; there is nothing to list.\n"
