"""Driver pods on a real cluster: what is created, how each end is told and proven, and what is left behind.

Where only the pod's life matters, a program of a few lines stands in for the driver's; everything else in the pod is as made.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from kubernetes import client, config

from exactlyonce.api.resource import parse_stream
from exactlyonce.launch.api_server import ApiServerUnreachable
from exactlyonce.launch.last_message import Ending
from exactlyonce.launch.pod_endings import Patience
from exactlyonce.launch.port import DriverState, Ended, Gone, LaunchFailed, ManifestRefused, NeverStarted, Running
from exactlyonce.positions.ranges import Epoch
from testbed.cluster import Cluster
from testbed.images import Images
from tests.cluster.drivers import ACCOUNT, DRIVER_RIGHTS, LAUNCHER_RIGHTS, WAITS, Drivers, rights, secret
from tests.cluster.pods import apply
from tests.combinations import only_in_full
from tests.rig import eventually

Make = Callable[..., Drivers]
IMPATIENT = Patience(start=timedelta(seconds=5), image=timedelta(seconds=5))


@pytest.fixture
def make(cluster: Cluster, api: client.ApiClient, images: Images, namespace: str, name: str) -> Make:
    """Makes a stream in a namespace that admits restricted pods only and has what a driver's pod names."""
    apply(cluster, namespace, *rights(ACCOUNT, DRIVER_RIGHTS), secret("warehouse", {"password": "hidden-password"}))

    def made(program: str | None = None, **options: Any) -> Drivers:
        return Drivers(cluster, api, images.spark, namespace, name, program=program, **options)

    return made


def test_a_driver_that_ends_by_itself_leaves_its_words_and_the_proof_of_its_end(make: Make) -> None:
    drivers = make("say(reason='BatchFailed', batch=7, error='no such table')\nsys.exit(1)\n")
    assert isinstance(drivers.state_of(), NeverStarted)
    assert drivers.launcher.latest() == 0
    drivers.start(12)
    ended = drivers.await_ended(12)
    assert drivers.launcher.latest() == 12
    assert ended.words is not None
    assert (ended.words.ending, ended.words.batch, ended.words.message) == (Ending.BATCH_FAILED, 7, "no such table")
    assert f"reported the container of pod {drivers.pod_name(12)} terminated at 20" in ended.proof
    assert drivers.pod(12) is not None, "the record stays for who looks next"


def test_a_driver_that_crashes_is_told_by_the_end_of_its_log(make: Make) -> None:
    drivers = make("print('reading the orders')\nraise KeyError('amount')\n")
    drivers.start()
    ended = drivers.await_ended()
    assert (ended.words, ended.reason) == (None, "Crashed")
    assert "KeyError: 'amount'" in ended.detail


def test_a_driver_that_needs_too_much_memory_is_told_so(make: Make) -> None:
    drivers = make("kept = [bytearray(1 << 20) for _ in range(2000)]\n")
    drivers.start()
    ended = drivers.await_ended()
    assert ended.reason == "OutOfMemory"
    assert "needed more than 96Mi of memory and was killed" in ended.detail


def evict(drivers: Drivers) -> None:
    """Ask for the pod's eviction, as draining a node does."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": drivers.pod_name()}}
    path = f"/api/v1/namespaces/{drivers.namespace}/pods/{drivers.pod_name()}/eviction"
    drivers.kubectl("create", "--raw", path, "--filename", "-", stdin=json.dumps(eviction))


def delete(drivers: Drivers) -> None:
    """Delete the pod as a person does."""
    drivers.kubectl("delete", "pod", drivers.pod_name(), "--wait=false")


def delete_by_force(drivers: Drivers) -> None:
    """Delete the pod as a person in a hurry does."""
    drivers.kubectl("delete", "pod", drivers.pod_name(), "--wait=false", "--force", "--grace-period=0")


def _has_started(state: DriverState) -> bool:
    return isinstance(state, Running) and state.started


@pytest.mark.parametrize("way", [lambda drivers: drivers.launcher.drain(Epoch(1)), delete, evict])
def test_a_deleted_driver_drains_and_its_record_stays_until_its_end_is_recorded(
    make: Make, way: Callable[[Drivers], None]
) -> None:
    """Kubernetes forgets a pod that was deleted as soon as its containers have ended; the finalizer keeps what it knew."""
    drivers = make(WAITS)
    drivers.start()
    drivers.await_running()
    eventually(lambda: _has_started(drivers.state_of()), "the kubelet says that the container runs")
    way(drivers)
    drivers.launcher.drain(Epoch(1))  # asking again is harmless
    ended = drivers.await_ended()
    assert ended.words is not None
    assert (ended.words.ending, ended.words.message) == (Ending.DRAINED, "as asked")
    assert ("draining its node" in ended.detail) is (way is evict)
    record = drivers.pod()
    assert record is not None
    assert record["metadata"]["deletionTimestamp"], "Kubernetes would have removed it"
    assert isinstance(drivers.state_of(), Ended), "whoever looks later sees the same"
    drivers.launcher.clean_up(Epoch(0), keep=3)
    assert drivers.pod() is not None, "its end is not recorded yet"
    drivers.launcher.clean_up(Epoch(1), keep=3)
    eventually(lambda: drivers.pod() is None, "the record is gone")


def test_a_driver_that_is_deleted_by_force_still_proves_its_end(make: Make) -> None:
    drivers = make(WAITS)
    drivers.start()
    drivers.await_running()
    delete_by_force(drivers)
    assert "reported the container" in drivers.await_ended().proof


def test_a_driver_that_ignores_the_signal_is_killed_at_once_or_once_it_was_asked_to_end_at_its_deadline(
    make: Make,
) -> None:
    """A kubelet keeps to the first grace period of a pod, whatever is asked later (kubernetes/kubernetes#83916)."""
    ignores = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('waiting')\nwhile True: time.sleep(1)\n"
    drivers = make(ignores, changes={"spec.drainTimeout": "1s"})
    drivers.start()
    drivers.await_running()
    drivers.launcher.kill(Epoch(1))
    assert drivers.await_ended().reason == "KilledAtDeadline"
    drivers.start(2)
    drivers.await_running(2)
    drivers.launcher.drain(Epoch(2))
    assert isinstance(drivers.state_of(2), Running)
    drivers.launcher.kill(Epoch(2))
    assert drivers.await_ended(2).reason == "KilledAtDeadline"


def test_an_image_that_cannot_be_pulled_is_given_up_and_its_pod_taken_away(make: Make) -> None:
    drivers = make(changes={"spec.image": "registry.invalid/nothing:1"}, patience=IMPATIENT)
    drivers.start()
    gone = drivers.await_gone()
    assert gone.reason == "ImageNotPullable"
    assert "The image registry.invalid/nothing:1 cannot be pulled" in gone.message
    drivers.launcher.clean_up(Epoch(1), keep=3)
    eventually(lambda: drivers.names("pods") == [], "a pod that never ran is not kept")
    assert drivers.names("configmaps") == [drivers.pod_name()], (
        "the spec that it was built from is kept, as the last that could be used"
    )


def test_a_pod_that_no_node_takes_is_given_up_and_its_pod_taken_away(make: Make) -> None:
    drivers = make(changes={"spec.driver": {"cpuRequest": "5000"}}, patience=IMPATIENT)
    drivers.start()
    gone = drivers.await_gone()
    assert gone.reason == "Unschedulable"
    assert "Insufficient cpu" in gone.message
    drivers.launcher.clean_up(Epoch(1), keep=3)
    eventually(lambda: drivers.names("pods") == [], "it is gone")


def test_a_secret_that_is_not_there_is_told_when_the_start_is_given_up(make: Make) -> None:
    missing = {"secretRef": {"name": "nowhere"}, "table": "public.orders"}
    drivers = make(changes={"spec.sink.postgres": missing}, patience=IMPATIENT)
    drivers.start()
    assert drivers.await_gone().reason == "StartTimedOut"


def test_what_is_there_and_ours_is_left_as_it_is(make: Make) -> None:
    drivers = make(WAITS, changes={"spec.sparkUi": {"enabled": True}})
    drivers.start()
    before = drivers.pod()
    drivers.start()
    after = drivers.pod()
    assert before is not None
    assert after is not None
    assert before["metadata"]["uid"] == after["metadata"]["uid"]
    assert drivers.names("services") == [f"{drivers.name}-ui"]
    drivers.launcher.remove_service()
    assert drivers.names("services") == []


def test_what_has_the_name_and_is_not_ours_is_told_and_left_alone(make: Make) -> None:
    drivers = make(WAITS)
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": drivers.pod_name()}, "data": {"a": "mine"}}
    apply(drivers.cluster, drivers.namespace, foreign)
    with pytest.raises(
        LaunchFailed, match=f"ConfigMap {drivers.namespace}/{drivers.pod_name()} exists and is not this"
    ):
        drivers.start()
    assert drivers.pod() is None
    drivers.launcher.clean_up(Epoch(5), keep=0)
    data = drivers.kubectl("get", "configmap", drivers.pod_name(), "--output=jsonpath={.data.a}")
    assert data == "mine"


def test_an_older_streams_pod_of_the_same_name_is_not_taken_for_ours(make: Make) -> None:
    drivers = make(WAITS)
    drivers.start()
    drivers.await_running()
    older = Drivers(
        drivers.cluster, drivers.api, drivers.image, drivers.namespace, drivers.name, program=WAITS, uid="another-uid"
    )
    state = older.state_of()
    assert isinstance(state, Gone)
    assert "is not this stream's driver" in state.message
    older.launcher.drain(Epoch(1))
    older.launcher.kill(Epoch(1))
    older.launcher.clean_up(Epoch(9), keep=0)
    assert isinstance(drivers.state_of(), Running), "and it is not touched"


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"containerz": []}, 'unknown field "spec.containerz"'),
        ({"tolerations": [{"operator": "Perhaps"}]}, "tolerations"),
        ({"nodeSelector": {"a b": "c"}}, "nodeSelector"),
        ({"affinity": "near"}, "cannot unmarshal string into Go struct field PodSpec.spec.affinity"),
    ],
)
def test_a_template_that_the_api_server_does_not_take_is_told_in_its_words(
    make: Make, spec: dict[str, Any], told: str
) -> None:
    drivers = make(WAITS, changes={"spec.driver": {"podTemplate": {"spec": spec}}})
    with pytest.raises(
        ManifestRefused, match=r"(?s)The API server refuses Pod .*; change the stream's resource"
    ) as refused:
        drivers.start()
    assert told in str(refused.value)


def test_the_last_ended_drivers_are_kept_for_their_logs(make: Make) -> None:
    drivers = make("print('attempt')\nsay(reason='Failed')\nsys.exit(1)\n")
    for attempt in range(1, 6):
        drivers.start(attempt)
    for attempt in range(1, 6):
        drivers.await_ended(attempt)
    drivers.launcher.clean_up(Epoch(4), keep=2)
    kept = [drivers.pod_name(attempt) for attempt in (3, 4, 5)]
    eventually(lambda: drivers.names("pods") == kept, "5, whose end is not recorded, and the two before it")
    assert drivers.names("configmaps") == kept
    assert "attempt" in drivers.kubectl("logs", drivers.pod_name(3))
    kept_spec = drivers.launcher.latest_spec()
    assert kept_spec is not None
    was = parse_stream(drivers.resource, "the test").spec
    assert parse_stream({**drivers.resource, "spec": kept_spec}, "what is kept").spec == was, "no field of it is lost"
    drivers.launcher.clean_up(Epoch(5), keep=0)
    eventually(lambda: drivers.names("pods") == [], "none is kept")
    assert drivers.launcher.latest_spec() is None
    assert isinstance(drivers.state_of(3), NeverStarted)


def test_a_record_that_was_torn_away_proves_nothing(make: Make) -> None:
    drivers = make(WAITS)
    drivers.start()
    drivers.await_running()
    patch = json.dumps([{"op": "remove", "path": "/metadata/finalizers"}])
    drivers.kubectl("patch", "pod", drivers.pod_name(), "--type=json", f"--patch={patch}")
    delete_by_force(drivers)
    eventually(lambda: drivers.pod() is None, "the record is gone")
    state = drivers.state_of()
    assert isinstance(state, Gone)
    assert state.reason == "RecordLost"


def test_everything_goes_when_its_stream_is_gone_once_the_pods_are_let_go(make: Make) -> None:
    drivers = make("say(reason='Failed')\nsys.exit(1)\n", changes={"spec.sparkUi": {"enabled": True}})
    drivers.start()
    drivers.await_ended()
    drivers.kubectl("delete", "exactlyoncestream", drivers.name, "--wait=false")
    eventually(lambda: drivers.names("configmaps") == drivers.names("services") == [], "they went with the stream", 120)
    pod = drivers.pod()
    assert pod is not None, "the finalizer holds it"
    drivers.launcher.release(pod)
    drivers.launcher.release(pod)  # done before is as good
    eventually(lambda: drivers.pod() is None, "the pod is gone")


@only_in_full
def test_a_driver_of_a_lost_node_is_given_up_without_proof_and_its_successor_starts(make: Make) -> None:
    on_node_2 = {"spec.driver": {"podTemplate": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "node2"}}}}}
    drivers = make(WAITS, changes=on_node_2)
    drivers.start()
    drivers.await_running()
    apply(drivers.cluster, drivers.namespace, *rights("launcher", LAUNCHER_RIGHTS))
    drivers.cluster.freeze("node2")
    try:
        gone = drivers.await_gone()
        assert gone.reason == "NodeLost"
        assert "Node node2 has not reported" in gone.message
        with user(drivers, "launcher") as without_nodes:

            def given_up() -> bool:
                return isinstance(drivers.launcher_with(without_nodes).state_of(Epoch(1)), Gone)

            eventually(given_up, "one who may not read nodes sees it by the pod", 120)
        drivers.launcher.clean_up(Epoch(1), keep=3)
        record = drivers.pod()
        assert record is not None, "its kubelet has not said that it ended"
        assert "deletionTimestamp" in record["metadata"], "it will be ended when its node comes back"
        assert not record["metadata"].get("finalizers"), "and nobody waits for it"
        elsewhere = Drivers(
            drivers.cluster, drivers.api, drivers.image, drivers.namespace, drivers.name, program=WAITS, uid=drivers.uid
        )
        elsewhere.start(2)
        elsewhere.await_running(2)
    finally:
        drivers.cluster.thaw("node2")
    eventually(lambda: drivers.pod() is None, "the kubelet has ended it and the record is gone", 180)


def test_a_launcher_needs_no_more_rights_than_are_written_down(make: Make) -> None:
    drivers = make(WAITS, changes={"spec.sparkUi": {"enabled": True}})
    apply(drivers.cluster, drivers.namespace, *rights("launcher", LAUNCHER_RIGHTS))
    with user(drivers, "launcher") as limited:
        launcher = drivers.launcher_with(limited)
        launcher.start(Epoch(1))
        drivers.await_running()
        launcher.drain(Epoch(1))
        eventually(lambda: isinstance(launcher.state_of(Epoch(1)), Ended), "it has drained")
        launcher.kill(Epoch(1))
        launcher.clean_up(Epoch(1), keep=0)
        launcher.remove_service()
        eventually(lambda: drivers.names("pods,configmaps,services") == [], "all is gone")


def test_an_api_server_that_is_gone_says_nothing_of_any_driver(make: Make) -> None:
    drivers = make(WAITS)
    drivers.start()
    drivers.await_running()
    drivers.cluster.stop_api_server()
    try:
        for act in (drivers.state_of, drivers.start, lambda: drivers.launcher.drain(Epoch(1))):
            with pytest.raises(ApiServerUnreachable, match="The API server did not answer"):
                act()
    finally:
        drivers.cluster.start_api_server()
    assert isinstance(drivers.state_of(), Running)


def user(drivers: Drivers, account: str) -> Any:
    """Return a client that is a service account of the namespace."""
    token = drivers.kubectl("create", "token", account).strip()
    connect: Any = config.new_client_from_config
    made = connect(str(drivers.cluster.kubeconfig))
    made.configuration.api_key = {"authorization": f"Bearer {token}"}
    made.configuration.api_key_prefix = {}
    made.configuration.refresh_api_key_hook = None
    return made
