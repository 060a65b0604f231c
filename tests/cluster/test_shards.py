"""Operators that share the streams by their labels: each leaves the others' streams alone, whatever wakes it."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client

from tests.cluster.operators import FINALIZER, MakeOperator
from tests.cluster.pods import apply, pod
from tests.cluster.streams import Streams
from tests.resource_cases import document
from tests.rig import eventually

ONE_AT_A_TIME = {"EXACTLYONCE_OPERATOR_SELECTOR": "shard=a", "EXACTLYONCE_OPERATOR_WORKERS": "1"}


@pytest.mark.timeout(300)
def test_a_stream_of_another_shard_is_left_alone_also_when_its_pods_change(
    api: client.ApiClient, make_operator: MakeOperator, namespace: str
) -> None:
    streams = Streams(api, namespace)
    operator = make_operator(environment=ONE_AT_A_TIME)
    uids = {}
    for name, shard in (("theirs", "b"), ("ours", "a")):
        resource = document(name=name, namespace=namespace)
        resource["metadata"]["labels"] = {"shard": shard}
        uids[name] = streams.create(resource)["metadata"]["uid"]
    eventually(lambda: is_taken(streams, "ours"), "the operator has looked at its stream", 120)

    accounts = ["get", "serviceaccounts", f"--namespace={namespace}", "--output=name"]
    eventually(lambda: "default" in operator.cluster.kubectl(*accounts), "pods may be made")
    # One worker, first come, first served: when it has looked at the second, it is done with the first.
    for name in ("theirs", "ours"):
        apply(operator.cluster, namespace, driver_of(name, uids[name]))
    streams.patch("ours", {"spec": {"history": 5}})
    eventually(lambda: is_observed(streams, "ours"), "it has looked again", 120)
    assert not is_taken(streams, "theirs")

    streams.patch("theirs", {"metadata": {"labels": {"shard": "a"}}})
    eventually(lambda: is_taken(streams, "theirs"), "it has become one of its own", 120)
    streams.patch("ours", {"metadata": {"labels": {"shard": "b"}}})
    streams.patch("ours", {"spec": {"history": 6}})
    streams.patch("theirs", {"spec": {"history": 6}})
    eventually(lambda: is_observed(streams, "theirs"), "it looks at the one that it has taken", 120)
    assert not is_observed(streams, "ours"), "and no longer at the one that it has given away"
    assert operator.is_alive
    for name in uids:
        streams.patch(name, {"metadata": {"finalizers": None}})


def is_taken(streams: Streams, name: str) -> bool:
    return FINALIZER in streams.get(name)["metadata"].get("finalizers", [])


def is_observed(streams: Streams, name: str) -> bool:
    found = streams.get(name)
    return bool(found["status"]["observedGeneration"] == found["metadata"]["generation"])


def driver_of(stream: str, uid: str) -> dict[str, Any]:
    """A pod that looks like a stream's driver and runs nowhere."""
    made = pod(f"{stream}-driver-9", "localhost/none", ["true"], nodeSelector={"no": "node"})
    made["metadata"] |= {
        "labels": {"exactlyonce.dev/role": "driver", "exactlyonce.dev/stream": stream, "exactlyonce.dev/attempt": "9"},
        "ownerReferences": [
            {"apiVersion": "exactlyonce.dev/v1alpha1", "kind": "ExactlyOnceStream", "name": stream, "uid": uid}
        ],
    }
    return made
