"""Two namespaces, one bucket: streams are reconciled with their own pods' login, and none gets at another's checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from testbed.cluster import Cluster
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from testbed.s3 import S3
from tests.cluster.operators import MakeOperator, MakeStream, whole_stream
from tests.cluster.test_volume_claim import init_container
from tests.rig import Rig

pytestmark = pytest.mark.timeout(1200)


def with_login_of_its_pods(s3: S3, location: str) -> dict[str, Any]:
    """Return what a stream says that names no secret, and whose driver has a login of its own."""
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    login = [{"name": key, "valueFrom": {"secretKeyRef": {"name": "lake", "key": key}}} for key in keys]
    return {
        "spec.checkpoint.s3": {"location": location, "endpoint": s3.endpoint, "pathStyle": True},
        "spec.driver.podTemplate": {"spec": {"containers": [{"name": "driver", "env": login}]}},
        "spec.deletionPolicy": "Delete",
    }


def objects(s3: S3, location: str) -> Mapping[str, str]:
    """Return the objects below a location, by key, with their version."""
    bucket, _, prefix = location.removeprefix("s3a://").partition("/")
    listed = s3.client().list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/").get("Contents", ())
    return {entry["Key"]: entry["ETag"] for entry in listed}


@pytest.mark.seconds(80)
def test_a_stream_takes_nothing_from_the_location_of_another_namespace_and_is_not_told_its_token(
    make_stream: MakeStream,
    make_operator: MakeOperator,
    cluster: Cluster,
    api: client.ApiClient,
    kafka: Kafka,
    postgres_18: Postgres,
    s3: S3,
    namespace: str,
    other_namespace: str,
    name: str,
    tmp_path: Path,
) -> None:
    """The operator has a login that is good for all of the bucket, and no administrator allowed anything."""
    location = f"s3a://lake/checkpoints/{namespace}/{name}"
    owner = make_stream(name, with_login_of_its_pods(s3, location))
    owner.operators.append(make_operator(namespaces=f"{namespace},{other_namespace}", environment=s3.secret()))
    owner.rig.produce(2_000)
    owner.apply()
    owner.until_landed_all()
    owner.until(lambda: owner.phase == "Running", "it is seen to run")
    assert init_container(owner, 1)["exitCode"] == 0, "its pod has reconciled, on S3"
    assert owner.status["verdict"]["kind"] == "FirstStart"

    bucket, _, prefix = location.removeprefix("s3a://").partition("/")
    read = s3.client().get_object(Bucket=bucket, Key=f"{prefix}/stream.json")["Body"].read()
    token = json.loads(read)["token"]
    other = f"{name}-other"
    rig = Rig(kafka, postgres_18, tmp_path / other, other, user=f"{name}_o", password=f"hidden-password-of-{other}")
    thief = whole_stream(rig, cluster, api, other_namespace, with_login_of_its_pods(s3, location), s3)
    thief.operators.extend(owner.operators)
    rig.produce(100)
    thief.apply()
    thief.until(lambda: thief.phase == "Halted", "its pod halts it")
    assert init_container(thief, 1)["exitCode"] == 2
    verdict = thief.status["verdict"]
    assert (verdict["reason"], rig.landed()) == ("LocationTaken", 0)
    assert f"aws s3 cp s3://{bucket}/{prefix}/stream.json -" in verdict["message"]
    assert token not in json.dumps([thief.resource, thief.events()])
    assert token not in owner.operators[0].log

    owner.change({"spec.suspend": True})
    owner.until(lambda: owner.phase == "Suspended", "its checkpoint stands still")
    before = objects(s3, location)
    thief.streams.delete(thief.name)
    thief.until(lambda: thief.kubectl("get", "eos", "--output=name") == "", "the resource is gone")
    (left,) = [words for reason, words in thief.events() if reason == "LeftBehind"]
    assert f"The checkpoint stays in {location}" in left
    assert objects(s3, location) == before

    owner.change({"spec.suspend": False})
    owner.rig.produce(400)
    owner.until_landed_all()
    owner.rig.assert_exactly_once()
