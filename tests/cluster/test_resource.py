"""The resource on a real API server: what it refuses, what it fills in and what it keeps.

The invalid resources are those of tests/resource_cases.py: a known change of a valid one, which `exactlyonce validate` refuses
with the same sentence (tests/unit/test_resource_schema.py).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from exactlyonce.api.conditions import rendered
from exactlyonce.api.resource import ResourceInvalid, parse_stream
from exactlyonce.api.status import (
    Phase,
    StreamStatus,
)
from exactlyonce.connectors.kafka import client_properties
from scripts import generate_crd
from tests.cluster.stored_streams import NOW, STATUS, administrator, with_status
from tests.cluster.streams import ServerRefused, Streams, published_schema
from tests.resource_cases import refused
from tests.resource_documents import (
    FULL,
    KAFKA,
    KAFKA_LOGIN,
    NOT_IN_FULL,
    POSTGRES,
    VALID,
    Changes,
    Refused,
    changed,
    document,
)
from tests.rig import eventually

NAMESPACE = f"resource-tests-{uuid.uuid4().hex[:8]}"


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


@pytest.mark.parametrize("case", refused(), ids=lambda case: case.name)
def test_an_invalid_resource_is_refused_with_a_sentence(streams: Streams, case: Refused) -> None:
    with pytest.raises(ServerRefused) as caught:
        streams.create(resource(case.changes), dry=True)
    assert case.server_sentence in str(caught.value)
    assert "canary" not in str(caught.value)
    assert "evaluating rule" not in str(caught.value), "a rule that fails to be evaluated tells nobody anything"


def test_a_pattern_that_does_not_compile_is_left_to_the_operator(streams: Streams) -> None:
    """No rule of CEL can say that parentheses close. It becomes a condition."""
    sent = resource({"spec.source.kafka": {"bootstrapServers": "kafka:9092", "topicPattern": "orders-("}})
    stored = streams.create(sent, dry=True)
    with pytest.raises(ResourceInvalid, match=r"topicPattern: 'orders-\(' is not a regular expression"):
        parse_stream(stored, "the server")


@pytest.mark.parametrize("changes", VALID.values(), ids=VALID.keys())
def test_a_valid_resource_is_taken_and_filled_in_with_the_models_own_defaults(
    streams: Streams, changes: Changes
) -> None:
    sent = resource(changes)
    stored = streams.create(sent, dry=True)
    assert parse_stream(stored, "the server") == parse_stream(sent, "the test")


def test_every_field_of_the_spec_is_kept_as_it_was_sent(streams: Streams) -> None:
    sent = changed(FULL, {"metadata.namespace": NAMESPACE})
    assert streams.create(sent, dry=True)["spec"] == sent["spec"]


def test_a_pod_template_is_kept_whole(streams: Streams) -> None:
    spec = {"tolerations": [{"key": "spot", "operator": "Exists"}], "securityContext": None, "x": {"y": [1, 2.5, "z"]}}
    sent = resource({"spec.driver": {"podTemplate": {"spec": spec}}})
    assert streams.create(sent, dry=True)["spec"]["driver"]["podTemplate"]["spec"] == spec


def test_the_largest_resource_is_within_the_budget_of_its_rules(streams: Streams) -> None:
    """The server stops a resource whose rules cost too much to run; every list and map here is at its bound."""
    texts = {f"name-{number}": 1000 * "x" for number in range(200)}
    labels = {f"label-{number}": 63 * "x" for number in range(100)}
    template = {"metadata": {"labels": labels, "annotations": dict.fromkeys(texts, "x")}}
    sent = resource(
        {
            "spec.source.kafka": {
                **KAFKA,
                "topics": [f"{number:03}-{240 * 'x'}" for number in range(1000)],
                "properties": {**dict.fromkeys(client_properties.ALLOWED, 1000 * "x"), **KAFKA_LOGIN},
                "secretRef": {"name": "kafka-client"},
                "start": {
                    "from": "Offsets",
                    "offsets": [{"topic": 10 * "x", "partition": at, "offset": at} for at in range(10_000)],
                },
            },
            "spec.sparkConf": {f"spark.{key}": value for key, value in texts.items()},
            "spec.transform": {"sql": 100_000 * "x"},
            "spec.sink.postgres": {
                **POSTGRES,
                "write": "Merge",
                "keys": [f"key-{number}" for number in range(32)],
                "merge": [{"column": f"column-{number}", "combine": "Sum"} for number in range(1600)],
            },
            "spec.driver": {"podTemplate": template},
            "spec.executor": {"podTemplate": template},
        }
    )
    assert streams.create(sent, dry=True)["spec"]["history"] == 3


def test_what_kubectl_explain_tells_is_there_for_every_field(api: client.ApiClient) -> None:
    eventually(lambda: "properties" in published_schema(api), "the schema is published")
    spec = published_schema(api)["properties"]["spec"]
    assert spec["properties"]["delivery"]["description"].startswith("The guarantee for every record.")
    assert set(spec["properties"]) == set(FULL["spec"]) | NOT_IN_FULL


def test_a_stream_that_no_operator_has_looked_at_is_pending_and_not_yet_observed(made: dict[str, Any]) -> None:
    """Helm's --wait and Flux would take a stream without a status for one that is ready."""
    assert made["status"] == {"phase": "Pending", "observedGeneration": -1}


def test_kubectl_get_tells_how_a_stream_is(streams: Streams, made: dict[str, Any]) -> None:
    with_status(streams, made, STATUS)
    shown = streams.shown(made["metadata"]["name"])
    assert list(shown) == [
        "Name",
        "Phase",
        "Ready",
        "Batch",
        "Lag-Seconds",
        "Held",
        "Verdict",
        "Attempt",
        "Age",
        "Lag-Records",
        "Lag-Files",
        "Message",
    ]
    assert shown.pop("Age") != ""
    assert shown == {
        "Name": made["metadata"]["name"],
        "Phase": "Running",
        "Ready": "True",
        "Batch": "4215",
        "Lag-Seconds": "3",
        "Held": "5",
        "Verdict": "ReplayBatch",
        "Attempt": "17",
        "Lag-Records": "77",
        "Lag-Files": "12",
        "Message": "Attempt 17 runs.",
    }


def test_every_field_of_the_status_is_kept_as_it_was_written(streams: Streams, made: dict[str, Any]) -> None:
    written = rendered(STATUS.model_copy(update={"spec_problem": "spec: no."}), made, NOW)
    written |= {"haltReason": "FilesGone"}  # which only a halted stream has
    fields = generate_crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert set(written) == set(fields["properties"]), "STATUS has every field"
    assert streams.replace_status({**made, "status": written})["status"] == written


@pytest.mark.parametrize("phase", Phase)
def test_the_status_of_every_phase_is_taken_however_long_its_message(
    streams: Streams, made: dict[str, Any], phase: Phase
) -> None:
    stored = with_status(streams, made, StreamStatus(phase=phase, message="x" * 200_000))
    assert StreamStatus.model_validate(stored["status"]).phase is phase


def test_the_status_changes_neither_the_spec_nor_the_generation_and_the_spec_not_the_status(
    streams: Streams, made: dict[str, Any]
) -> None:
    name = made["metadata"]["name"]
    after = streams.replace_status({**changed(made, {"spec.history": 9}), "status": rendered(STATUS, made, NOW)})
    assert (after["spec"]["history"], after["metadata"]["generation"]) == (3, 1)
    after = streams.patch(name, {"spec": {"history": 9}, "status": {"phase": "Halted"}})
    assert (after["spec"]["history"], after["metadata"]["generation"], after["status"]["phase"]) == (9, 2, "Running")


def test_a_status_for_an_older_version_of_the_resource_is_a_conflict(streams: Streams, made: dict[str, Any]) -> None:
    streams.patch(made["metadata"]["name"], {"spec": {"history": 9}})
    with pytest.raises(ServerRefused) as caught:
        with_status(streams, made, STATUS)
    assert caught.value.reason == "Conflict"


def test_streams_are_found_by_their_short_name_and_with_all_that_streams(api: client.ApiClient) -> None:
    found: Any = client.CustomObjectsApi(api)
    listed = found.get_api_resources(generate_crd.GROUP, generate_crd.VERSION).to_dict()["resources"]
    (kind,) = (entry for entry in listed if entry["name"] == generate_crd.PLURAL)
    assert (kind["short_names"], kind["categories"], kind["namespaced"]) == (["eos"], ["streaming"], True)
    assert f"{generate_crd.PLURAL}/status" in {entry["name"] for entry in listed}
