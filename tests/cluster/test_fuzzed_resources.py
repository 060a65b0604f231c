"""Resources drawn by a seed, in front of a real API server and a real operator: the mutation is the oracle.

FUZZ_SEED repeats a run.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from exactlyonce.api.resource import ResourceInvalid, parse_stream
from testbed.cluster import Cluster
from tests.cluster.conftest import WithoutRules
from tests.cluster.operators import MakeOperator, MakeStream
from tests.cluster.streams import ServerRefused, Streams
from tests.combinations import EVERY_MODE
from tests.resource_cases import refused
from tests.resource_documents import VALID, Document, Refused, changed, document
from tests.rig import TookTooLong, eventually

SEED = int(os.environ.get("FUZZ_SEED", "7"))
RESOURCES = 300 if EVERY_MODE else 40
STORED = 60 if EVERY_MODE else 30

NEVER_STORED = ("metadata.name", "spec.streamId")
"""What even a definition without rules refuses, or what would make resources share a ledger row."""


def told(cases: list[Refused]) -> str:
    return f"(FUZZ_SEED={SEED}) {[case.name for case in cases]}"


def drawn(namespace: str) -> Iterator[tuple[Document, Refused | None]]:
    """Yield resources, each with the mutation that makes it invalid, or None."""
    dice = random.Random(SEED)
    mutations = list(refused())
    for number in range(RESOURCES):
        name = f"fuzz-{number}"
        valid = dice.choice([changes for changes in VALID.values() if "metadata.name" not in changes])
        if dice.random() < 0.5:
            yield changed(document(valid, name=name, namespace=namespace), OUT_OF_REACH), None
            continue
        mutation = dice.choice(mutations)
        yield changed(document(name=name, namespace=namespace), mutation.changes), mutation


OUT_OF_REACH = {"spec.source.kafka.bootstrapServers": "127.0.0.1:1", "spec.drainTimeout": "1s"}


SAID_OF_EACH = {"Ready", "Reconciling", "Stalled"}
"""Conditions of every stream; others, such as Measured, come when there is something to say."""


@pytest.mark.seconds(80)
@pytest.mark.timeout(1500)
def test_fuzzed_resources_are_refused_by_a_sentence_or_held_in_a_condition_while_another_stream_goes_on(
    make_stream: MakeStream, make_operator: MakeOperator, api: client.ApiClient, namespace: str, name: str
) -> None:
    healthy = make_stream(name)
    operator = make_operator()
    healthy.operators.append(operator)
    healthy.rig.produce(1_000)
    healthy.apply()
    healthy.until_landed_all()

    streams = Streams(api, namespace)
    kept = []
    for resource, mutation in drawn(namespace):
        if mutation is None:
            streams.create(resource)
            parse_stream(resource, "the test")
            kept.append(resource["metadata"]["name"])
            continue
        print(f"FUZZ_SEED={SEED}: {mutation.name}")
        with pytest.raises(ServerRefused) as answer:
            streams.create(resource)
        assert mutation.server_sentence in str(answer.value)
        with pytest.raises(ResourceInvalid):
            parse_stream(resource, "the test")

    healthy.cluster.kill_container(namespace, healthy.driver_name())
    healthy.rig.produce(1_000)
    healthy.until_landed_all()
    healthy.rig.assert_exactly_once()
    waiting: dict[str, Any] = dict.fromkeys(kept)

    def all_are_told() -> bool:
        for stream in list(waiting):
            waiting[stream] = status = streams.get(stream).get("status") or {}
            types = {condition["type"] for condition in status.get("conditions", [])}
            if status.get("message") and types >= SAID_OF_EACH and status["phase"] != "Running":
                del waiting[stream]
        return not waiting

    try:
        healthy.until(all_are_told, f"each of {len(kept)} says in a condition what it lacks", 600)
    except TookTooLong as problem:
        raise AssertionError(f"(FUZZ_SEED={SEED}) {len(waiting)} wait: {json.dumps(waiting)[:3000]}") from problem
    assert operator.is_alive
    assert "failed with an unexpected error" not in operator.log
    let_go(streams, kept)


@pytest.mark.timeout(900)
def test_invalid_resources_that_an_older_definition_let_in_are_held_or_told_in_an_event_and_can_be_deleted(
    without_rules: WithoutRules, make_operator: MakeOperator, cluster: Cluster, api: client.ApiClient, namespace: str
) -> None:
    streams = Streams(api, namespace)
    dice = random.Random(SEED)
    cases = [
        case
        for case in refused()
        if not set(case.changes) & set(NEVER_STORED)
        and "spec" not in case.changes
        and case.on_server != "unknown field"  # what a definition does not know, its server leaves out
    ]
    stored: dict[str, Refused] = {}
    with without_rules():
        for number, case in enumerate(dice.sample(cases, STORED)):
            resource = changed(document(name=f"old-{number}", namespace=namespace), case.changes)
            try:
                streams.create(resource)
            except ServerRefused:
                continue  # metadata is checked by every definition
            stored[resource["metadata"]["name"]] = case
    assert len(stored) > STORED / 2
    operator = make_operator()
    waiting = dict(stored)

    def all_are_held() -> bool:
        for stream, case in list(waiting.items()):
            status = streams.get(stream).get("status") or {}
            stalled = [entry for entry in status.get("conditions", []) if entry["type"] == "Stalled"]
            if stalled and stalled[0]["status"] == "True" and stalled[0]["reason"] == "SpecInvalid":
                assert case.sentence in stalled[0]["message"], f"(FUZZ_SEED={SEED}) {case.name}: {stalled}"
                del waiting[stream]
        for event in json.loads(cluster.kubectl("get", "events", f"--namespace={namespace}", "--output=json"))["items"]:
            if event["reason"] == "NotAccepted":  # of another type than the definition's: nobody can write its status
                assert "is invalid" in event["message"]
                waiting.pop(event["involvedObject"]["name"], None)
        return not waiting

    try:
        eventually(all_are_held, f"each of {len(stored)} is held", 120)
    except TookTooLong as problem:
        raise AssertionError(f"{told(list(waiting.values()))}\n{operator.log[-3000:]}") from problem
    for stream in stored:
        streams.delete(stream)
    eventually(lambda: not _names(cluster, namespace), "each is gone, though its spec is invalid", 120)
    assert operator.is_alive
    assert "failed with an unexpected error" not in operator.log


def let_go(streams: Streams, names: list[str]) -> None:
    for stream in names:
        streams.delete(stream)


def _names(cluster: Cluster, namespace: str) -> str:
    return cluster.kubectl("get", "eos", f"--namespace={namespace}", "--output=name")
