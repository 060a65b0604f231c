"""A stream whose checkpoint is on S3: real Spark writes its logs there, drivers are killed, and every id is there once.

The operator's reads go through boto3 and Spark's through S3A, to the same objects of moto's server.
"""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from exactlyonce.checkpoint.generation import list_generations
from exactlyonce.checkpoint.s3 import S3LogStore
from exactlyonce.checkpoint.s3_clients import S3Service
from exactlyonce.checkpoint.state import Readable, read_generation
from exactlyonce_spark.s3_settings import LOGIN_KEYS
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from testbed.s3 import S3
from tests.rig import Rig

BUCKET = "lake"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with S3(tmp_path_factory.mktemp("s3")) as service:
        service.create_bucket(BUCKET)
        yield service


@pytest.fixture
def on_s3(kafka: Kafka, postgres_18: Postgres, s3: S3, tmp_path: Path, name: str) -> Rig:
    """A stream whose checkpoint is on S3, with the login in a secret."""
    checkpoint = {
        "location": f"s3a://{BUCKET}/checkpoints/{name}",
        "secretRef": {"name": "lake"},
        "endpoint": s3.endpoint,
        "pathStyle": True,
    }
    rig = Rig(kafka, postgres_18, tmp_path, name, {"spec.checkpoint": checkpoint})
    write_login(rig, s3.secret())
    return rig


def test_a_stream_on_s3_lands_every_id_once_through_kills_and_a_lost_checkpoint(on_s3: Rig, s3: S3) -> None:
    """One stream through its whole life: a kill between landing and commit log, a kill before landing, a lost log."""
    rig = on_s3
    rig.produce(300)
    rig.run(crash="batch.landed=kill-driver")
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart", "SkipLanded"], rig.story()

    rig.produce(200)
    rig.run(crash="land.before-commit=kill-driver")
    rig.assert_exactly_once()
    assert rig.verdicts()[2:] == ["Resume", "ReplayBatch"], rig.story()

    store = store_of(rig, s3)
    (only,) = list_generations(store)
    state = read_generation(store, only.folder)
    assert isinstance(state, Readable)
    assert state.checkpointed == state.planned == rig.landed_batch(), "the operator reads what Spark wrote"

    key = f"checkpoints/{rig.name}/{only.folder}/offsets/{state.planned}"
    s3.client().delete_object(Bucket=BUCKET, Key=key)
    rig.produce(100)
    rig.run()
    rig.assert_exactly_once()
    assert rig.verdicts()[4:] == ["RebuildFromSink"], rig.story()
    assert [generation.number for generation in list_generations(store)] == [1, 2], "the damaged one stays as evidence"


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
    rig = Rig(kafka, postgres_18, tmp_path, name, {"spec.checkpoint": {**checkpoint, "region": "eu-west-1"}})
    rig.produce(300)
    rig.run(crash="batch.landed=kill-driver")
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart", "SkipLanded"], rig.story()
    with urllib.request.urlopen(f"{s3.endpoint}/moto-api/data.json") as answer:
        roles = {role["role_arn"] for role in json.load(answer)["sts"]["AssumedRole"]}
    assert roles == {identity["AWS_ROLE_ARN"]}, "there was no other login to be had"


def test_no_login_is_on_a_command_line_or_in_a_drivers_document(on_s3: Rig, s3: S3) -> None:
    rig = on_s3
    rig.produce(50)
    seen: list[str] = []

    def landed() -> bool:
        if rig.has_all() and not seen:
            seen.extend(command_lines())
        return bool(seen)

    rig.run(landed)
    rig.assert_exactly_once()
    assert any("org.apache.spark" in line for line in seen), "the driver's JVM was among them"
    assert not [line for line in seen if s3.secret_key in line or s3.access_key in line]
    written = [file for file in (rig.folder / "state").rglob("*") if file.is_file()]
    assert [file.name for file in written if file.name == "spec.json"] == ["spec.json"]
    assert not [file for file in written if s3.secret_key in file.read_text(errors="replace")]


def test_a_service_that_is_gone_for_a_while_costs_time_and_nothing_else(on_s3: Rig, s3: S3) -> None:
    rig = on_s3
    rig.produce(50)
    gone = {**rig.overrides["spec.checkpoint"], "endpoint": "http://127.0.0.1:9"}
    opened = rig.open({"spec.checkpoint": gone})
    loop = rig.loop(opened)
    loop.run_pass()
    assert rig.events[-1][0] == "PutOff"
    assert "is http://127.0.0.1:9 to be reached?" in rig.events[-1][1]
    rig.run(rig.has_all)
    rig.assert_exactly_once()


def command_lines() -> Iterator[str]:
    """The command lines of every process that this one has started, drivers and their JVMs among them."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # also what has ended and waits for its parent
            yield " ".join(process.cmdline())


def store_of(rig: Rig, s3: S3) -> S3LogStore:
    service = S3Service.of(s3.endpoint, None, path_style=True, secret=s3.secret())
    return S3LogStore(rig.stream().spec.checkpoint.location, service)


def write_login(rig: Rig, keys: dict[str, str]) -> None:
    home = rig.secrets / "lake"
    home.mkdir(parents=True, exist_ok=True)
    for key, value in keys.items():
        (home / key).write_text(value)
