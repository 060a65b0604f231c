"""What an attempt of a StreamReplay is made of: the stream's own pod without executors, token, checkpoint and record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from exactlyonce.api.resource import parse_stream
from exactlyonce.api.spec import StreamSpec
from exactlyonce.api.stream_replay import parse_replay
from exactlyonce.launch.asked_ranges import AskedRange, left_of, parse_asked, render_asked, tally
from exactlyonce.launch.driver_document import Image
from exactlyonce.launch.driver_pod import Manifests
from exactlyonce.launch.pod_names import driver_name, executor_prefix, launched_as, network_secret_name
from exactlyonce.launch.pod_settings import PodDefaults
from exactlyonce.launch.replay_document import ReplayDocument, ReplayReport
from exactlyonce.launch.replay_pod import ReplayOrders, asked_in, replay_manifests, report_in, sink_in, sink_of
from exactlyonce.launch.restricted import violations
from exactlyonce.ledger.rows import FailureStatus
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition
from tests.resource_documents import document
from tests.unit.replay_documents import failed, replay

ROWS = (failed(4, 0, 10, 20), failed(9, 0, 70, 85))
ASKED = tuple(AskedRange.of(row) for row in ROWS)
ON_A_CLAIM = {
    "spec.checkpoint": {"volume": {"claimName": "lake", "path": "/lake/orders", "mountPath": "/lake"}},
    "spec.sparkUi": {"enabled": True},
    "spec.driver.podTemplate": {"spec": {"nodeSelector": {"disk": "fast"}}},
}
BATCH, TOPIC = BatchNumber(4), Partition("orders", 0)


def made(spec: dict[str, Any] | None = None, changes: dict[str, Any] | None = None) -> Manifests:
    """Return the manifests of the second attempt of a replay."""
    stream = parse_stream(document(changes or {}), "the test")
    found = parse_replay(replay(**(spec or {})), "the test")
    orders = ReplayOrders(ASKED, left_of(ASKED, ROWS))
    defaults = PodDefaults("spark", Image("registry.example/spark:1", "IfNotPresent", ("registry-login",)))
    return replay_manifests(found, "uid-mend", stream, Epoch(2), defaults, orders)


def read(manifests: Manifests) -> ReplayDocument:
    return ReplayDocument.parse(manifests.config_map["data"]["replay.json"])


def test_the_pod_is_the_streams_driver_without_executors_token_claim_and_finalizer() -> None:
    manifests = made(changes=ON_A_CLAIM)
    pod = manifests.pod
    assert [it["kind"] for it in manifests.all()] == ["ConfigMap", "Pod"]
    assert pod["metadata"]["name"] == manifests.config_map["metadata"]["name"] == "mend-replay-2"
    assert "finalizers" not in pod["metadata"]
    assert pod["metadata"]["labels"]["exactlyonce.dev/replay-of"] == "orders"
    assert pod["metadata"]["labels"]["exactlyonce.dev/stream"] == "mend.replay", (
        "no launcher of a stream takes it for its own"
    )
    spec = pod["spec"]
    assert (spec["automountServiceAccountToken"], spec["restartPolicy"], spec["serviceAccountName"]) == (
        False,
        "Never",
        "spark",
    )
    assert spec["nodeSelector"] == {"disk": "fast"}, "the stream's template applies"
    assert {next(iter(it.keys() - {"name"})) for it in spec["volumes"]} == {"configMap", "emptyDir", "secret"}
    (container,) = spec["containers"]
    progress = {it["name"]: it.get("value") for it in container["env"]}["EXACTLYONCE_PROGRESS"]
    assert progress in container["readinessProbe"]["exec"]["command"], (
        "one that hangs is known by the file that it touches"
    )
    assert container["image"] == "registry.example/spark:1"
    assert container["args"][0] == "replay"
    assert "ports" not in container
    assert list(violations(spec)) == [], "the level restricted admits it"


def test_everything_belongs_to_the_replay_and_goes_with_it() -> None:
    for manifest in made().all():
        (owner,) = manifest["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("StreamReplay", "mend", "uid-mend")


def test_no_name_of_a_replay_is_that_of_a_stream() -> None:
    attempt = Epoch(1)
    for replay_name in ("orders", "orders-replay", "orders-driver"):
        launched = launched_as(replay_name)
        for stream in ("orders", "orders-replay", "orders-driver", f"{replay_name}-replay"):
            for name in (driver_name, network_secret_name, executor_prefix):
                assert name(launched, attempt) != name(stream, attempt)
    assert len(driver_name(launched_as("a" * 49), Epoch(999_999))) <= 63


def test_the_document_has_the_ranges_the_limits_and_the_transform_of_the_replay() -> None:
    found = read(made({"transform": {"sql": "select 1 as id from source"}, "limit": 500, "chunk": 50}))
    assert [(key.batch, key.partition, key.from_offset) for key in found.ranges] == [(4, TOPIC, 10), (9, TOPIC, 70)]
    assert (found.most_records, found.records_per_second, found.stream_id) == (50, 500.0, "shop/orders")
    assert found.master.startswith("local[")
    assert StreamSpec.model_validate(found.spec).transform is not None
    assert found.spec["transform"] == {"sql": "select 1 as id from source"}
    assert "sparkUi" not in read(made(changes=ON_A_CLAIM)).spec


def test_no_secret_stands_in_what_is_created() -> None:
    text = json.dumps(made().all())
    assert "hidden" not in text
    assert "password" not in text


def test_asked_ranges_come_back_from_the_config_map() -> None:
    assert asked_in([made().config_map]) == ASKED
    assert parse_asked(render_asked(ASKED)) == ASKED
    assert asked_in([{"data": {"asked.json": "[[1]]"}}, {"data": None}, {}]) is None


def test_the_sink_of_an_attempt_is_told_from_its_config_map_and_from_one_that_was_changed_since() -> None:
    table = {"spec.sink.postgres.table": "public.orders_new"}
    now, then = (parse_stream(document(changes), "the test") for changes in (table, {}))
    assert sink_in(made().config_map) == sink_of(then)
    assert sink_in(made(changes=table).config_map) == sink_of(now) != sink_of(then)
    assert sink_in({"data": {"replay.json": "[]"}}) is None


def test_what_is_left_of_a_range_belongs_to_it_and_what_lies_beside_it_does_not() -> None:
    rows = [
        failed(4, 0, 10, 13, FailureStatus.REPLAYED),
        failed(4, 0, 13, 14, FailureStatus.QUARANTINED),
        failed(4, 0, 14, 20, FailureStatus.REPLAYING),
        failed(9, 0, 70, 85, FailureStatus.SUPERSEDED),
        failed(4, 0, 20, 30),
        failed(4, 1, 10, 20),
        failed(5, 0, 10, 20),
    ]
    assert [key.from_offset for key in left_of(ASKED, rows)] == [13, 14]
    counted = tally(ASKED, rows)
    assert (counted.records.asked, counted.records.replayed, counted.records.put_back) == (25, 3, 7)
    assert counted.records.read_again == 15
    assert (counted.ranges.asked, counted.ranges.replayed, counted.ranges.put_back, counted.ranges.lost) == (2, 0, 1, 0)


@pytest.mark.parametrize("count", [0, 1, 5, 400])
def test_a_report_fits_a_termination_message_however_much_there_is_to_tell(count: int) -> None:
    told = tuple(f"The record 4/orders-0/{number} failed again: \N{SNOWMAN}{'x' * 900}" for number in range(count))
    report = ReplayReport(7, 6, 5, count, told, "It ended: " + "y" * 5000, "Failed")
    text = report.render(4096)
    assert len(text.encode()) <= 4096
    read_again = report_in(ended(text))
    assert read_again is not None
    assert (read_again.landed, read_again.failed, read_again.ending) == (7, count, "Failed")
    assert len(read_again.told) >= min(count, 5)
    assert ReplayReport.parse(report.render()) == report, "a file holds all of it"


@pytest.mark.parametrize(
    "text", ["", "Traceback (most recent call last):", "[1]", '{"landed": 1}', '{"told": [], "no": 1}']
)
def test_a_pod_that_left_no_report_has_none(text: str) -> None:
    assert report_in(ended(text)) is None


def ended(message: str) -> dict[str, Any]:
    state = {"terminated": {"exitCode": 1, "message": message}}
    return {"status": {"containerStatuses": [{"name": "driver", "state": state}]}}
