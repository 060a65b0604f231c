"""Real streams from Kafka into the stand-in for Doris by broker load of files on S3: drivers are killed, ids are counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.connectors.doris.staging import StagingLocation
from exactlyonce.reconcile.loop import Done
from exactlyonce_spark.connectors.doris.staging_folder import FolderOnS3
from testbed.doris.broker_loads import BrokerFault
from testbed.doris.cluster import Cluster, Login
from testbed.doris.files_on_s3 import file_on_s3
from testbed.doris.servers import StandIn
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from testbed.s3 import S3
from tests.combinations import only_in_full
from tests.doris import DATABASE
from tests.doris_rig import LOGIN, ORDERS, TABLE, DorisRig
from tests.s3_stores import BUCKET

BATCH = 2_600
"""More records than a driver loads by itself, so each task writes a file."""


@pytest.fixture
def server() -> Iterator[StandIn]:
    cluster = Cluster({LOGIN["user"]: Login(LOGIN["password"])})
    cluster.create(DATABASE, TABLE)
    with StandIn(cluster, files=file_on_s3) as stand_in:
        yield stand_in


@pytest.fixture
def staging(s3: S3, name: str) -> dict[str, Any]:
    return {
        "location": f"s3a://{BUCKET}/staging-{name}",
        "endpoint": s3.endpoint,
        "pathStyle": True,
        "secretRef": {"name": "writer"},
        "readerSecretRef": {"name": "reader"},
    }


@pytest.fixture
def rig(
    kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str, server: StandIn, s3: S3, staging: dict[str, Any]
) -> DorisRig:
    made = DorisRig(kafka, postgres_18, tmp_path, name, server)
    made.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = BATCH
    made.overrides["spec.sink"]["doris"] |= {
        "load": "BrokerLoad",
        "stagingLocation": staging,
        "queryPort": server.query_port,
    }
    for login in ("writer", "reader"):
        made.write_login(login, s3.secret())
    return made


def files_of(s3: S3, staging: dict[str, Any]) -> list[str]:
    prefix = staging["location"].removeprefix(f"s3a://{BUCKET}/")
    found = s3.client().list_objects_v2(Bucket=BUCKET, Prefix=prefix)
    return [one["Key"] for one in found.get("Contents", ())]


def killed_at(rig: DorisRig, *points: str) -> None:
    rig.overrides["spec.recovery.maxFailuresPerBatch"] = 50
    result = rig.run(crash=" ".join(f"{point}=kill-driver" for point in points), seconds=60.0 + 90.0 * len(points))
    assert isinstance(result, Done), rig.story()
    missed = [point for place, point in enumerate(points) if not any(rig.folder.glob(f"fired-{place}-*"))]
    assert not missed, f"no driver came to {missed}\n{rig.story()}"


def test_a_driver_that_is_killed_behind_a_statement_puts_each_id_into_doris_once_and_leaves_no_file(
    rig: DorisRig, server: StandIn, s3: S3, staging: dict[str, Any]
) -> None:
    """tests/unit/test_doris_broker_batches.py kills at the other points, without Spark."""
    server.broker.faults.append(BrokerFault.JOB_CANCELLED)
    rig.produce(BATCH)
    killed_at(rig, "submit.sent")
    rig.assert_exactly_once()
    assert "FinishCommit" in rig.verdicts(), rig.story()
    assert not server.broker.faults, "a job was cancelled"
    assert files_of(s3, staging) == []
    assert {statement.table for statement in server.broker.seen} == {ORDERS}


POINTS = (
    "task.prepared@1",
    "batch.rows-written@2",
    "batch.decided@3",
    "submit.recorded@4",
    "submit.sent@5",
    "commit.answered@6",
    "submit.left-out@7",
    "submit.file-removed",
    "batch.committed@9",
    "submit.recorded@10",
    "finish.written-again@10",
    "finish.recorded@10",
    "batch.landed@11",
)
"""The removal of files is the same point for batches and for what nobody decided, so it names no batch."""


@only_in_full
@pytest.mark.timeout(3600)
def test_drivers_that_are_killed_at_each_point_of_a_broker_load_put_each_id_into_doris_once(
    rig: DorisRig, server: StandIn, s3: S3, staging: dict[str, Any]
) -> None:
    """The test above makes the claim for one point."""
    server.broker.faults += [BrokerFault.STATEMENT_LATE, BrokerFault.ANSWER_LOST, BrokerFault.JOB_CANCELLED]
    rig.produce(12 * BATCH)
    killed_at(rig, *POINTS)
    server.broker.deliver()
    server.broker.run_all()
    rig.assert_exactly_once()
    assert files_of(s3, staging) == []
    assert not server.broker.faults


def test_a_folder_on_s3_holds_a_file_as_a_whole_until_it_is_removed(
    s3: S3, staging: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large ones are written in parts."""
    monkeypatch.setattr("exactlyonce.checkpoint.s3_large.PART_BYTES", 5 << 20)
    folder = FolderOnS3(StagingLocation.model_validate(staging), s3.secret())
    piece = b"x" * (1 << 20)
    folder.put("life/1.1.0-a.1.json", [piece] * 9)
    folder.put("life/1.1.0-a.2.json", [b"small"])
    assert sorted(folder.paths_below("life")) == ["life/1.1.0-a.1.json", "life/1.1.0-a.2.json"]
    assert (folder.holds("life/1.1.0-a.1.json"), folder.holds("life/1.1.0-a")) == (True, False)
    kept = s3.client().get_object(Bucket=BUCKET, Key=files_of(s3, staging)[0])["Body"].read()
    assert kept == piece * 9
    for _ in range(2):
        folder.remove("life/1.1.0-a.1.json")
    assert list(folder.paths_below("life")) == ["life/1.1.0-a.2.json"]
    assert list(folder.paths_below("other")) == []
    assert s3.secret()["AWS_SECRET_ACCESS_KEY"] not in repr(folder)
