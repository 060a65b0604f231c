"""From helm install to rows in Postgres, and on through eviction, upgrade, uninstall and a second install."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client import ApiException

from testbed.cluster import Cluster
from testbed.images import Images
from tests.cluster.charts import Document, Helm, Release
from tests.cluster.operators import WholeStream, watching_drivers
from tests.rig import eventually

pytestmark = pytest.mark.timeout(1500)

SYSTEM = "exactlyonce-system"
DEFINITION = "exactlyoncestreams.exactlyonce.dev"
TOO_MANY_REQUESTS = 429


@pytest.fixture
def release(cluster: Cluster, images: Images, namespace: str, tmp_path: Path) -> Iterator[Release]:
    """A release that is not installed yet, for a namespace of its own; both namespaces admit restricted pods only."""
    cluster.kubectl("create", "namespace", SYSTEM)
    cluster.kubectl("label", "namespace", SYSTEM, "pod-security.kubernetes.io/enforce=restricted")
    helm = Helm(cluster.helm_program, tmp_path, cluster.kubeconfig)
    made = Release(helm, cluster, images, SYSTEM, (namespace,))
    yield made
    made.uninstall()
    cluster.kubectl("delete", "namespace", SYSTEM, "--wait=false")


def test_from_helm_install_to_rows_in_postgres_and_on_without_the_operator(
    release: Release, stream: WholeStream, admin: client.ApiClient, cluster: Cluster, images: Images, namespace: str
) -> None:
    rig = stream.rig
    release.install(None, "--take-ownership")  # other tests of this run may have left the definition
    assert [is_ready(pod) for pod in release.pods()] == [True, True]
    assert {page(pod, path) for pod in release.pods() for path in ("/livez", "/readyz", "/metrics")} == {200}
    eventually(lambda: release.holder() in names(release), "one of the two holds the Lease")

    with watching_drivers(cluster, namespace) as seen:
        rig.produce(20_000)
        stream.apply()
        stream.until_landed_all()
        (driver,) = stream.pods("driver")
        assert driver["spec"]["serviceAccountName"] == "exactlyonce-driver"
        assert driver["spec"]["containers"][0]["image"] == images.spark
        assert stream.holding_condition == "Ready: Running"

        first = release.holder()
        (other,) = set(names(release)) - {first}
        assert evict(admin, str(first)) is None
        assert evict(admin, other) == TOO_MANY_REQUESTS, "a drain of both nodes leaves one replica"
        eventually(lambda: release.holder() in {*names(release)} - {first}, "another replica holds the Lease")
        stream.change({"spec.restartNonce": 1})
        stream.until(lambda: stream.status["attempt"] == 2, "the other replica acts")
        stream.until_lands(2)
        eventually(lambda: [is_ready(pod) for pod in release.pods()] == [True, True], "there are two again", 120)

        before = names(release)
        release.upgrade({"logFormat": "text", "workers": 3, "podAnnotations": {"example.com/upgraded": "yes"}})
        assert set(names(release)) & set(before) == set()
        eventually(lambda: release.holder() in names(release), "one of the new ones holds the Lease")
        look(stream, {"spec.history": 2})
        assert only_driver(stream) == (stream.driver_name(2), 2), "no driver restarts for an upgrade"

        release.uninstall()
        assert release.pods() == []
        definition = json.loads(cluster.kubectl("get", "crd", DEFINITION, "--output=json"))
        assert "deletionTimestamp" not in definition["metadata"]
        of_drivers = {"serviceaccount", "role", "rolebinding"}
        eventually(lambda: left_of(cluster, release) == of_drivers, "nothing is left but the accounts of drivers")
        (executor,) = [pod for pod in stream.pods("executor") if pod["status"]["phase"] == "Running"]
        stream.kubectl("delete", "pod", executor["metadata"]["name"], "--grace-period=0", "--force")
        rig.produce(2_000)
        stream.until_landed_all()  # by a new executor, which the driver may still create

        release.install()
        look(stream, {"spec.history": 1})
        assert only_driver(stream) == (stream.driver_name(2), 2), "the operator that is back finds it as it is"
    rig.assert_exactly_once()
    assert seen.doubled() == {}
    assert set(seen.uids) == {stream.driver_name(1), stream.driver_name(2)}

    stream.streams.delete(stream.name)
    eventually(lambda: stream.kubectl("get", "eos", "--output=name") == "", "it has drained and is gone", 180)
    eventually(lambda: stream.pods("driver") == [], "its pods are gone", 60)


def look(stream: WholeStream, changes: dict[str, Any]) -> None:
    """Change what no driver reads, and wait until an operator has looked at the stream."""
    stream.change(changes)
    generation = stream.resource["metadata"]["generation"]
    stream.until(lambda: stream.status["observedGeneration"] == generation, "an operator has looked")


def only_driver(stream: WholeStream) -> tuple[str, int]:
    """The name of the one driver that runs, and the attempt in the status."""
    (running,) = [pod for pod in stream.pods("driver") if pod["status"]["phase"] == "Running"]
    return running["metadata"]["name"], stream.status["attempt"]


def names(release: Release) -> list[str]:
    return [pod["metadata"]["name"] for pod in release.pods()]


def is_ready(pod: Document) -> bool:
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in pod["status"].get("conditions", []))


def page(pod: Document, path: str) -> int:
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8080{path}", timeout=20) as answer:
        return int(answer.status)


def evict(api: client.ApiClient, name: str) -> int | None:
    """Ask for the eviction of a pod, as a drain of its node does; return how it was refused, or None."""
    core: Any = client.CoreV1Api(api)
    try:
        core.create_namespaced_pod_eviction(name, SYSTEM, {"metadata": {"name": name, "namespace": SYSTEM}})
    except ApiException as problem:
        return int(problem.status)
    return None


def left_of(cluster: Cluster, release: Release) -> set[str]:
    """The kinds of what still has the release's label, beside the definition."""
    kinds = (
        "deployments,services,poddisruptionbudgets,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings"
    )
    selector = f"--selector=app.kubernetes.io/instance={release.name},app.kubernetes.io/managed-by=Helm"
    found = cluster.kubectl("get", kinds, selector, "--all-namespaces", "--output=json")
    return {item["kind"].lower() for item in json.loads(found)["items"]}
