"""What of a resource may change on a real API server, and what happens to one when the definition changes."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from exactlyonce.api.status import Phase, StreamStatus
from scripts import generate_crd
from tests.cluster.stored_streams import STATUS, administrator, with_status
from tests.cluster.streams import ServerRefused, Streams, install
from tests.resource_documents import Changes, changed, document
from tests.rig import eventually

NAMESPACE = f"changed-resource-tests-{uuid.uuid4().hex[:8]}"
RESTS = "only while the stream is suspended: set spec.suspend, wait for the phase Suspended, then change it"


@pytest.fixture(scope="module")
def api(kubeconfig: Path) -> Iterator[client.ApiClient]:
    with administrator(kubeconfig, NAMESPACE) as made:
        yield made


@pytest.fixture
def streams(api: client.ApiClient) -> Streams:
    return Streams(api, NAMESPACE)


@pytest.fixture
def made(streams: Streams, name: str) -> Iterator[dict[str, Any]]:
    """A stream that is there, and has not been looked at by an operator."""
    yield streams.create(resource(name=name))
    streams.delete(name)


def resource(changes: Changes | None = None, *, name: str = "orders") -> dict[str, Any]:
    return document(changes, name=name, namespace=NAMESPACE)


IMMUTABLE: dict[str, tuple[Changes, str]] = {
    "the delivery": ({"spec.delivery": "AtLeastOnce"}, f"delivery can be changed {RESTS}"),
    "the table": ({"spec.sink.postgres.table": "public.others"}, f"sink.doris.write can be changed {RESTS}"),
    "the ledger's schema": ({"spec.sink.postgres.ledgerSchema": "other"}, f"sink.doris.write can be changed {RESTS}"),
    "the checkpoint": ({"spec.checkpoint.s3.location": "s3a://lake/other"}, f"local.path can be changed {RESTS}"),
    "the endpoint": ({"spec.checkpoint.s3.endpoint": "https://other:9000"}, f"local.path can be changed {RESTS}"),
    "the region": ({"spec.checkpoint.s3.region": "eu-central-1"}, f"local.path can be changed {RESTS}"),
    "how the bucket is addressed": ({"spec.checkpoint.s3.pathStyle": True}, f"local.path can be changed {RESTS}"),
    "the claim": (
        {"spec.checkpoint": {"volume": {"claimName": "other", "path": "/c"}}},
        f"local.path can be changed {RESTS}",
    ),
}


@pytest.mark.parametrize(("changes", "sentence"), IMMUTABLE.values(), ids=IMMUTABLE.keys())
def test_what_the_ledger_depends_on_changes_only_before_the_first_attempt_and_while_the_stream_is_suspended(
    streams: Streams, made: dict[str, Any], changes: Changes, sentence: str
) -> None:
    def change(before: dict[str, Any]) -> None:
        streams.replace(changed(before, changes), dry=True)

    change(made)
    change(with_status(streams, made, StreamStatus(phase=Phase.PENDING)))
    for phase in Phase:
        stream = with_status(streams, streams.get(made["metadata"]["name"]), StreamStatus(phase=phase, attempt=1))
        if phase is Phase.SUSPENDED:
            change(stream)
            continue
        with pytest.raises(ServerRefused) as caught:
            change(stream)
        assert sentence in str(caught.value)
        assert str(caught.value).count("Forbidden") == 1


def test_a_folder_may_not_move_to_a_claim_while_the_stream_runs(streams: Streams, name: str) -> None:
    made = streams.create(resource({"spec.checkpoint": {"local": {"path": "/c"}}}, name=name))
    running = with_status(streams, made, STATUS)
    with pytest.raises(ServerRefused, match=r"local\.path can be changed only while"):
        streams.replace(
            changed(running, {"spec.checkpoint": {"volume": {"claimName": "lake", "path": "/c"}}}), dry=True
        )
    streams.delete(name)


@pytest.mark.parametrize("phase", [None, *Phase])
def test_a_stream_id_never_changes(streams: Streams, name: str, phase: Phase | None) -> None:
    sentence = "streamId never changes: the ledger knows the stream by it"
    with_id = streams.create(resource({"spec.streamId": "shop/orders"}, name=name))
    without = streams.create(resource(name=f"{name}-without"))
    if phase is not None:
        with_id = with_status(streams, with_id, StreamStatus(phase=phase, attempt=1))
        without = with_status(streams, without, StreamStatus(phase=phase, attempt=1))
    for before, after in [(with_id, "shop/others"), (with_id, None), (without, "shop/orders")]:
        with pytest.raises(ServerRefused, match=sentence):
            streams.patch(before["metadata"]["name"], {"spec": {"streamId": after}}, dry=True)
    streams.delete(name)
    streams.delete(f"{name}-without")


def test_everything_else_changes_while_the_stream_runs(streams: Streams, made: dict[str, Any]) -> None:
    running = with_status(streams, made, STATUS)
    changes: Changes = {
        "spec.source.kafka.topics": ["orders", "returns"],
        "spec.source.format.schema": "id BIGINT",
        "spec.transform": {"sql": "SELECT id FROM source"},
        "spec.sink.postgres.secretRef": {"name": "rotated"},
        "spec.checkpoint.s3.secretRef": {"name": "rotated"},
        "spec.driver.memory": "4Gi",
        "spec.image": "spark:2",
        "spec.suspend": True,
        "spec.restartNonce": 1,
    }
    after = streams.replace(changed(running, changes))
    assert (after["metadata"]["generation"], after["spec"]["image"]) == (2, "spark:2")


def test_a_stream_that_a_newer_definition_finds_invalid_still_rests_runs_and_goes(
    api: client.ApiClient, streams: Streams, name: str
) -> None:
    """Rules stand where what they are about stands, so the server passes over those whose part has not changed."""
    stricter = copy.deepcopy(generate_crd.definition())
    schema = stricter["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    kafka = schema["properties"]["spec"]["properties"]["source"]["properties"]["kafka"]
    kafka["x-kubernetes-validations"].append(
        {"rule": "self.bootstrapServers.contains(',')", "message": "give two brokers"}
    )
    made = streams.create(changed(resource(name=name), {"metadata.finalizers": ["exactlyonce.dev/drain"]}))

    def is_refused() -> bool:
        try:
            streams.create(resource(), dry=True)
        except ServerRefused as problem:
            return "give two brokers" in str(problem)
        return False

    install(api, stricter)
    try:
        eventually(is_refused, "the stricter definition is in force")
        running = with_status(streams, made, STATUS)
        streams.replace(changed(running, {"spec.suspend": True, "metadata.labels": {"team": "shop"}}))
        with pytest.raises(ServerRefused, match="give two brokers"):
            streams.patch(name, {"spec": {"source": {"kafka": {"maxOffsetsPerTrigger": 5}}}})
        streams.delete(name)
        streams.patch(name, {"metadata": {"finalizers": None}})
        with pytest.raises(ServerRefused, match="not found"):
            streams.get(name)
    finally:
        install(api, generate_crd.definition())
        eventually(lambda: not is_refused(), "the definition is back")
