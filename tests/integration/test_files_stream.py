"""A stream from Kafka to files, as it is run: drivers are killed, and the ids in the files that count are counted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow.parquet
import pytest

from exactlyonce.connectors.files.manifest import Manifest
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.reconcile.loop import Done, Halted
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.combinations import in_full
from tests.rig import Rig

pytestmark = pytest.mark.seconds(20)


def files_rig(kafka: Kafka, server: Postgres, folder: Path, name: str, **sink: Any) -> Rig:
    overrides = {
        "spec.sink": {"files": {"path": str(folder / "out"), **sink}},
        "spec.ledger": {"postgres": {"secretRef": {"name": "warehouse"}}},
        "spec.source.kafka.maxOffsetsPerTrigger": 20,
    }
    return Rig(kafka, server, folder, name, overrides, partitions=2)


def named_by_the_ledger(rig: Rig) -> list[Path]:
    rows = rig.sql("select batch, committable from exactlyonce.committables")
    manifests = [Manifest.from_json(BatchNumber(batch), text) for batch, text in rows]
    return [rig.folder / "out" / file.path for manifest in manifests for file in manifest.files]


def named_for_spark(rig: Rig) -> list[Path]:
    """The files in `_spark_metadata`, which holds fewer than ten batches here and so no compaction."""
    entries = (rig.folder / "out" / "_spark_metadata").iterdir()
    lines = [line for entry in entries if not entry.name.startswith(".") for line in entry.read_text().split("\n")[1:]]
    return [Path(unquote(urlparse(json.loads(line)["path"]).path)) for line in lines]


def ids_in(paths: list[Path]) -> Counter[Any]:
    return Counter(number for path in paths for number in pyarrow.parquet.read_table(path)["id"].to_pylist())


def test_drivers_that_are_killed_around_the_ledgers_entry_lose_and_double_nothing(
    kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    rig = files_rig(kafka, postgres_18, tmp_path, name)
    rig.produce(60)
    # A batch whose files were written and not recorded: test_files_on_s3.py.
    crash, verdicts = in_full(
        ("batch.rows-written@1=kill-driver batch.landed@2=kill-driver", ["FirstStart", "ReplayBatch", "SkipLanded"]),
        otherwise=("batch.landed@2=kill-driver", ["FirstStart", "SkipLanded"]),
    )
    result = rig.run(crash=crash)
    assert isinstance(result, Done), rig.story()
    expected = Counter(rig.produced)
    assert ids_in(named_by_the_ledger(rig)) == expected, rig.story()
    assert ids_in(named_for_spark(rig)) == expected, rig.story()
    assert rig.verdicts() == verdicts, "the batch that was recorded and not shown was shown by the next driver"

    gone = named_by_the_ledger(rig)[0]
    gone.unlink()
    halted = rig.run()
    assert isinstance(halted, Halted), rig.story()
    assert str(gone.relative_to(tmp_path / "out")) in halted.message, "a file that was deleted is named"
    assert "restore them" in halted.message


def test_a_path_with_foreign_files_halts_the_stream_and_stays_as_it_was(
    kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    rig = files_rig(kafka, postgres_18, tmp_path, name)
    rig.produce(4)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.parquet").write_text("of somebody else")
    result = rig.run()
    assert isinstance(result, Halted), rig.story()
    assert "holds files that this stream did not write (report.parquet)" in str(result), rig.story()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.parquet"]
