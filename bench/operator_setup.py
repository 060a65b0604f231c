"""What the operator is measured on: a cluster without nodes, real stores, streams, and a watch of their pods."""

from __future__ import annotations

import base64
import functools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
from kubernetes import client, config
from urllib3.exceptions import HTTPError

from exactlyonce.launch.api_server import asked
from testbed import processes
from testbed.cluster import Cluster
from testbed.kafka import Kafka
from testbed.postgres import Postgres

TOPIC = "orders"
BUCKET = "lake"
ACCOUNT = "exactlyonce-driver"
PATIENCE_SECONDS = 300.0
_PAGE = 500
STREAMS = "/apis/exactlyonce.dev/v1alpha1/namespaces/{namespace}/exactlyoncestreams"
_MERGE = "application/merge-patch+json"
_ONLY_METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


@dataclass
class Pods:
    """When each pod of a namespace was seen to be created, by name, from a watch; moments of this process's clock."""

    created: dict[str, float] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def until(self, names: Sequence[str], what: str) -> None:
        """Wait until there was a pod of each name."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self.changed:
            while missing := [name for name in names if name not in self.created]:
                left = deadline - time.monotonic()
                assert left > 0, f"{what}: {len(missing)} of {len(names)} are missing, such as {missing[:3]}"
                self.changed.wait(left)


@dataclass
class OperatorSetup:
    """A cluster and the stores; `api` is the benchmark's own client."""

    folder: Path
    cluster: Cluster
    kafka: Kafka
    postgres: Postgres
    api: client.ApiClient
    database: str = "warehouse"

    def namespace(self, name: str, s3_endpoint: str) -> Namespace:
        """Make a namespace with the secrets that streams name."""
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        made = Namespace(self, name, s3_endpoint)
        account = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": ACCOUNT}}
        self.request("POST", f"/api/v1/namespaces/{name}/serviceaccounts", account)
        login = {"host": "127.0.0.1", "port": str(self.postgres.port), "dbname": self.database, "user": "postgres"}
        made.secret("warehouse", {**login, "password": self.postgres.password})
        made.secret("lake", {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"})
        return made

    def request(self, method: str, path: str, body: Any = None, content: str = "application/json") -> dict[str, Any]:
        """Ask the API server."""
        return asked(self.api, method, path, None, body, content)

    def shares(self, operator: psutil.Process, s3: psutil.Process) -> dict[str, float]:
        """Return the core-seconds that each server and the operator have taken so far."""
        found = {name: core_seconds(psutil.Process(pid)) for name, pid in self.cluster.pids.items()}
        found["Postgres"] = core_seconds(psutil.Process(self.postgres.pid), family=True)
        found["Kafka"] = core_seconds(psutil.Process(self.kafka.pid))
        found["S3"] = core_seconds(s3)
        found["operator"] = core_seconds(operator)
        return found


@dataclass
class Namespace:
    """One namespace and its streams; `s3_endpoint` is where their checkpoints are."""

    setup: OperatorSetup
    name: str
    s3_endpoint: str

    def secret(self, name: str, keys: Mapping[str, str]) -> None:
        """Create a secret."""
        data = {key: base64.b64encode(value.encode()).decode() for key, value in keys.items()}
        body = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": name}, "data": data}
        self.setup.request("POST", f"/api/v1/namespaces/{self.name}/secrets", body)

    def apply(self, name: str, *, suspended: bool = False) -> float:
        """Create a stream and return the moment at which it was sent."""
        moment = time.monotonic()
        self.setup.request("POST", STREAMS.format(namespace=self.name), self._stream(name, suspended=suspended))
        return moment

    def apply_all(self, names: Sequence[str], *, suspended: bool = False) -> dict[str, float]:
        """Create streams as fast as four clients can."""
        with ThreadPoolExecutor(4) as clients:
            sent = clients.map(functools.partial(self.apply, suspended=suspended), names)
            return dict(zip(names, sent, strict=True))

    def create_bare_pod(self, name: str) -> None:
        """Create a pod that is nobody's."""
        container = {"name": "driver", "image": "none", "resources": {"requests": {"memory": "64Mi"}}}
        body = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": name},
            "spec": {"containers": [container], "serviceAccountName": ACCOUNT},
        }
        self.setup.request("POST", f"/api/v1/namespaces/{self.name}/pods", body)

    def runs(self, pod: str) -> None:
        """Be the kubelet of a pod: its driver runs and is ready."""
        running = {"running": {"startedAt": _now()}}
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": _now()} for kind in ("Ready", "PodScheduled")
        ]
        self._pod_status(pod, {"phase": "Running", "startTime": _now(), "conditions": conditions}, running)

    def dies(self, pod: str) -> float:
        """Be the kubelet of a pod whose driver was killed; return the moment at which that was told."""
        ended = {"terminated": {"exitCode": 137, "reason": "Error", "startedAt": _now(), "finishedAt": _now()}}
        moment = time.monotonic()
        self._pod_status(pod, {"phase": "Failed"}, ended)
        return moment

    def phases(self) -> dict[str, int]:
        """Return how many streams are in each phase."""
        counted: dict[str, int] = {}
        following = ""
        while True:
            path = f"{STREAMS.format(namespace=self.name)}?limit={_PAGE}&continue={quote(following)}"
            listed = self.setup.request("GET", path)
            for item in listed["items"]:
                phase = str((item.get("status") or {}).get("phase"))
                counted[phase] = counted.get(phase, 0) + 1
            following = listed["metadata"].get("continue") or ""
            if not following:
                return counted

    def until_running(self, streams: int) -> None:
        """Wait until the operator has seen that many drivers run."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (phases := self.phases()).get("Running", 0) < streams:
            assert time.monotonic() < deadline, f"{phases} instead of {streams} that run"
            time.sleep(1)

    @contextmanager
    def watched(self) -> Iterator[Pods]:
        """Write down when each pod is created."""
        pods = Pods()
        path = f"/api/v1/namespaces/{self.name}/pods?watch=1&timeoutSeconds=7200"
        known: Any = self.setup.api
        headers = {"Accept": _ONLY_METADATA}
        known.update_params_for_auth(headers, [], ["BearerToken"], path, "GET", None)
        answer = known.rest_client.pool_manager.request(
            "GET", known.configuration.host + path, headers=headers, preload_content=False
        )

        def run() -> None:
            for line in _lines(answer):
                moment = time.monotonic()
                event = json.loads(line)
                if event["type"] == "ADDED":
                    with pods.changed:
                        pods.created[event["object"]["metadata"]["name"]] = moment
                        pods.changed.notify_all()

        threading.Thread(target=run, daemon=True).start()
        yield pods

    def _pod_status(self, pod: str, status: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        container = {"name": "driver", "image": "none", "imageID": "", "restartCount": 0, "state": state}
        body = {"status": {**status, "containerStatuses": [{**container, "ready": "running" in state}]}}
        self.setup.request("PATCH", f"/api/v1/namespaces/{self.name}/pods/{pod}/status", body, _MERGE)

    def _stream(self, name: str, *, suspended: bool) -> dict[str, Any]:
        kafka = {"bootstrapServers": self.setup.kafka.bootstrap_servers, "topics": [TOPIC]}
        schema = "id BIGINT, customer STRING, amount DECIMAL(12,2), ts TIMESTAMP"
        location = f"s3a://{BUCKET}/checkpoints/{self.name}/{name}"
        spec = {
            "source": {"kafka": kafka, "format": {"schema": schema}},
            "sink": {"postgres": {"secretRef": {"name": "warehouse"}, "table": "public.orders"}},
            "checkpoint": {
                "s3": {
                    "location": location, "secretRef": {"name": "lake"}, "endpoint": self.s3_endpoint, "pathStyle": True
                }
            },
            "driver": {"startTimeout": "24h"},
            "suspend": suspended,
        }  # fmt: skip
        return {
            "apiVersion": "exactlyonce.dev/v1alpha1", "kind": "ExactlyOnceStream", "metadata": {"name": name}, "spec": spec
        }  # fmt: skip


@contextmanager
def connected(cluster: Cluster) -> Iterator[client.ApiClient]:
    """Open the benchmark's own client."""
    load: Any = config.load_kube_config
    load(str(cluster.kubeconfig))
    configuration = client.Configuration.get_default_copy()
    configuration.connection_pool_maxsize = 20
    configuration.retries = False
    with client.ApiClient(configuration) as api:
        yield api


@contextmanager
def operator_process(
    setup: OperatorSetup, namespace: Namespace, module: str, port: int | None = None
) -> Iterator[psutil.Process]:
    """Run an operator of one namespace, from when it leads until the block ends; `port` is where its metrics are."""
    port = port or processes.free_port()
    log = setup.folder / f"operator-{namespace.name}-{port}.log"
    options = {"namespaces": namespace.name, "lease-name": namespace.name, "image": "none", "health-port": port}
    command = [sys.executable, "-m", module, *(f"--{name}={value}" for name, value in options.items())]
    environment = {**os.environ, "KUBECONFIG": str(setup.cluster.kubeconfig)}
    process = processes.start(command, log, environment=environment)
    try:
        processes.wait_until_ready(process, lambda: "holds the lease" in log.read_text(), "The operator", log, 120)
        yield psutil.Process(process.pid)
    finally:
        processes.stop(process, signal.SIGTERM, 60)


def _lines(answer: Any) -> Iterator[bytes]:
    """Yield the lines of a watch until the server ends it."""
    with suppress(HTTPError):
        yield from answer


def settled(operator: psutil.Process, quiet: float = 0.08, seconds: float = 5.0) -> None:
    """Wait until the operator takes less than a share of a core for some seconds: what it had to do is done."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        before = core_seconds(operator)
        time.sleep(seconds)
        if core_seconds(operator) - before < quiet * seconds:
            return
    raise AssertionError("the operator never comes to rest")


def core_seconds(process: psutil.Process, *, family: bool = False) -> float:
    """What a process has taken, in seconds of one core; `family`: with its children, those that have ended too."""
    times = process.cpu_times()
    total = times.user + times.system
    if family:
        total += times.children_user + times.children_system
        total += sum(_or_nothing(child) for child in process.children(recursive=True))
    return float(total)


def _or_nothing(process: psutil.Process) -> float:
    try:
        return core_seconds(process)
    except psutil.NoSuchProcess:
        return 0.0


def in_threads(act: Callable[[str], Any], names: Sequence[str], threads: int) -> float:
    """Do something for each name and return the seconds that all of it took."""
    begun = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(act, names))
    return time.monotonic() - begun


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
