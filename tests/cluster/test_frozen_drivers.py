"""A driver that is frozen in its pod: noticed by what it does not do, recorded, killed and replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from exactlyonce import crash_points
from testbed.cluster import Cluster
from tests.cluster.operators import MakeOperator, MakeStream, WholeStream, watching_drivers

pytestmark = pytest.mark.timeout(1500)

SHORT = {"spec.driver.progressTimeout": "1m", "spec.sink.postgres.transactionTimeout": "5s"}


def is_ready(stream: WholeStream) -> bool:
    """Whether the kubelet says that the latest driver makes progress."""
    (pod,) = [pod for pod in stream.pods("driver") if pod["metadata"]["name"] == stream.driver_name()]
    conditions = {entry["type"]: entry["status"] for entry in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True"


@pytest.mark.seconds(135)
def test_a_frozen_driver_is_noticed_and_replaced_by_an_operator_that_dies_meanwhile_and_every_id_lands_once(
    make_stream: MakeStream,
    make_operator: MakeOperator,
    cluster: Cluster,
    namespace: str,
    name: str,
    tmp_path: Path,
) -> None:
    """All of it is stopped but its first process: the kubelet continues to report a running container."""
    stream = make_stream(name, SHORT)
    rig = stream.rig
    fired = {point: tmp_path / f"fired-{point}" for point in crash_points.HANG_POINTS}
    environment = {crash_points.VARIABLE: " ".join(f"{point}={file}" for point, file in fired.items())}
    stream.operators.append(make_operator(environment=environment))
    with watching_drivers(cluster, namespace) as seen:
        rig.produce(8_000)
        stream.apply()
        stream.until(lambda: rig.landed() > 0 and is_ready(stream), "a batch has landed, and the driver is ready")
        driver = ("exec", f"--namespace={namespace}", stream.driver_name(1), "--")
        cluster.kubectl(*driver, "/bin/sh", "-c", "kill -STOP -1")
        rig.produce(4_000)
        stream.until(lambda: stream.status["attempt"] == 2, "it has been replaced")
        stream.until_landed_all()
        stream.until(lambda: stream.phase == "Running" and is_ready(stream), "its successor makes progress")
    assert [point for point, file in fired.items() if not file.exists()] == [], "the operator died at each of them"
    assert any(reason == "NoProgress" and "driver.progressTimeout" in words for reason, words in stream.events()), (
        stream.story()
    )
    assert stream.status["verdict"]["kind"] in ("Resume", "ReplayBatch", "SkipLanded"), "its death was proven"
    assert (stream.status["attempt"], seen.doubled()) == (2, {})
    rig.assert_exactly_once()
