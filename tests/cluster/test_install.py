"""From helm install to rows in Postgres, and on through eviction, upgrade, uninstall and a second install."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from kubernetes.client import ApiException

from scripts.chart_values import CHART
from testbed.cluster import Cluster
from testbed.images import Images
from tests.cluster.charts import Document, Helm, Release
from tests.cluster.operators import WholeStream, watching_drivers
from tests.resource_documents import changed
from tests.rig import eventually

pytestmark = pytest.mark.timeout(1500)

README = CHART.parents[1] / "README.md"
SYSTEM, STREAMS = "exactlyonce", "shop"  # as the README has them
DEFINITION = "exactlyoncestreams.exactlyonce.dev"
TOO_MANY_REQUESTS = 429


def printed_commands() -> list[str]:
    """The README's commands that start a stream, each as it is printed."""
    lines = README.read_text().partition("Then four commands start a stream")[2].split("```")[1].strip()
    return re.split(r"(?<!\\)\n", lines)


@dataclass(frozen=True)
class Reader:
    """A person in a checkout of their own who types what the README says.

    The chart's version is that of the images, as in a release; the example's servers are the test's.
    """

    cluster: Cluster
    checkout: Path
    registry: str

    def types(self, command: str) -> str:
        """Run a command in a shell, and return what it prints."""
        programs = f"{self.cluster.kubectl_program.parent}:{self.cluster.helm_program.parent}"
        environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "HOME": str(self.checkout),
            "REGISTRY": self.registry,
        }
        done = subprocess.run(
            ["bash", "-euc", command], cwd=self.checkout, env=environment, capture_output=True, text=True, timeout=420,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def name() -> str:
    """The stream's name in the README's example."""
    return "orders"


@pytest.fixture
def reader(cluster: Cluster, images: Images, tmp_path: Path) -> Reader:
    """A person with the chart, and with both images in one registry."""
    registries = {image.rpartition("/exactlyonce-")[0] for image in (images.operator, images.spark)}
    tags = {image.rpartition(":")[2] for image in (images.operator, images.spark)}
    if len(registries) != 1 or len(tags) != 1 or "" in registries:
        pytest.skip("The README's lines are for images of one registry with the same tag, named exactlyonce-….")
    checkout = tmp_path / "checkout"
    chart = Path(shutil.copytree(CHART, checkout / CHART.relative_to(README.parent)))
    described = (chart / "Chart.yaml").read_text()
    (chart / "Chart.yaml").write_text(re.sub(r"(?m)^appVersion: .*$", f'appVersion: "{tags.pop()}"', described))
    (checkout / "examples").mkdir()
    return Reader(cluster, checkout, registries.pop())


@pytest.fixture
def namespace(cluster: Cluster, reader: Reader) -> Iterator[str]:
    """The namespace that the README's first command creates; it admits restricted pods only."""
    reader.types(printed_commands()[0])
    cluster.kubectl("label", "namespace", STREAMS, "pod-security.kubernetes.io/enforce=restricted")
    yield STREAMS
    cluster.kubectl("delete", "namespace", STREAMS)


@pytest.fixture
def release(cluster: Cluster, images: Images, namespace: str, tmp_path: Path) -> Iterator[Release]:
    """The release that the README's second command installs."""
    for definition in (DEFINITION, "streamreplays.exactlyonce.dev"):
        if cluster.kubectl("get", "crd", definition, "--ignore-not-found", "--output=name"):
            # Other tests of this run have left the definition: it is handed over, as --take-ownership would.
            owner = [f"meta.helm.sh/release-name={SYSTEM}", f"meta.helm.sh/release-namespace={SYSTEM}"]
            cluster.kubectl("annotate", "crd", definition, "--overwrite", *owner)
            cluster.kubectl("label", "crd", definition, "--overwrite", "app.kubernetes.io/managed-by=Helm")
    helm = Helm(cluster.helm_program, tmp_path, cluster.kubeconfig)
    made = Release(helm, cluster, images, SYSTEM, (namespace,))
    yield made
    made.uninstall()
    cluster.kubectl("delete", "namespace", SYSTEM, "--wait=false")


@pytest.mark.seconds(150)
def test_the_commands_of_the_readme_lead_to_rows_in_postgres_and_on_without_the_operator(
    release: Release,
    reader: Reader,
    stream: WholeStream,
    admin: client.ApiClient,
    cluster: Cluster,
    images: Images,
    namespace: str,
) -> None:
    rig = stream.rig
    _, install, apply, show = printed_commands()
    reader.types(install)
    release.kubectl("rollout", "status", f"deployment/{release.operator}", "--timeout=5m")
    assert [is_ready(pod) for pod in release.pods()] == [True, True]
    assert {page(pod, path) for pod in release.pods() for path in ("/livez", "/readyz", "/metrics")} == {200}
    eventually(lambda: release.holder() in names(release), "one of the two holds the Lease")

    with watching_drivers(cluster, namespace) as seen:
        rig.produce(20_000)
        example = yaml.safe_load((README.parent / "examples" / "orders-on-kubernetes.yaml").read_text())
        assert (example["metadata"]["name"], example["metadata"]["namespace"]) == (stream.name, namespace)
        theirs = {**stream.changes, "spec.trigger.interval": "1s"}
        here = changed(example, theirs)
        (reader.checkout / "examples" / "orders-on-kubernetes.yaml").write_text(yaml.safe_dump(here))
        reader.types(apply)
        assert "orders" in reader.types(show)
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
        observed(stream, {"spec.history": 2})
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
        observed(stream, {"spec.history": 1})
        assert only_driver(stream) == (stream.driver_name(2), 2), "the operator that is back finds it as it is"
    rig.assert_exactly_once()
    assert seen.doubled() == {}
    assert set(seen.uids) == {stream.driver_name(1), stream.driver_name(2)}

    stream.streams.delete(stream.name)
    eventually(lambda: stream.kubectl("get", "eos", "--output=name") == "", "it has drained and is gone", 180)
    eventually(lambda: stream.pods("driver") == [], "its pods are gone", 60)


def observed(stream: WholeStream, changes: dict[str, Any]) -> None:
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
