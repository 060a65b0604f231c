"""`exactlyonce offsets` of a stream of a cluster: with the logins of the stream's own secrets, and with no other."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from exactlyonce.cli import cluster_offsets
from exactlyonce.connectors.kinesis.positions import TRIM_HORIZON
from exactlyonce.positions.ranges import Partition, Positions
from tests.resource_documents import GONE, document

SHARD = Partition("orders", "shardId-000000000000")


class Cluster:
    """A cluster with one stream and its secrets, which counts those that are read."""

    def __init__(self, **kinesis: Any) -> None:
        source = {"streamName": "orders", "region": "eu-west-1", **kinesis}
        self.document = document({"spec.source.kafka": GONE, "spec.source.kinesis": source})
        self.read: list[tuple[str, str]] = []

    def stream(self, namespace: str, name: str) -> dict[str, Any]:
        return self.document

    def secret(self, namespace: str, name: str, where: str) -> dict[str, str]:
        self.read.append((name, where))
        return {}


def shown(cluster: Cluster) -> Any:
    with mock.patch.object(cluster_offsets, "_landed", lambda look, stream: Positions({SHARD: TRIM_HORIZON})):
        return cluster_offsets.cluster_offsets(cluster, "shop", "orders")  # type: ignore[arg-type] # answers what is asked


def test_a_source_without_a_secret_is_not_read_with_the_login_of_whoever_asks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with mock.patch("exactlyonce.connectors.kinesis.connector.KinesisPlace.open") as opened:
        rows = shown(Cluster())
    assert not opened.called
    told = capsys.readouterr().err
    assert "Earliest, latest and lag are not known" in told
    assert "spec.source.kinesis.secretRef" in told
    assert SHARD in rows


def test_an_emptied_secret_is_told_and_not_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(secretRef={"name": "kinesis"})
    shown(cluster)
    assert cluster.read == [("kinesis", "spec.source.kinesis.secretRef")]
    assert "The secret kinesis that source.kinesis.secretRef names has no AWS_ACCESS_KEY_ID" in capsys.readouterr().err
