"""An operator looks after the streams of the namespaces that it is told, of several or of all, and of no other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes import client

from scripts.generate_crd import UNSEEN
from testbed.cluster import Cluster
from tests.cluster.operators import FINALIZER, MakeOperator
from tests.cluster.streams import ServerRefused, Streams
from tests.resource_documents import document
from tests.rig import eventually


@pytest.fixture
def streams(cluster: Cluster, api: client.ApiClient, namespace: str) -> Iterator[list[Streams]]:
    """A stream in each of three namespaces."""
    others = [f"{namespace}-b", f"{namespace}-c"]
    for other in others:
        cluster.kubectl("create", "namespace", other)
    made = [Streams(api, name) for name in (namespace, *others)]
    for each in made:
        each.create(document(namespace=each.namespace))
    yield made
    for each in made:
        try:
            each.patch("orders", {"metadata": {"finalizers": None}})
        except ServerRefused:
            continue
    for other in others:
        cluster.kubectl("delete", "namespace", other, "--wait=false")


@pytest.mark.timeout(300)
def test_an_operator_of_two_namespaces_leaves_the_third_alone_and_one_of_all_does_not(
    streams: list[Streams], make_operator: MakeOperator
) -> None:
    first, second, third = streams
    operator = make_operator(namespaces=f"{first.namespace},{second.namespace}")
    eventually(lambda: is_observed(first) and is_observed(second), "the first look at both", 120)
    for each in streams:
        each.patch("orders", {"spec": {"history": 6}})
    eventually(lambda: is_observed(first) and is_observed(second), "a change of both is seen", 120)
    assert third.get("orders")["metadata"].get("finalizers", []) == []
    assert third.get("orders")["status"] == UNSEEN
    assert operator.is_alive, operator.log
    operator.end()

    of_all = make_operator(namespaces="", name="of-all")
    eventually(lambda: is_observed(third), "the third is looked at by the operator of all", 120)
    third.patch("orders", {"spec": {"history": 7}})
    eventually(lambda: is_observed(third), "a change of it is seen", 120)
    assert of_all.is_alive, of_all.log


def is_observed(streams: Streams) -> bool:
    found = streams.get("orders")
    taken = FINALIZER in found["metadata"].get("finalizers", [])
    return taken and found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
