"""The resource on a real API server: what it refuses, what it fills in, what it keeps, and what may change.

The invalid resources are those of tests/resource_cases.py: a known change of a valid one, which `exactlyonce validate` refuses
with the same sentence (tests/unit/test_resource_schema.py).
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from exactlyonce.api.conditions import rendered
from exactlyonce.api.former_form import to_current_form
from exactlyonce.api.resource import ResourceInvalid, parse_stream
from exactlyonce.api.status import (
    BadUpdate,
    BatchLimit,
    CheckpointStatus,
    DriverStatus,
    GoodAttempt,
    Phase,
    Progress,
    StreamStatus,
    Trouble,
    VerdictStatus,
)
from exactlyonce.connectors.kafka import client_properties
from scripts import generate_crd
from tests.cluster.conftest import WithoutRules
from tests.cluster.streams import ServerRefused, Streams, install, make_namespace, published_schema
from tests.resource_cases import refused
from tests.resource_documents import (
    FULL,
    KAFKA,
    NOT_IN_FULL,
    POSTGRES,
    VALID,
    Changes,
    Refused,
    changed,
    document,
    merging,
)
from tests.rig import eventually

NAMESPACE = f"resource-tests-{uuid.uuid4().hex[:8]}"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RESTS = "only while the stream rests: set spec.suspend, wait for the phase Suspended, then change it"

STATUS = StreamStatus(
    phase=Phase.RUNNING,
    message="Attempt 17 runs.",
    attempt=17,
    batch_limit=BatchLimit(
        records=200,
        why="Batch 7 was too large: it took longer than it may.",
        batch=7,
        until='{"orders":{"0":400}}',
        since=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    ),
    verdict=VerdictStatus(
        kind="ReplayBatch",
        reason="Batch 8 was planned.",
        attempt=17,
        at=NOW,
        batch=8,
        evidence=({"words": "offsets/8 is there.", "ranges": {"orders": [[0, 7, 19]]}},),
    ),
    driver=DriverStatus(
        attempt=17, landed_at_start=7, plan="ab12", pod_name="orders-driver-17", image="spark:1", started_at=NOW
    ),
    checkpoint=CheckpointStatus(generation=3, location="s3a://lake/checkpoints/orders/generation-000003-a17"),
    progress=Progress(batch=4215, committed_at=NOW, lag_records=77, lag_seconds=3),
    trouble=Trouble(endings=1, batch=8, batch_failures=1, retry_at=NOW),
    last_good=GoodAttempt(attempt=17, plan="ab12", image="spark:1"),
    bad_update=BadUpdate(
        plan="ef56",
        image="spark:2",
        attempt=16,
        at=NOW,
        failures=1,
        tries=2,
        reason="ImageNotPullable",
        why="The image spark:2 cannot be pulled.",
        stays="It has failed once.",
    ),
    acted_on="cd34",
)


@pytest.fixture(scope="module")
def api(kubeconfig: Path) -> Iterator[client.ApiClient]:
    """A client of an administrator, with the definition installed."""
    connect: Any = config.new_client_from_config
    with connect(str(kubeconfig)) as made:
        install(made, generate_crd.definition())
        make_namespace(made, NAMESPACE)
        yield made
        core: Any = client.CoreV1Api(made)
        core.delete_namespace(NAMESPACE)


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


def with_status(streams: Streams, before: dict[str, Any], status: StreamStatus) -> dict[str, Any]:
    """Write a status as the operator does."""
    return streams.replace_status({**before, "status": rendered(status, before, NOW)})


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
    with pytest.raises(ResourceInvalid, match=r"topicPattern: 'orders-\(' is no regular expression"):
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
                "properties": dict.fromkeys(client_properties.ALLOWED, 1000 * "x"),
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
    assert spec["properties"]["delivery"]["description"].startswith("What is promised for every record.")
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
        "Verdict",
        "Attempt",
        "Age",
        "Lag-Records",
        "Message",
    ]
    assert shown.pop("Age") != ""
    assert shown == {
        "Name": made["metadata"]["name"],
        "Phase": "Running",
        "Ready": "True",
        "Batch": "4215",
        "Lag-Seconds": "3",
        "Verdict": "ReplayBatch",
        "Attempt": "17",
        "Lag-Records": "77",
        "Message": "Attempt 17 runs.",
    }


def test_every_field_of_the_status_is_kept_as_it_was_written(streams: Streams, made: dict[str, Any]) -> None:
    written = rendered(STATUS.model_copy(update={"spec_problem": "spec: no."}), made, NOW)
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


IMMUTABLE: dict[str, tuple[Changes, str]] = {
    "the delivery": ({"spec.delivery": "AtLeastOnce"}, f"delivery changes {RESTS}"),
    "the table": ({"spec.sink.postgres.table": "public.others"}, f"sink.files.manifest change {RESTS}"),
    "the ledger's schema": ({"spec.sink.postgres.ledgerSchema": "other"}, f"sink.files.manifest change {RESTS}"),
    "the checkpoint": ({"spec.checkpoint.s3.location": "s3a://lake/other"}, f"local.path change {RESTS}"),
    "the endpoint": ({"spec.checkpoint.s3.endpoint": "https://other:9000"}, f"local.path change {RESTS}"),
    "the region": ({"spec.checkpoint.s3.region": "eu-central-1"}, f"local.path change {RESTS}"),
    "how the bucket is addressed": ({"spec.checkpoint.s3.pathStyle": True}, f"local.path change {RESTS}"),
    "the claim": (
        {"spec.checkpoint": {"volume": {"claimName": "other", "path": "/c"}}},
        f"local.path change {RESTS}",
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
    with pytest.raises(ServerRefused, match=r"local\.path change only while"):
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


FORMER: Changes = {
    "spec.checkpoint": {"location": "s3a://lake/checkpoints/orders", "secretRef": {"name": "lake"}},
    "spec.driver": {"memory": "2g"},
}
FORMER_MERGE: Changes = {**FORMER, "spec.sink.postgres": {**merging(), "merge": {"total": "Sum"}}}


def test_a_stream_that_stands_in_the_former_form_can_be_suspended_and_then_takes_the_converted_file(
    streams: Streams, without_rules: WithoutRules, name: str
) -> None:
    """What the definition does not know is pruned: the operator sees no location, and its sentence still names the command."""
    former = resource(FORMER, name=name)
    with without_rules():
        streams.create(former)
    stored = streams.get(name)
    assert stored["spec"]["checkpoint"] == {}
    with pytest.raises(ResourceInvalid) as caught:
        parse_stream(stored, "the resource")
    assert [sentence.count("exactlyonce convert FILE rewrites") for sentence in caught.value.problems] == [1, 1]
    running = with_status(streams, stored, STATUS)
    converted = to_current_form(former)["spec"]
    with pytest.raises(ServerRefused, match="change only while the stream rests"):
        streams.replace({**running, "spec": converted}, dry=True)
    streams.patch(name, {"spec": {"suspend": True}})
    resting = with_status(streams, streams.get(name), StreamStatus(phase=Phase.SUSPENDED, attempt=3))
    after = streams.replace({**resting, "spec": converted})
    assert after["spec"]["checkpoint"]["s3"]["location"] == "s3a://lake/checkpoints/orders"
    streams.delete(name)


def test_a_merge_in_the_former_form_takes_the_converted_file_if_it_was_suspended_before_the_upgrade(
    streams: Streams, without_rules: WithoutRules, name: str
) -> None:
    former = resource(FORMER_MERGE, name=name)
    with without_rules():
        with_status(streams, streams.create(former), StreamStatus(phase=Phase.SUSPENDED, attempt=3))
    after = streams.replace({**streams.get(name), "spec": to_current_form(former)["spec"]})
    assert after["spec"]["sink"]["postgres"]["merge"] == [{"column": "total", "combine": "Sum"}]
    streams.delete(name)


def test_a_merge_in_the_former_form_that_was_not_suspended_needs_its_list_first(
    streams: Streams, without_rules: WithoutRules, name: str
) -> None:
    """Rules of the definition cannot read a map where a list stands, and the server forgives no rule that it cannot read."""
    former = resource(FORMER_MERGE, name=name)
    with without_rules():
        streams.create(former)
    with pytest.raises(ServerRefused, match="expected an array"):
        with_status(streams, streams.get(name), STATUS)
    merge = to_current_form(former)["spec"]["sink"]["postgres"]["merge"]
    streams.patch(name, {"spec": {"sink": {"postgres": {"merge": merge}}}})
    assert with_status(streams, streams.get(name), STATUS)["status"]["phase"] == "Running"
    streams.delete(name)


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


def test_streams_are_found_by_their_short_name_and_with_all_that_streams(api: client.ApiClient) -> None:
    found: Any = client.CustomObjectsApi(api)
    listed = found.get_api_resources(generate_crd.GROUP, generate_crd.VERSION).to_dict()["resources"]
    (kind,) = (entry for entry in listed if entry["name"] == generate_crd.PLURAL)
    assert (kind["short_names"], kind["categories"], kind["namespaced"]) == (["eos"], ["streaming"], True)
    assert f"{generate_crd.PLURAL}/status" in {entry["name"] for entry in listed}
