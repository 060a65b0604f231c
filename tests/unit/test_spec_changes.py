"""Which changes of a resource need another driver: what an attempt is made of, from what its user wrote alone."""

from __future__ import annotations

from typing import Any

import pytest

from exactlyonce.api.resource import parse_stream
from exactlyonce.control.resource_hashes import driver_plan
from tests.resource_documents import document


def plan(changes: dict[str, Any]) -> str:
    """Return what stands for the driver of a resource with these changes."""
    return driver_plan(parse_stream(document(changes), "the test").spec)


KAFKA = document()["spec"]["source"]["kafka"]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"spec.recovery": {"onCheckpointLost": "Halt", "maxFailuresPerBatch": 9}}, id="recovery"),
        pytest.param({"spec.history": 7}, id="history"),
        pytest.param({"spec.deletionPolicy": "Delete"}, id="deletionPolicy"),
        pytest.param({"spec.objectives": {"lagSeconds": 60}}, id="objectives"),
        pytest.param({"spec.suspend": True}, id="suspend"),
        pytest.param({"spec.drainTimeout": "9m"}, id="drainTimeout"),
        pytest.param({"spec.driver": {"startTimeout": "1m"}}, id="driver.startTimeout"),
        pytest.param({"spec.source.kafka": {**KAFKA, "start": {"from": "Latest"}}}, id="source.kafka.start"),
        pytest.param({"spec.delivery": "ExactlyOnce", "spec.driver": {"cores": 2}}, id="a default that is written out"),
    ],
)
def test_a_change_of_what_the_operator_alone_reads_leaves_the_driver_as_it_is(changes: dict[str, Any]) -> None:
    assert plan(changes) == plan({})


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"spec.restartNonce": 1}, id="restartNonce"),
        pytest.param({"spec.image": "registry.example/spark:2"}, id="image"),
        pytest.param({"spec.driver": {"startTimeout": "1m", "cores": 1}}, id="driver.cores"),
        pytest.param({"spec.executor": {"instances": 5}}, id="executor.instances"),
        pytest.param({"spec.driver": {"podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}}}, id="a pod template"),
        pytest.param({"spec.source.kafka": {**KAFKA, "topics": ["orders", "refunds"]}}, id="topics"),
        pytest.param({"spec.source.format": {"schema": "id BIGINT, note STRING"}}, id="the schema"),
        pytest.param({"spec.transform": {"sql": "SELECT id FROM source"}}, id="the transform"),
        pytest.param({"spec.trigger": {"interval": "1s"}}, id="the trigger"),
        pytest.param({"spec.sparkConf": {"spark.log.level": "INFO"}}, id="a setting of Spark's"),
    ],
)
def test_a_change_of_what_the_driver_is_made_of_needs_another_one(changes: dict[str, Any]) -> None:
    assert plan(changes) != plan({})
