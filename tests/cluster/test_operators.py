"""The operator is killed at every boundary of its passes, and two of them act at once: never two drivers that both land."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from exactlyonce import crash_points
from testbed.cluster import Cluster
from tests.cluster.operators import MakeOperator, MakeStream, watching_drivers
from tests.combinations import EVERY_MODE

pytestmark = pytest.mark.timeout(1500)


@pytest.mark.seconds(130)
def test_the_operator_is_killed_at_every_boundary_of_its_passes_and_no_attempt_has_two_drivers(
    make_stream: MakeStream,
    make_operator: MakeOperator,
    cluster: Cluster,
    namespace: str,
    name: str,
    tmp_path: Path,
) -> None:
    stream = make_stream(name, {"spec.deletionPolicy": "Delete"})
    rig = stream.rig
    fired = {point: tmp_path / f"fired-{point}" for point in crash_points.POINTS}
    environment = {crash_points.VARIABLE: " ".join(f"{point}={file}" for point, file in fired.items())}
    with watching_drivers(cluster, namespace) as seen:
        stream.operators.append(make_operator(environment=environment))
        rig.produce(8_000)
        stream.apply()
        stream.until(lambda: rig.landed() > 0, "the first batch has landed")
        stream.until(lambda: stream.phase == "Running", "it is seen to run")
        if EVERY_MODE:  # else: the next test, and test_frozen_drivers.py where the operator dies meanwhile, too
            killed = stream.status["attempt"]
            cluster.kill_container(namespace, stream.driver_name(killed))
            stream.until_landed_all()
            stream.until(lambda: stream.status["attempt"] > killed and stream.phase == "Running", "it runs again")
        stream.change({"spec.suspend": True})
        stream.until(lambda: stream.phase == "Suspended", "it is at rest")
        assert fired["drain.asked"].exists(), stream.story()
        rig.produce(1_000)
        stream.change({"spec.suspend": False})
        stream.until_landed_all()
        stream.until(lambda: stream.phase == "Running", "it runs once more")
        rig.assert_exactly_once()
        stream.streams.delete(stream.name)
        stream.until(lambda: stream.kubectl("get", "eos", "--output=name") == "", "the resource is gone")
    assert [point for point, file in fired.items() if not file.exists()] == [], "the operator died at each of them"
    assert seen.doubled() == {}
    assert rig.sql("select count(*) from exactlyonce.streams") == [(0,)], "deletionPolicy is Delete: nothing is left"
    rig.assert_exactly_once()


@pytest.mark.seconds(70)
def test_two_operators_that_both_act_never_land_a_record_twice(
    make_stream: MakeStream, make_operator: MakeOperator, cluster: Cluster, namespace: str, name: str
) -> None:
    """As if the Lease did not work: each holds one of its own."""
    stream = make_stream(name)
    rig = stream.rig
    with watching_drivers(cluster, namespace) as seen:
        stream.operators += [make_operator(name=which, lease=which) for which in ("first", "second")]
        rig.produce(8_000)
        stream.apply()
        stream.until(lambda: rig.landed() > 0, "the first batch has landed")
        cluster.kill_container(namespace, stream.driver_name())
        stream.until_landed_all()
        stream.operators[0].end(signal.SIGTERM)
        assert stream.operators.pop(0).status == 0, "an operator that is asked to end does so"
        rig.produce(1_000)
        stream.until_landed_all()
    rig.assert_exactly_once()
    assert seen.doubled() == {}
