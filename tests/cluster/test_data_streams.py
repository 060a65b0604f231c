"""A Kinesis data stream that is read with web identities: of the operator, where an administrator allowed it, and of drivers.

The test does what the webhook of EKS does: a token of the service account and variables that name it are put into pods. The
stand-in looks at a token's subject and audience, gives the role that trusts them, and checks what each role may reach.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from testbed.cluster import Cluster
from testbed.kinesis import AUDIENCE, Kinesis
from testbed.postgres import Postgres
from testbed.s3 import S3
from tests.cluster.drivers import ACCOUNT
from tests.cluster.operators import MakeOperator, WholeStream, whole_stream
from tests.cluster.streams import ServerRefused
from tests.kinesis_rig import KinesisRig, shard
from tests.rig import eventually

pytestmark = pytest.mark.timeout(1200)

OPERATOR, TENANT = (f"arn:aws:iam::123456789012:role/{name}" for name in ("operator", "shop"))
MOUNT = "/var/run/secrets/eks.amazonaws.com/serviceaccount"
READS = {f"kinesis:{action}" for action in ("DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords")}


@pytest.fixture
def kinesis(cluster: Cluster, tmp_path: Path) -> Iterator[Kinesis]:
    """A stand-in for Kinesis, DynamoDB and STS on the host that pods reach."""
    with Kinesis(tmp_path / "kinesis-for-pods", host=cluster.host_address) as service:
        yield service


def identity(kinesis: Kinesis, role: str, token: str) -> dict[str, str]:
    """Return the variables that give a role to a process, with the file of its token."""
    return {
        "AWS_ROLE_ARN": role,
        "AWS_WEB_IDENTITY_TOKEN_FILE": token,
        "AWS_REGION": kinesis.region,
        "AWS_ENDPOINT_URL_STS": kinesis.endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def template(kinesis: Kinesis, container: str) -> dict[str, Any]:
    """Return what the webhook adds to a pod of the driver's service account."""
    token = {"serviceAccountToken": {"audience": AUDIENCE, "expirationSeconds": 3600, "path": "token"}}
    variables = identity(kinesis, TENANT, f"{MOUNT}/token")
    with_token = {
        "name": container,
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "volumeMounts": [{"name": "aws-token", "mountPath": MOUNT, "readOnly": True}],
    }
    return {
        "spec": {
            "volumes": [{"name": "aws-token", "projected": {"sources": [token]}}],
            "containers": [with_token],
        }
    }


def reading(kinesis: Kinesis, arn: str, **also: Any) -> dict[str, Any]:
    """Return what a stream without a login says of its source and its pods."""
    source = {"streamArn": arn, "endpoint": kinesis.endpoint, "maxRecordsPerTrigger": 400, **also}
    return {
        "spec.source": {"kinesis": source, "format": {"schema": "id BIGINT, customer STRING"}},
        "spec.driver.podTemplate": template(kinesis, "driver"),
        "spec.executor.podTemplate": template(kinesis, "executor"),
    }


def operators_identity(cluster: Cluster, kinesis: Kinesis, namespace: str, folder: Path) -> dict[str, str]:
    """Return the variables of an operator with a token of the service account `default`, as the cluster signs it."""
    file = folder / "token-of-the-operator"
    file.write_text(
        cluster.kubectl("create", "token", "default", f"--namespace={namespace}", f"--audience={AUDIENCE}").strip()
    )
    return identity(kinesis, OPERATOR, str(file))


@pytest.mark.seconds(100)
def test_a_data_stream_is_read_with_web_identities_and_lands_once_though_operator_and_driver_are_killed(
    make_operator: MakeOperator,
    cluster: Cluster,
    api: client.ApiClient,
    kinesis: Kinesis,
    postgres_18: Postgres,
    s3: S3,
    namespace: str,
    other_namespace: str,
    name: str,
    tmp_path: Path,
) -> None:
    """The operator's role may read both data streams; the administrator allowed one of them, to one namespace."""
    s3.create_bucket("lake")
    rig = KinesisRig(kinesis, postgres_18, tmp_path / name, name)
    rig.user, rig.password = f"{name}_lands", f"hidden-password-of-{name}"
    other = f"{name}-of-others"
    kinesis.create_stream(other)
    arn, others, table = kinesis.arn(name), kinesis.arn(other), f"{namespace}.leases"
    kinesis.trust(OPERATOR, f"system:serviceaccount:{namespace}:default", arn, others, table)
    kinesis.trust(TENANT, f"system:serviceaccount:{namespace}:{ACCOUNT}", arn)
    allowed = {
        "namespaces": [namespace],
        "names": [arn, f"dynamodb://{kinesis.region}/{{namespace}}.*"],
        "endpoint": kinesis.endpoint,
    }
    operator = make_operator(
        namespaces=f"{namespace},{other_namespace}",
        environment={
            **operators_identity(cluster, kinesis, namespace, tmp_path),
            "EXACTLYONCE_OPERATOR_SOURCE_LOCATIONS": json.dumps([allowed]),
            "EXACTLYONCE_OPERATOR_MONITOR_SECONDS": "2",
        },
    )
    leases = {"leaseTable": {"tableName": table, "endpoint": kinesis.endpoint}}
    stream = whole_stream(rig, cluster, api, namespace, reading(kinesis, arn, **leases), s3)
    thief = WholeStream(
        rig, cluster, api, other_namespace, f"{name}-thief", {**stream.changes, **reading(kinesis, others)}
    )
    stream.operators.append(operator)
    apply_secrets(cluster, namespace, other_namespace)
    try:
        rig.put(300)
        stream.apply()
        thief.apply()
        stream.until(lambda: rig.landed() > 0, "the first batch has landed")
        told = f"The operator may not reach {others} of Kinesis in"
        stream.until(lambda: told in thief.status.get("message", ""), "what nobody allowed is refused, and told")
        assert f"does not allow namespace {other_namespace} that name" in thief.status["message"]

        operator.end()  # by SIGKILL, while records flow
        rig.put(200)
        eventually(rig.has_all, "its driver lands without an operator")
        kinesis.split(name, shard(0))
        rig.put(200)
        cluster.kill_container(namespace, stream.driver_name(1))
        stream.until(lambda: stream.status["attempt"] == 2, "the operator that is back starts the next driver")
        stream.until_landed_all()
        rig.put(200)
        stream.until_landed_all()
        measured = f'exactlyonce_stream_measured_timestamp_seconds{{namespace="{namespace}",stream="{name}"}}'
        stream.until(lambda: measured in operator.page("/metrics")[1], "it is measured")

        stream.change({"spec.suspend": True})
        stream.until(lambda: stream.phase == "Suspended", "it rests")
        stream.until(lambda: shown(stream) == "True", "its lease table shows where it has landed")
        rig.assert_exactly_once()
        assert checkpoints(kinesis, table) == newest(rig)

        asked = kinesis.asked()
        assert {(role, name) for role, _, name in asked} == {(OPERATOR, arn), (OPERATOR, table), (TENANT, arn)}
        assert {action for _, action, name in asked if name == arn} == READS
        assert thief.pods("driver") == []
    finally:
        for made in (stream, thief):
            release(made)


def apply_secrets(cluster: Cluster, namespace: str, other: str) -> None:
    """Give the other namespace the same secrets: what it lacks is the leave of an administrator."""
    for secret in ("warehouse", "lake"):
        found = json.loads(cluster.kubectl("get", "secret", secret, f"--namespace={namespace}", "--output=json"))
        copy = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}, "data": found["data"]}
        cluster.kubectl("apply", f"--namespace={other}", "--filename=-", stdin=json.dumps(copy))


def shown(stream: WholeStream) -> str | None:
    """The status of the condition LandedShown."""
    found = {entry["type"]: entry["status"] for entry in stream.status.get("conditions", [])}
    return found.get("LandedShown")


def checkpoints(kinesis: Kinesis, table: str) -> dict[str, str]:
    """Return the checkpoint of each lease, by shard."""
    items = kinesis.client("dynamodb").scan(TableName=table, ConsistentRead=True)["Items"]
    return {item["leaseKey"]["S"]: item["checkpoint"]["S"] for item in items}


def newest(rig: KinesisRig) -> dict[str, str]:
    """Return the number of the last record put into each shard, and the end of the one that was split."""
    found: dict[str, int] = {}
    for where, number, _ in rig.places.values():
        found[where] = max(number, found.get(where, 0))
    return {**{where: str(number) for where, number in found.items()}, shard(0): "SHARD_END"}


def release(stream: WholeStream) -> None:
    """Let a stream go, with its finalizer."""
    try:
        stream.streams.patch(stream.name, {"metadata": {"finalizers": None}})
        stream.streams.delete(stream.name)
    except ServerRefused:
        return
