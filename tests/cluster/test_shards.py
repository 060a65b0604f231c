"""Operators that share the streams by their labels: each leaves the others' streams alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from kubernetes import client
from prometheus_client import CollectorRegistry

from exactlyonce.control.cluster import Cluster
from exactlyonce.control.metrics import OperatorMetrics
from exactlyonce.control.next_pass import Next
from exactlyonce.control.observer import Observer
from exactlyonce.control.pass_ports import Leaving, Making, Writing
from exactlyonce.control.stream_pass import StreamPasses
from exactlyonce.control.wakeups import Key
from exactlyonce.errors import SecretMissing
from exactlyonce.monitor.monitor import Monitor
from tests.cluster.operators import FINALIZER, MakeOperator
from tests.cluster.streams import Streams
from tests.resource_documents import document
from tests.rig import eventually


@pytest.fixture
def streams(api: client.ApiClient, namespace: str) -> Streams:
    """A stream of shard a and one of shard b."""
    made = Streams(api, namespace)
    for name, shard in (("ours", "a"), ("theirs", "b")):
        resource = document(name=name, namespace=namespace)
        resource["metadata"]["labels"] = {"shard": shard}
        made.create(resource)
    return made


def test_a_pass_over_a_stream_of_another_shard_does_nothing_whatever_has_woken_it(streams: Streams) -> None:
    def no_parts(*_: Any) -> Any:
        raise SecretMissing("Secret warehouse is not there.")

    def no_deletion(_: Mapping[str, Any]) -> float | None:
        raise AssertionError("nothing is deleted here")

    passes = StreamPasses(
        Cluster(streams.api, "here"),
        Making(no_parts),
        Writing(lambda status, _: {"phase": status.phase}, lambda: True),
        Leaving(no_deletion),
        Observer(Monitor(), OperatorMetrics(CollectorRegistry())),
        selector="shard=a",
    )
    before = streams.get("theirs")
    assert passes.run(Key(streams.namespace, "theirs")) == Next(None)
    assert streams.get("theirs") == before
    assert passes.run(Key(streams.namespace, "ours")) != Next(None)
    assert is_taken(streams, "ours")
    streams.patch("ours", {"metadata": {"finalizers": None}})


@pytest.mark.timeout(300)
def test_a_stream_belongs_to_the_operator_of_its_labels_from_the_moment_it_gets_them(
    streams: Streams, make_operator: MakeOperator
) -> None:
    operator = make_operator(
        environment={"EXACTLYONCE_OPERATOR_SELECTOR": "shard=a", "EXACTLYONCE_OPERATOR_WORKERS": "1"}
    )

    def looked(name: str, condition: Callable[[Streams, str], bool]) -> bool:
        assert operator.is_alive, operator.log
        return condition(streams, name)

    eventually(lambda: looked("ours", is_taken), "the operator has looked at its stream", 120)
    assert not is_taken(streams, "theirs")

    streams.patch("theirs", {"metadata": {"labels": {"shard": "a"}}})
    eventually(lambda: looked("theirs", is_taken), "it has become one of its own", 120)
    streams.patch("ours", {"metadata": {"labels": {"shard": "b"}}})
    streams.patch("ours", {"spec": {"history": 6}})
    streams.patch("theirs", {"spec": {"history": 6}})
    eventually(lambda: looked("theirs", is_observed), "it looks at the one that it has taken", 120)
    assert not is_observed(streams, "ours"), "and no longer at the one that it has given away"
    for name in ("ours", "theirs"):
        streams.patch(name, {"metadata": {"finalizers": None}})


def is_taken(streams: Streams, name: str) -> bool:
    return FINALIZER in streams.get(name)["metadata"].get("finalizers", [])


def is_observed(streams: Streams, name: str) -> bool:
    found = streams.get(name)
    return bool(found["status"]["observedGeneration"] == found["metadata"]["generation"])
