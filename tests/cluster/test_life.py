"""Whole streams under a real operator: Kafka and Postgres on the host, the checkpoint on S3, drivers and executors in pods.

After each misfortune the ids are counted by the test, and what a user would see is asserted.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testbed.cluster import Cluster
from testbed.postgres import Postgres
from tests.cluster.conftest import WithoutRules
from tests.cluster.operators import FINALIZER, MakeOperator, MakeStream, WholeStream, watching_drivers
from tests.combinations import EVERY_MODE
from tests.rig import eventually
from tests.suites import CORE, of_suite

pytestmark = [pytest.mark.timeout(1500), of_suite("cluster")]

DOWN_SECONDS = 60 if EVERY_MODE else 20


@of_suite(CORE)
@pytest.mark.seconds(200)
def test_a_stream_lives_through_the_deaths_of_its_driver_its_executor_the_api_server_and_the_database(
    make_stream: MakeStream, make_operator: MakeOperator, cluster: Cluster, namespace: str, name: str
) -> None:
    stream = make_stream(name)
    rig = stream.rig
    stream.operators.append(make_operator())
    with watching_drivers(cluster, namespace) as seen:
        rig.produce(20_000)
        stream.apply()
        stream.until(lambda: rig.landed() > 0, "the first batch has landed")
        assert (stream.phase, stream.holding_condition) == ("Running", "Ready: Running")
        shown = stream.streams.shown(stream.name)
        assert (shown["Phase"], shown["Ready"], shown["Attempt"], shown["Verdict"]) == (
            "Running",
            "True",
            "1",
            "FirstStart",
        )

        cluster.kill_container(namespace, stream.driver_name(1))
        stream.until(lambda: stream.status["attempt"] == 2 and stream.phase == "Running", "the second attempt runs")
        assert stream.status["verdict"]["kind"] in ("Resume", "ReplayBatch", "SkipLanded"), "its death was proven"
        assert any("was killed (status 137)" in words for _, words in stream.events())
        stream.until_landed_all()

        rig.produce(4_000)
        (executor, *_) = [pod for pod in stream.pods("executor") if pod["status"]["phase"] == "Running"]
        stream.kubectl("delete", "pod", executor["metadata"]["name"], "--grace-period=0", "--force")
        stream.until_landed_all()
        assert stream.status["attempt"] == 2, "Spark replaces an executor by itself"

        rig.produce(4_000)
        with drained_node(stream, stream.driver_name(2)):
            stream.until(lambda: stream.status["attempt"] == 3 and stream.phase == "Running", "the third attempt runs")
        assert stream.reasons()["Drained"] == 1
        # Spark may have planned the next batch meanwhile, which the driver that is asked to end refuses; and on a busy machine
        # it may not have written the end of the one that landed (SETTLING_SECONDS).
        assert stream.status["verdict"]["kind"] in ("Resume", "ReplayBatch", "SkipLanded"), "its death is proven"
        stream.until_lands(3)

        cluster.stop_api_server()
        rig.produce(1_000)
        stream.until_landed_all()
        cluster.start_api_server()
        stream.until(lambda: stream.phase == "Running", "the API server answers")
        assert stream.status["attempt"] == 3, "a driver that runs on is left alone"

        stream.change({"spec.restartNonce": 1, "spec.sparkUi": {"enabled": True}})
        stream.until(lambda: stream.status["attempt"] == 4 and stream.phase == "Running", "the fourth attempt runs")
        assert stream.kubectl("get", "services", "--output=name").split() == [f"service/{stream.name}-ui"]
        stream.until_lands(4)
        stream.until_landed_all()
    rig.assert_exactly_once()
    assert seen.doubled() == {}
    assert set(seen.uids) == {stream.driver_name(attempt) for attempt in (1, 2, 3, 4)}
    assert_no_secret_is_shown(stream)

    stream.change({"spec.suspend": True, "spec.sparkUi": {"enabled": False}})
    stream.until(lambda: stream.phase == "Suspended", "it is at rest")
    assert stream.holding_condition == "Ready: Suspended"
    eventually(lambda: stream.kubectl("get", "services", "--output=name") == "", "what was switched off is gone", 60)
    stream.streams.delete(stream.name)
    eventually(lambda: stream.kubectl("get", "eos", "--output=name") == "", "the resource is gone", 60)
    eventually(lambda: stream.pods("driver") == [], "its pods are gone", 60)
    of_the_stream = ("--selector", f"exactlyonce.dev/stream={stream.name}", "--output=name")
    eventually(lambda: stream.kubectl("get", "secrets", *of_the_stream) == "", "and its attempts' secrets", 60)
    assert rig.sql("select count(*) from exactlyonce.streams") == [(1,)], "deletionPolicy is Retain: the ledger stays"


@pytest.mark.seconds(140)
def test_a_driver_on_a_lost_node_is_refused_while_its_successor_lands(
    make_stream: MakeStream, make_operator: MakeOperator, cluster: Cluster, namespace: str, name: str
) -> None:
    stream = make_stream(name)
    rig = stream.rig
    stream.operators.append(make_operator())
    rig.produce(8_000)
    stream.apply()
    stream.until(lambda: rig.landed() > 0, "the first batch has landed")
    node = stream.pods("driver")[0]["spec"]["nodeName"]
    (other,) = set(cluster.node_names) - {node}
    cluster.freeze(node)
    try:
        stream.until(lambda: stream.status["attempt"] == 2, "the lost node's driver is given up")
        assert stream.reasons()["NodeLost"] == 1
        stream.until(lambda: "RebuildFromSink" in stream.reasons(), "its checkpoint may still be written: a new one")
        rig.produce(4_000)
        stream.until_landed_all()
        nodes = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in stream.pods("driver")}
        assert nodes[stream.driver_name(2)] == other
        refused = f"Epoch 1 of {stream.namespace}/{stream.name} may not land"
        stream.until(
            lambda: refused in cluster.log_on_node(node, stream.namespace, stream.driver_name(1)),
            "the driver that runs on has tried to land and was refused",
        )
        stream.kubectl("delete", "pod", stream.driver_name(1), "--force", "--grace-period=0", "--wait=false")
        rig.produce(2_000)
        stream.until_landed_all()
        rig.assert_exactly_once()
        landed = rig.sql("select distinct epoch from exactlyonce.batches where epoch >= 2")
        assert landed == [(2,)], "what landed since is the successor's"
    finally:
        cluster.thaw(node)
    eventually(lambda: _is_ready(cluster, node), "the node is back", 180)
    rig.produce(1_000)
    stream.until_landed_all()
    rig.assert_exactly_once()
    assert stream.phase == "Running"


@pytest.mark.seconds(125)
def test_what_cannot_start_says_why_and_goes_on_once_it_is_mended(
    make_stream: MakeStream, make_operator: MakeOperator, postgres_18: Postgres, name: str
) -> None:
    stream = make_stream(name, {"spec.driver.startTimeout": "10s", "spec.image": "registry.invalid/nothing:1"})
    rig = stream.rig
    stream.operators.append(make_operator())
    rig.produce(1_000)
    stream.apply()
    stream.until(lambda: "ImageNotPullable" in stream.reasons(), "the image is missed")
    stream.until(lambda: stream.holding_condition == "Reconciling: ImageNotPullable", "and told between two attempts")
    assert stream.phase == "BackingOff"
    assert any("The image registry.invalid/nothing:1 cannot be pulled" in words for _, words in stream.events())
    stream.change({"spec.image": None, "spec.driver.startTimeout": "10s", "spec.driver.podTemplate": NOWHERE})
    stream.until(lambda: "Unschedulable" in stream.reasons(), "no node fits")
    stream.until(lambda: stream.holding_condition == "Reconciling: Unschedulable", "and told between two attempts")
    assert any("0/2 nodes are available" in words for _, words in stream.events())

    rig.sql(f"alter role {rig.user} nologin")
    stream.change({"spec.driver.startTimeout": None, "spec.driver.podTemplate": None})
    stream.until(lambda: "not permitted to log in" in stream.status["message"], "the database refuses")
    assert stream.phase == "BackingOff"
    # Told by the operator's own pass, or by a driver that was on its way already.
    assert stream.holding_condition in ("Reconciling: BackingOff", "Reconciling: Unreachable")
    rig.sql(f"alter role {rig.user} login")
    stream.until_landed_all()
    rig.assert_exactly_once()

    stream.change({"spec.driver.startTimeout": "10s", "spec.image": "registry.invalid/nothing:1"})
    stream.until(lambda: stream.holding_condition == "Stalled: RolledBack", "it is rolled back")
    rig.produce(500)
    stream.until_landed_all()
    assert stream.holding_condition == "Stalled: RolledBack", "it lands, and says that it is not what was asked for"
    assert stream.reasons()["RolledBack"] == 1
    rig.assert_exactly_once()


@pytest.mark.seconds(115)
def test_a_database_that_is_down_for_a_while_and_a_password_that_has_changed_cost_time_only(
    make_stream: MakeStream, make_operator: MakeOperator, postgres_18: Postgres, name: str
) -> None:
    stream = make_stream(name)
    rig = stream.rig
    stream.operators.append(make_operator())
    rig.produce(2_000)
    stream.apply()
    stream.until_landed_all()
    postgres_18.crash()
    rig.produce(2_000)
    went_down = time.monotonic()
    stream.until(lambda: stream.phase == "BackingOff", "the driver could not land, and the next one waits", 60)
    assert stream.holding_condition in ("Reconciling: BackingOff", "Reconciling: Unreachable")
    threading.Event().wait(max(0.0, DOWN_SECONDS - (time.monotonic() - went_down)))
    assert stream.phase in ("BackingOff", "Reconciling"), "nothing is given up, and nothing is started without a ledger"
    postgres_18.start()
    stream.until_landed_all()
    rig.assert_exactly_once()

    rig.sql(f"alter role {rig.user} password 'another-hidden-password'")
    login = {"password": base64.b64encode(b"another-hidden-password").decode()}
    stream.kubectl("patch", "secret", "warehouse", "--type=merge", "--patch", json.dumps({"data": login}))
    attempt = stream.status["attempt"]
    stream.cluster.kill_container(stream.namespace, stream.driver_name())
    stream.until(lambda: stream.status["attempt"] > attempt, "the next attempt is made")
    rig.produce(500)
    stream.until_landed_all()
    rig.assert_exactly_once()
    assert "another-hidden-password" not in stream.operators[0].log


NOWHERE = {"spec": {"nodeSelector": {"disk": "none-such"}}}


@pytest.mark.seconds(130)
def test_a_stream_without_its_secret_or_with_an_invalid_spec_says_so_keeps_its_driver_and_rests_when_asked(
    make_stream: MakeStream, make_operator: MakeOperator, name: str, without_rules: WithoutRules
) -> None:
    """Invalid: the definition has let it in, and the operator knows better."""
    stream = make_stream(name, {"spec.driver.podTemplate": {"metadata": {"labels": {"team": "shop"}}}})
    rig = stream.rig
    stream.operators.append(make_operator())
    login = stream.kubectl("get", "secret", "warehouse", "--output=yaml")
    stream.kubectl("delete", "secret", "warehouse")
    rig.produce(1_000)
    stream.apply()
    stream.until(lambda: "warehouse is not there; create it" in stream.status.get("message", ""), "it is told")
    assert FINALIZER in stream.resource["metadata"]["finalizers"]
    stream.kubectl("apply", "--filename=-", stdin=login)
    stream.until_landed_all()
    stream.until(lambda: stream.phase == "Running", "it runs")
    rig.assert_exactly_once()

    stream.kubectl("delete", "secret", "warehouse")
    stream.change({"spec.restartNonce": 1})
    stream.until(lambda: "warehouse is not there; create it" in stream.status["message"], "it is told again")
    assert (stream.phase, stream.status["attempt"]) == ("Running", 1), "no driver is ended for one that cannot be made"
    # The driver that runs is what is asked for again, and this is the last valid spec that the operator sees.
    stream.change({"spec.restartNonce": None})
    asked = stream.resource["metadata"]["generation"]
    stream.until(lambda: stream.status["observedGeneration"] == asked, "the restart is taken back")
    stream.kubectl("apply", "--filename=-", stdin=login)
    with without_rules():
        stream.change({"spec.delivery": "Sometimes"})
    stream.until(lambda: stream.holding_condition == "Stalled: SpecInvalid", "it is told")
    assert "Sometimes" in stream.status["specProblem"]
    assert (stream.phase, stream.status["attempt"]) == ("Running", 1), "its driver runs on"

    stream.kubectl("delete", "secret", "warehouse")
    stream.cluster.kill_container(stream.namespace, stream.driver_name(1))
    stream.until(lambda: stream.phase == "BackingOff", "its death is seen")
    assert stream.status["attempt"] == 1
    stream.kubectl("apply", "--filename=-", stdin=login)
    stream.until(lambda: stream.status["attempt"] == 2 and stream.phase == "Running", "the next attempt runs")
    assert stream.status["verdict"]["kind"] in ("Resume", "ReplayBatch", "SkipLanded")
    (driver,) = [pod for pod in stream.pods("driver") if pod["metadata"]["name"] == stream.driver_name(2)]
    assert driver["metadata"]["labels"]["team"] == "shop", "it is made of all that the last valid spec said"
    rig.produce(500)
    stream.until_landed_all()
    assert stream.holding_condition == "Stalled: SpecInvalid"

    stream.kubectl("delete", "secret", "warehouse")
    with without_rules():
        stream.change({"spec.suspend": True})
    stream.until(lambda: stream.phase == "Suspended", "it rests, as the latest spec asks, and without a secret")
    assert stream.reasons()["SpecInvalid"] == 1
    stream.kubectl("apply", "--filename=-", stdin=login)
    stream.change({"spec.suspend": False, "spec.delivery": "ExactlyOnce"})
    stream.until(lambda: stream.holding_condition == "Ready: Running", "a spec that is valid again is followed")
    rig.produce(500)
    stream.until_landed_all()
    rig.assert_exactly_once()


def test_a_namespace_that_is_deleted_takes_its_stream_along_within_a_bound(
    make_stream: MakeStream, make_operator: MakeOperator, cluster: Cluster, namespace: str, name: str
) -> None:
    """Secrets and service accounts go at the same moment; what is to be erased with them is told, not waited for."""
    stream = make_stream(name)
    stream.operators.append(make_operator())
    stream.rig.produce(500)
    stream.apply()
    stream.until_landed_all()
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")
    stream.until(lambda: _is_gone(cluster, namespace), "the namespace is gone", 180)
    stream.rig.assert_exactly_once()


@contextmanager
def drained_node(stream: WholeStream, driver: str) -> Iterator[None]:
    """The node of a driver is drained, of this pod alone.

    Executors that are evicted in the same moment end the current batch, which then replays: another claim.
    """
    (pod,) = [pod for pod in stream.pods("driver") if pod["metadata"]["name"] == driver]
    node = pod["spec"]["nodeName"]
    selector = f"--pod-selector=exactlyonce.dev/stream={stream.name},exactlyonce.dev/role=driver"
    try:
        stream.cluster.kubectl("drain", node, selector, "--force", "--delete-emptydir-data")
        yield
    finally:
        stream.cluster.kubectl("uncordon", node)


def assert_no_secret_is_shown(stream: WholeStream) -> None:
    """Neither in what the API server has of the stream, its pods and their ConfigMaps, nor in any log."""
    shown = stream.kubectl("get", "pods,configmaps,events,eos", "--output=yaml")
    for role in ("driver", "executor"):
        for pod in stream.pods(role):
            shown += stream.kubectl("logs", pod["metadata"]["name"], "--all-containers")
    shown += "".join(operator.log for operator in stream.operators)
    login = stream.rig.password
    assert login is not None
    assert login not in shown
    of_the_stream = ("--selector", f"exactlyonce.dev/stream={stream.name}", "--output=json")
    found = json.loads(stream.kubectl("get", "secrets", *of_the_stream))["items"]
    assert found, "each attempt has a secret of Spark's network"
    for encoded in (value for secret in found for value in secret["data"].values()):
        assert encoded not in shown
        assert base64.b64decode(encoded).decode() not in shown
    assert "-Dspark.authenticate=true" in shown, "executors are told to authenticate themselves"
    assert "_SPARK_AUTH_SECRET" not in shown, "and not by a variable, which whoever looks at pods can read"


def _is_gone(cluster: Cluster, namespace: str) -> bool:
    return cluster.kubectl("get", "namespace", namespace, "--ignore-not-found", "--output=name") == ""


def _is_ready(cluster: Cluster, node: str) -> bool:
    path = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
    return cluster.kubectl("get", "node", node, f"--output={path}") == "True"
