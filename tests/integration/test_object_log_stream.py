"""A stream from Kafka to files whose ledger is an object log: no database anywhere, drivers are killed, ids are counted."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from exactlyonce.assembly import ledger_address
from exactlyonce.cli.main import main
from exactlyonce.cli.offsets import offsets_of
from exactlyonce.connectors.files.manifest import Manifest
from exactlyonce.reconcile.loop import Done
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from testbed.s3 import S3
from tests.combinations import one_or_all
from tests.integration.test_files_stream import ids_in, named_for_spark
from tests.rig import Rig
from tests.s3_stores import BUCKET

pytestmark = pytest.mark.seconds(20)


def named_by_the_log(rig: Rig, login: Mapping[str, str]) -> list[Path]:
    """The files that readers may count, as a process of its own reads them from the log."""
    ledger = ledger_address(rig.stream().spec, lambda reference: login).open()
    with ledger.transaction() as transaction:
        committables = transaction.read_committables(rig.stream().stream_id)
    manifests = [Manifest.from_json(batch, text) for batch, text in committables.items()]
    return [rig.folder / "out" / file.path for manifest in manifests for file in manifest.files]


@pytest.mark.parametrize("place", one_or_all(["on S3", "on a disk"]))
def test_drivers_that_are_killed_around_an_entry_of_the_log_lose_and_double_nothing(
    kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str, place: str, request: pytest.FixtureRequest
) -> None:
    """On a disk it is the same log, and what it owes to its store the suite over all ledgers claims of a disk as well."""
    ledger: dict[str, Any] = {"objectLog": {"location": str(tmp_path / "ledger")}}
    login: dict[str, str] = {}
    if place == "on S3":
        served: S3 = request.getfixturevalue("s3")
        service = {"endpoint": served.endpoint, "pathStyle": True, "secretRef": {"name": "ledgers"}}
        ledger, login = {"objectLog": {"location": f"s3a://{BUCKET}/{name}-ledger", **service}}, served.secret()
    overrides = {
        "spec.sink": {"files": {"path": str(tmp_path / "out")}},
        "spec.ledger": ledger,
        "spec.source.kafka.maxOffsetsPerTrigger": 20,
    }
    rig = Rig(kafka, postgres_18, tmp_path, name, overrides, partitions=2)
    rig.write_login("ledgers", login)
    rig.produce(60)
    result = rig.run(crash="land.before-commit@1=kill-driver batch.landed@2=kill-driver")
    assert isinstance(result, Done), rig.story()
    expected = Counter(rig.produced)
    assert ids_in(named_by_the_log(rig, login)) == expected, rig.story()
    assert ids_in(named_for_spark(rig)) == expected, rig.story()
    assert "ReplayBatch" in rig.verdicts(), "the batch whose entry was not made ran again"
    assert "SkipLanded" in rig.verdicts(), "the batch whose entry was made was shown by the next driver"
    standing = offsets_of(rig.open()).values()
    assert [(row["landed"], row["lag"]) for row in standing] == [(30, 0), (30, 0)], "as exactlyonce offsets tells it"
    assert rig.landed_batch() == -1, "nothing of this stream is in the database that the rig always has"


def test_a_stream_whose_ledger_is_lost_goes_on_in_another_folder_where_its_rows_end(
    kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    former, later = tmp_path / "former", tmp_path / "later"
    transform = "select id, _topic, _partition, _offset from source where id % 7 <> 0"
    rig = Rig(kafka, postgres_18, tmp_path, name, partitions=2)
    rig.overrides |= {
        "spec.sink": {"files": {"path": str(former), "includePositions": True}},
        "spec.ledger": {"objectLog": {"location": str(tmp_path / "ledger")}},
        "spec.source.kafka.maxOffsetsPerTrigger": 30,
        "spec.transform": {"sql": transform},
    }
    rig.produce(60)
    assert isinstance(rig.run(), Done), rig.story()
    shutil.rmtree(tmp_path / "ledger")
    description = tmp_path / "stream.yaml"
    description.write_text(yaml.safe_dump(rig.document()))
    recovered = CliRunner().invoke(main, ["recover", str(description), "--state", str(tmp_path / "state")])
    assert recovered.exit_code == 0, recovered.output
    start = yaml.safe_load(recovered.stdout[recovered.stdout.index("start:") :])["start"]

    rig.overrides |= {
        "metadata.name": f"{name}-later",
        "spec.sink": {"files": {"path": str(later), "includePositions": True}},
        "spec.ledger": {"objectLog": {"location": str(tmp_path / "later-ledger")}},
        "spec.checkpoint": {"local": {"path": str(tmp_path / "later-checkpoint")}},
        "spec.source.kafka.start": start,
    }
    rig.produce(40)
    assert isinstance(rig.run(), Done), rig.story()
    files = [path for folder in (former, later) for path in folder.glob("*.parquet")]
    assert ids_in(files) == Counter(number for number in rig.produced if number % 7), rig.story()
