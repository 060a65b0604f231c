"""Driver pods as tests need them: a stream on the API server, its launcher, and what stands in for a driver's program."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from kubernetes import client

from exactlyonce.api.resource import parse_stream
from exactlyonce.launch.api_server import ApiServer
from exactlyonce.launch.driver_document import Image
from exactlyonce.launch.driver_pod import Manifests, manifests_of
from exactlyonce.launch.kubernetes import KubernetesLauncher
from exactlyonce.launch.pod_endings import Patience
from exactlyonce.launch.pod_settings import PodDefaults, resolve
from exactlyonce.launch.port import NO_ORDERS, DriverState, Ended, Gone, Orders
from exactlyonce.positions.ranges import Epoch
from testbed.cluster import Cluster, KubectlFailed
from tests.cluster.streams import Streams
from tests.resource_documents import document
from tests.rig import TookTooLong, eventually

State = TypeVar("State")

ACCOUNT = "exactlyonce-driver"
SMALL = {"spec.driver": {"memory": "48Mi", "memoryOverhead": "48Mi", "cpuRequest": "20m"}, "spec.drainTimeout": "30s"}
PATIENT = Patience(start=timedelta(minutes=5), image=timedelta(minutes=5))

_WORDS = "import json, os, signal, sys, time\ndef say(**words): json.dump(words, open('/dev/termination-log', 'w'))\n"
WAITS = """
signal.signal(signal.SIGTERM, lambda *_: (say(reason='Drained', error='as asked'), os._exit(0)))
print('waiting')
signal.pause()
"""


@dataclass
class Drivers:
    """One stream of a namespace and the launcher of its drivers, whose pods run `program` where one is given."""

    cluster: Cluster
    api: client.ApiClient
    image: str
    namespace: str
    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    program: str | None = None
    patience: Patience = PATIENT
    uid: str = ""

    def __post_init__(self) -> None:
        resource = document({**SMALL, **self.changes}, name=self.name, namespace=self.namespace)
        self.resource = resource
        self.uid = self.uid or Streams(self.api, self.namespace).create(resource)["metadata"]["uid"]

    def manifests(self, attempt: Epoch, orders: Orders = NO_ORDERS) -> Manifests:
        """Return what an attempt consists of, with the test's own program."""
        stream = parse_stream(self.resource, "the test")
        made = manifests_of(resolve(stream, attempt, self.uid, PodDefaults(ACCOUNT, Image(self.image)), orders))
        if self.program is not None:
            made.pod["spec"]["containers"][0]["args"] = ["python3", "-c", _WORDS + self.program]
        return made

    @property
    def launcher(self) -> KubernetesLauncher:
        """A launcher that remembers nothing of the one before."""
        return self.launcher_with(self.api)

    def launcher_with(self, api: client.ApiClient) -> KubernetesLauncher:
        """Return the launcher of another user."""
        server = ApiServer(api)
        return KubernetesLauncher(server, self.namespace, self.name, self.uid, self.manifests, self.patience)

    def state_of(self, attempt: int = 1) -> DriverState:
        """Return how the driver of an attempt is."""
        return self.launcher.state_of(Epoch(attempt))

    def start(self, attempt: int = 1) -> None:
        """Start the driver of an attempt."""
        self.launcher.start(Epoch(attempt))

    def await_ended(self, attempt: int = 1, seconds: float = 180) -> Ended:
        """Wait for the proven end of a driver."""
        return self._await(attempt, lambda state: state if isinstance(state, Ended) else None, "it has ended", seconds)

    def await_gone(self, attempt: int = 1, seconds: float = 240) -> Gone:
        """Wait until a driver is given up."""
        return self._await(attempt, lambda state: state if isinstance(state, Gone) else None, "it is given up", seconds)

    def await_running(self, attempt: int = 1) -> None:
        """Wait until the driver's program has begun to wait, and can be asked to end."""

        def waits() -> bool:
            with contextlib.suppress(KubectlFailed):  # there is no container yet
                return "waiting" in self.kubectl("logs", self.pod_name(attempt))
            return False

        eventually(waits, f"the driver of attempt {attempt} waits", 180)

    def pod_name(self, attempt: int = 1) -> str:
        """The name of an attempt's pod, written out."""
        return f"{self.name}-driver-{attempt}"

    def pod(self, attempt: int = 1) -> dict[str, Any] | None:
        """Return the pod's record as kubectl shows it, or None."""
        found = self.kubectl("get", "pod", self.pod_name(attempt), "--ignore-not-found", "--output=json")
        return dict(json.loads(found)) if found else None

    def names(self, kind: str) -> list[str]:
        """Return the names of every object of a kind that carries the stream's label."""
        found = self.kubectl("get", kind, "--selector", f"exactlyonce.dev/stream={self.name}", "--output=name")
        return sorted(line.split("/")[1] for line in found.split())

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace."""
        return self.cluster.kubectl(*arguments, "--namespace", self.namespace, stdin=stdin)

    def _await(self, attempt: int, chosen: Callable[[DriverState], State | None], what: str, seconds: float) -> State:
        found: list[State] = []

        def looked() -> bool:
            state = chosen(self.state_of(attempt))
            found.extend([] if state is None else [state])
            return bool(found)

        try:
            eventually(looked, what, seconds)
        except TookTooLong as problem:
            shown = self.kubectl("describe", "pod", self.pod_name(attempt))
            raise AssertionError(f"{self.state_of(attempt)}\n{shown}") from problem
        return found[0]


def secret(name: str, keys: Mapping[str, str]) -> dict[str, Any]:
    """Return a secret."""
    data = {key: base64.b64encode(value.encode()).decode() for key, value in keys.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}


def rights(account: str, resources: Mapping[str, list[str]]) -> list[dict[str, Any]]:
    """Return a service account of that name that may do this with these resources of its namespace, and nothing else."""
    rules = [{"apiGroups": [""], "resources": [resource], "verbs": verbs} for resource, verbs in resources.items()]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
    group = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}},
        {"apiVersion": group, "kind": "Role", "metadata": {"name": account}, "rules": rules},
        {
            "apiVersion": group,
            "kind": "RoleBinding",
            "metadata": {"name": account},
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "name": account}],
        },
    ]


DRIVER_RIGHTS = {"pods": ["create", "get", "list", "watch", "delete", "deletecollection", "patch"]}
LAUNCHER_RIGHTS = {
    "pods": ["create", "get", "list", "patch", "delete"],
    "configmaps": ["create", "get", "list", "delete"],
    "services": ["create", "get", "delete"],
    "secrets": ["create"],
}
"""What `KubernetesLauncher` may need at most in the namespace of its streams; nodes are not among it."""
