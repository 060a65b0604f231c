"""A stream from Kafka to files on S3: drivers are killed, and ids are counted by Spark and, from the listing, by pyarrow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pyarrow.fs
from click.testing import CliRunner

from exactlyonce.cli.main import main
from exactlyonce.reconcile.loop import Done
from testbed.faulty_service import FaultyService
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from testbed.s3 import S3
from testbed.spark import local_session
from tests.combinations import in_full
from tests.files_on_s3 import FAULTS, BadDay
from tests.integration.conftest import BUCKET
from tests.offline import command
from tests.rig import Rig


def files_on_s3(kafka: Kafka, server: Postgres, s3: S3, endpoint: str, folder: Path, name: str) -> Rig:
    files = {
        "path": f"s3a://{BUCKET}/out/{name}",
        "endpoint": endpoint,
        "pathStyle": True,
        "secretRef": {"name": "lake"},
    }
    overrides = {
        "spec.sink": {"files": files},
        "spec.ledger": {"postgres": {"secretRef": {"name": "warehouse"}}},
        "spec.source.kafka.maxOffsetsPerTrigger": 20,
    }
    rig = Rig(kafka, server, folder, name, overrides, partitions=2)
    rig.write_login("lake", s3.secret())
    return rig


def seen_by_spark(rig: Rig, s3: S3) -> Counter[int]:
    settings = {
        f"spark.hadoop.fs.s3a.{key}": value
        for key, value in {
            "endpoint": s3.endpoint,
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "access.key": s3.access_key,
            "secret.key": s3.secret_key,
        }.items()
    }
    with local_session("reads files on S3", settings) as session:
        rows = session.read.parquet(f"s3a://{BUCKET}/out/{rig.name}").select("id").collect()
    return Counter(row.id for row in rows)


def seen_by_pyarrow(s3: S3, addresses: list[str]) -> Counter[Any]:
    store = pyarrow.fs.S3FileSystem(
        access_key=s3.access_key, secret_key=s3.secret_key, endpoint_override=s3.endpoint, region="us-east-1"
    )
    paths = [address.removeprefix("s3://") for address in addresses]
    table = pyarrow.dataset.dataset(paths, format="parquet", filesystem=store).to_table(columns=["id"])
    return Counter(table["id"].to_pylist())


def test_drivers_that_are_killed_around_the_ledgers_entry_on_a_bad_day_of_s3_lose_and_double_nothing(
    kafka: Kafka, postgres_18: Postgres, s3: S3, tmp_path: Path, name: str
) -> None:
    """Each kind of request is struck in test_files_sink_on_s3.py; here are Spark's and ours, in drivers as they are run."""
    day = BadDay(30)
    with FaultyService(s3.port, day.fate) as proxy:
        rig = files_on_s3(kafka, postgres_18, s3, proxy.endpoint, tmp_path, name)
        rig.produce(60)
        # How a driver shows what the last one had only recorded: test_files_stream.py; on S3, test_files_sink_on_s3.py.
        crash, verdicts = in_full(
            ("batch.rows-written@1=kill-driver batch.landed@2=kill-driver", {"ReplayBatch", "SkipLanded"}),
            otherwise=("batch.rows-written@1=kill-driver", {"ReplayBatch"}),
        )
        result = rig.run(crash=crash)
        assert isinstance(result, Done), rig.story()
        assert verdicts <= set(rig.verdicts())
        assert set(day.struck) == set(FAULTS)
        day.is_over = True
        proxy.deliver()  # what was under way all the time arrives when nobody waits for it any more
        _require_each_once(rig, s3)


def _require_each_once(rig: Rig, s3: S3) -> None:
    name = rig.name
    listed = command(rig, "files")
    assert listed.exit_code == 0, listed.output
    expected = Counter(rig.produced)
    assert seen_by_pyarrow(s3, listed.stdout.splitlines()) == expected, rig.story()

    orphans = command(rig, "files", "--remove-orphans", "--yes")
    assert orphans.exit_code == 0, orphans.output
    assert orphans.stdout.startswith(f"s3://{BUCKET}/out/{name}/"), "the killed driver left files"
    objects = s3.client().list_objects_v2(Bucket=BUCKET, Prefix=f"out/{name}/")["Contents"]
    kept = [f"s3://{BUCKET}/{entry['Key']}" for entry in objects]
    assert set(listed.stdout.splitlines()) <= set(kept)
    assert not set(orphans.stdout.splitlines()) & set(kept)
    assert seen_by_spark(rig, s3) == expected, rig.story()
    written = [file for file in (rig.folder / "state").rglob("*") if file.is_file()]
    assert not [file for file in written if s3.secret_key in file.read_text(errors="replace")]
    (rig.secrets / "lake" / "AWS_SECRET_ACCESS_KEY").unlink()
    half = CliRunner().invoke(
        main, ["files", str(rig.folder / "stream.yaml"), "--orphans", "--secrets", str(rig.secrets)]
    )
    assert half.exit_code == 1
    assert "AWS_ACCESS_KEY_ID alone" in half.stderr
