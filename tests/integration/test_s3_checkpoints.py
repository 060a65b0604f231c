"""A stream whose checkpoint is on S3: real Spark writes its logs there, drivers are killed, and every id is there once.

The operator's reads go through boto3 and Spark's through S3A, to the same objects of moto's server.
"""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from exactlyonce.checkpoint.generation import list_generations
from exactlyonce.checkpoint.s3 import S3LogStore
from exactlyonce.checkpoint.s3_clients import S3Service
from exactlyonce.checkpoint.state import Readable, read_generation
from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.schema.aws_login import LOGIN_KEYS
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from testbed.s3 import S3
from tests.combinations import in_full, only_in_full
from tests.rig import Rig
from tests.s3_stores import BUCKET

pytestmark = pytest.mark.seconds(16)

OLD = "generation-000000-a0"
"""A generation that was superseded years ago."""

BEFORE_COMMIT = "land.before-commit@2=kill-driver"


def on_s3(kafka: Kafka, postgres_18: Postgres, s3: S3, folder: Path, name: str) -> Rig:
    """Return a stream whose checkpoint is on S3, with the login in a secret."""
    checkpoint = {
        "location": f"s3a://{BUCKET}/checkpoints/{name}",
        "secretRef": {"name": "lake"},
        "endpoint": s3.endpoint,
        "pathStyle": True,
    }
    rig = Rig(kafka, postgres_18, folder, name, {"spec.checkpoint": {"s3": checkpoint}})
    rig.write_login("lake", s3.secret())
    return rig


@dataclass(frozen=True)
class Life:
    """One stream through its whole life, the verdicts of each part of it, and what of it was to be seen meanwhile."""

    rig: Rig
    verdicts: Mapping[str, Sequence[str]]
    backing_off: tuple[str, str]
    seen: Sequence[str]
    read: Readable
    generations: Sequence[int]


@pytest.fixture(scope="module")
def life(kafka: Kafka, postgres_18: Postgres, s3: S3, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A service that is gone, a kill before landing, a lost log; ids are counted."""
    rig = on_s3(kafka, postgres_18, s3, tmp_path_factory.mktemp("life"), "s3life")
    verdicts: dict[str, Sequence[str]] = {}
    seen: list[str] = []
    not_of_the_stream = psutil.Process().children(recursive=True)

    def part(name: str, **options: Any) -> None:
        before = len(rig.verdicts())
        rig.produce(100)
        rig.run(**options)
        rig.assert_exactly_once()
        verdicts[name] = rig.verdicts()[before:]

    def landed() -> bool:
        if rig.has_all() and not seen:
            seen.extend(command_lines(apart_from=not_of_the_stream))
        return bool(seen) and not store.list(OLD)

    gone = {**rig.overrides["spec.checkpoint"]["s3"], "endpoint": "http://127.0.0.1:9"}
    rig.loop(rig.open({"spec.checkpoint": {"s3": gone}})).run_pass()
    backing_off = rig.events[-1]
    rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = 50
    # A kill behind the landing, with the checkpoint on S3: the web identity's stream below.
    part(
        "killed", crash=in_full("batch.landed@1=kill-driver land.before-commit@2=kill-driver", otherwise=BEFORE_COMMIT)
    )
    store = store_of(rig, s3)
    (only,) = list_generations(store)
    read = read_generation(store, CODEC, only.folder)
    assert isinstance(read, Readable)
    assert read.checkpointed == read.planned == rig.landed_batch(), "the operator reads what Spark wrote"
    key = f"checkpoints/{rig.name}/{only.folder}/offsets/{read.planned}"
    s3.client().delete_object(Bucket=BUCKET, Key=key)
    for number in (7, 8):
        store.create(f"{OLD}/offsets/{number}", b'v1\n{"batchTimestampMs":1577836800000}\n{"orders":{"0":1}}')
    part("without a log", until=landed)
    return Life(rig, verdicts, backing_off, seen, read, [generation.number for generation in list_generations(store)])


def test_a_stream_on_s3_lands_every_id_once_through_kills_and_a_lost_checkpoint(life: Life) -> None:
    life.rig.assert_exactly_once()
    assert life.verdicts == {
        "killed": in_full(["FirstStart", "SkipLanded", "ReplayBatch"], otherwise=["FirstStart", "ReplayBatch"]),
        "without a log": ["RebuildFromSink"],
    }
    assert life.generations == [1, 2], "the damaged one stays as evidence"


def test_a_superseded_generation_that_is_too_old_is_removed_once_a_batch_has_landed_in_the_new_one(life: Life) -> None:
    assert life.generations == [1, 2], "that of 2020 is gone; that of today stays as evidence"


def test_a_service_that_is_gone_for_a_while_costs_time_and_nothing_else(life: Life) -> None:
    kind, words = life.backing_off
    assert kind == "BackingOff"
    assert "check that http://127.0.0.1:9 is reachable" in words
    life.rig.assert_exactly_once()


def test_no_login_is_on_a_command_line_or_in_a_drivers_document(life: Life, s3: S3) -> None:
    assert any("org.apache.spark" in line for line in life.seen), "the driver's JVM was among them"
    assert not [line for line in life.seen if s3.secret_key in line or s3.access_key in line]
    written = [file for file in (life.rig.folder / "state").rglob("*") if file.is_file()]
    assert "spec.json" in [file.name for file in written]
    assert not [file for file in written if s3.secret_key in file.read_text(errors="replace")]


# By default operator and driver on a cluster (tests/cluster/test_data_streams.py), and a store (test_s3_logins.py).
@only_in_full
def test_a_web_identity_stands_for_the_login_of_operator_and_driver(
    kafka: Kafka, postgres_18: Postgres, s3: S3, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As EKS gives it to a pod: a role and a file with a token; moto's STS stands in for Amazon's, and checks no token."""
    for variable in LOGIN_KEYS:
        monkeypatch.delenv(variable, raising=False)
    token = tmp_path / "token"
    token.write_text("a token of the service account")
    identity = {
        "AWS_ROLE_ARN": f"arn:aws:iam::123456789012:role/{name}",
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL_STS": s3.endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }
    for variable, value in identity.items():
        monkeypatch.setenv(variable, value)
    checkpoint = {"location": f"s3a://{BUCKET}/checkpoints/{name}", "endpoint": s3.endpoint, "pathStyle": True}
    rig = Rig(kafka, postgres_18, tmp_path, name, {"spec.checkpoint": {"s3": {**checkpoint, "region": "eu-west-1"}}})
    rig.produce(300)
    rig.run(crash="batch.landed=kill-driver")
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart", "SkipLanded"], rig.story()
    with urllib.request.urlopen(f"{s3.endpoint}/moto-api/data.json") as answer:
        roles = {role["role_arn"] for role in json.load(answer)["sts"]["AssumedRole"]}
    assert roles == {identity["AWS_ROLE_ARN"]}, "there was no other login to be had"


def command_lines(*, apart_from: Sequence[psutil.Process]) -> Iterator[str]:
    """The command lines of every process that this one has started, drivers and their JVMs among them.

    Apart from those that ran before the stream: a session of Spark with which another test of this worker reads S3.
    """
    for process in psutil.Process().children(recursive=True):
        if process in apart_from:
            continue
        with contextlib.suppress(psutil.NoSuchProcess):  # also what has ended and waits for its parent
            yield " ".join(process.cmdline())


def store_of(rig: Rig, s3: S3) -> S3LogStore:
    service = S3Service.of(s3.endpoint, None, path_style=True, secret=s3.secret())
    return S3LogStore(rig.stream().spec.checkpoint.location, service)
