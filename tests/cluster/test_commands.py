"""`kubectl exactlyonce …` against a real API server: what its patches change, and which missing right it names.

Statuses are written as the operator does; tests/unit/test_wishes.py and test_driver_logs.py have the rest, on a server in
memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from exactlyonce.api.conditions import rendered
from exactlyonce.api.resource import SETTLE_LOADS
from exactlyonce.api.status import DriverStatus, Phase, StreamStatus, VerdictStatus
from exactlyonce.control.cluster_reader import ClusterReader, ReadRefused
from testbed.cluster import Cluster
from tests.api_server_in_memory import driver_pod
from tests.cluster.pods import apply
from tests.cluster.streams import Streams, make_namespace
from tests.resource_documents import document

NAMESPACE, NAME, WATCHER = f"command-tests-{uuid.uuid4().hex[:8]}", "orders", "watcher"
AT = (NAME, "-n", NAMESPACE)
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def streams(api: client.ApiClient) -> Iterator[Streams]:
    """A namespace with one stream, whose operator says that attempt 2 runs."""
    make_namespace(api, NAMESPACE)
    made = Streams(api, NAMESPACE)
    stored = made.create(document(name=NAME, namespace=NAMESPACE))
    verdict = VerdictStatus(kind="Resume", message="Spark had committed what landed.", attempt=2, at=NOW)
    status = StreamStatus(phase=Phase.RUNNING, attempt=2, verdict=verdict, driver=DriverStatus(attempt=2))
    made.replace_status({**stored, "status": rendered(status, stored, NOW)})
    yield made
    made.delete(NAME)


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path) -> Run:
    """Run the plugin as pip would install it, by kubectl, with the kubeconfig of an administrator or of somebody else."""

    def done(*arguments: str, kubeconfig: Path = cluster.kubeconfig) -> subprocess.CompletedProcess[str]:
        plugin = tmp_path / "kubectl-exactlyonce"
        plugin.write_text(f"#!{sys.executable}\nfrom exactlyonce.cli.main import plugin\nplugin()\n")
        plugin.chmod(0o755)
        path = f"{tmp_path}:{os.environ['PATH']}"
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path}
        command = [str(cluster.kubectl_program), "exactlyonce", *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=120)

    return done


def test_suspend_resume_and_restart_change_their_field_once(streams: Streams, run: Run) -> None:
    before = streams.get(NAME)["spec"]
    for command, changed in (
        ("suspend", {"suspend": True}),
        ("resume", {"suspend": False}),
        ("restart", {"restartNonce": 1}),
        ("restart", {"restartNonce": 2}),
    ):
        asked = run(command, *AT)
        assert (asked.returncode, asked.stderr) == (0, "")
        before |= changed
        assert streams.get(NAME)["spec"] == before
    again = run("resume", *AT)
    assert again.stderr == f"{NAMESPACE}/{NAME} is not suspended (it is Running); nothing was changed.\n"
    waited = run("restart", *AT, "--wait", "--timeout", "1s")
    assert waited.returncode == 1, "no operator has seen it"
    assert f"{NAMESPACE}/{NAME} did not get there within 1 s and is Running" in waited.stderr


def test_a_patch_of_a_generation_that_has_passed_changes_nothing(streams: Streams, kubeconfig: Path) -> None:
    cluster = ClusterReader.connect(kubeconfig)
    stale = cluster.stream(NAMESPACE, NAME)
    streams.patch(NAME, {"spec": {"history": 7}})
    assert cluster.patch_spec(stale, {"suspend": True}, "suspend") is None
    assert streams.get(NAME)["spec"]["suspend"] is False
    now = cluster.stream(NAMESPACE, NAME)
    streams.replace_status({**now, "status": {**now["status"], "message": "An operator writes all the time."}})
    assert cluster.patch_spec(now, {"suspend": True}, "suspend") is not None, "a status is no change of the spec"
    with pytest.raises(ReadRefused, match=r"^Cannot restart stream .+: the API server says: .+restartNonce.+\.$"):
        cluster.patch_spec(cluster.stream(NAMESPACE, NAME), {"restartNonce": -1}, "restart")


def test_an_annotation_is_set_on_the_version_that_was_read_and_on_no_other(streams: Streams, kubeconfig: Path) -> None:
    cluster = ClusterReader.connect(kubeconfig)
    stale = cluster.stream(NAMESPACE, NAME)
    assert cluster.annotate(stale, SETTLE_LOADS, "a=Committed", "answer for") is not None
    assert cluster.annotate(stale, SETTLE_LOADS, "a=Aborted", "answer for") is None
    now = cluster.stream(NAMESPACE, NAME)
    assert cluster.annotate(now, SETTLE_LOADS, "a=Committed b=Aborted", "answer for") is not None
    assert streams.get(NAME)["metadata"]["annotations"][SETTLE_LOADS] == "a=Committed b=Aborted"


def test_the_pod_of_an_attempt_is_found_and_one_that_has_not_started_is_told(
    streams: Streams, run: Run, cluster: Cluster
) -> None:
    stream = streams.get(NAME)
    gone = run("logs", *AT)
    assert gone.stderr.startswith(f"The pod of attempt 2 of {NAMESPACE}/{NAME} is gone: spec.history (3) says")
    apply(cluster, NAMESPACE, waiting_pod(stream, 1))
    told = run("logs", *AT)
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr == (
        "Attempt 2 has no pod; this is attempt 1.\n"
        f"Pod {NAMESPACE}/{NAME}-driver-1 has no such log yet: it waits for a node.\n"
    )
    assert (
        run("logs", *AT, "--attempt", "3").stderr == f"{NAMESPACE}/{NAME} has had no attempt 3 yet; the latest is 2.\n"
    )


def test_who_may_only_read_streams_is_told_which_right_is_missing(
    streams: Streams, run: Run, cluster: Cluster, tmp_path: Path
) -> None:
    kubeconfig = of_a_watcher(cluster, tmp_path)
    explained = run("explain", *AT, kubeconfig=kubeconfig)
    assert (explained.returncode, explained.stderr) == (0, "")
    assert "Recorded  at 2026-03-01" in explained.stdout
    for command, sentence in (
        ("suspend", f"You may not suspend stream {NAMESPACE}/{NAME}; ask for the right to patch exactlyoncestreams in "
         f"namespace {NAMESPACE}.\n"),
        ("logs", f"You may not list pods in namespace {NAMESPACE}; ask for the right to list pods in namespace "
         f"{NAMESPACE}.\n"),
        ("offsets", f"You may not read secret {NAMESPACE}/warehouse, which spec.sink.postgres.secretRef names; ask for the "
         f"right to get secret warehouse in namespace {NAMESPACE}. The ledger is queried with its login; `exactlyonce status "
         f"{NAME} -n {NAMESPACE}` shows the lag without it.\n"),
    ):  # fmt: skip
        told = run(command, *AT, kubeconfig=kubeconfig)
        assert (told.returncode, told.stdout, told.stderr) == (1, "", sentence)
    assert streams.get(NAME)["spec"]["suspend"] is False


def waiting_pod(stream: dict[str, Any], attempt: int) -> dict[str, Any]:
    """Return the pod of an attempt that no node is chosen for."""
    made = driver_pod(stream, attempt)
    owner = {"apiVersion": stream["apiVersion"], "kind": stream["kind"], "name": NAME}
    metadata = {**made["metadata"], "ownerReferences": [{**owner, "uid": stream["metadata"]["uid"]}]}
    spec = {"containers": [{"name": "driver", "image": "none"}], "schedulerName": "nobody"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def of_a_watcher(cluster: Cluster, folder: Path) -> Path:
    """Return the kubeconfig of an account that may read streams and nothing else."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": WATCHER}
    rules = [{"apiGroups": ["exactlyonce.dev"], "resources": ["exactlyoncestreams"], "verbs": ["get", "list"]}]
    of_rights = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": WATCHER}}
    subjects = [{"kind": "ServiceAccount", "name": WATCHER, "namespace": NAMESPACE}]
    apply(
        cluster,
        NAMESPACE,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": WATCHER}},
        {**of_rights, "kind": "Role", "rules": rules},
        {**of_rights, "kind": "RoleBinding", "roleRef": role, "subjects": subjects},
    )
    token = cluster.kubectl("create", "token", WATCHER, f"--namespace={NAMESPACE}").strip()
    made = folder / "watcher.kubeconfig"
    made.write_text(cluster.kubeconfig.read_text())
    cluster.kubectl("config", f"--kubeconfig={made}", "set-credentials", WATCHER, f"--token={token}")
    cluster.kubectl("config", f"--kubeconfig={made}", "set-context", "--current", f"--user={WATCHER}")
    return made
