"""Operator processes on the host, and one whole stream that they run with real drivers and executors in pods."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes import client, config, watch

from exactlyonce.api.resource import KIND
from testbed.cluster import Cluster, KubectlFailed
from testbed.processes import free_port
from tests.cluster.drivers import ACCOUNT, DRIVER_RIGHTS, rights, secret
from tests.cluster.pods import apply
from tests.cluster.streams import Streams
from tests.resource_documents import changed, document
from tests.rig import QUICK_JVM, Rig, TookTooLong

_numbers = itertools.count(1)
SECONDS = 300.0
FINALIZER = "exactlyonce.dev/drain"


@dataclass
class OperatorProcess:
    """One operator as a process of this machine; `environment` may hold crash points."""

    cluster: Cluster
    folder: Path
    image: str
    namespaces: str
    name: str = "operator"
    environment: Mapping[str, str] = field(default_factory=dict)
    lease: str = "exactlyonce-operator"
    kubeconfig: Path | None = None
    port: int = 0
    identity: str = field(default_factory=lambda: f"operator-{next(_numbers)}")
    """As a pod's name, it stays when the container is started again: the Lease is its own still, and nobody waits for it."""
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self.is_alive:
            return
        self.port = free_port()
        options = {
            "namespaces": self.namespaces,
            "identity": self.identity,
            "lease-name": self.lease,
            "lease-seconds": "4",
            "image": self.image,
            "health-port": str(self.port),
            "log-format": "text",
        }
        command = [sys.executable, "-m", "exactlyonce.control", *(f"--{key}={value}" for key, value in options.items())]
        kubeconfig = self.kubeconfig or self.cluster.kubeconfig
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "KUBECONFIG": str(kubeconfig), **self.environment}
            )

    @property
    def log_file(self) -> Path:
        """Where its log is kept, over all its lives."""
        return self.folder / f"{self.name}.log"

    @property
    def log(self) -> str:
        """What it has said so far."""
        return self.log_file.read_text() if self.log_file.exists() else ""

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def status(self) -> int | None:
        """How it ended, as a negative signal number where it was killed."""
        return None if self._process is None else self._process.poll()

    def page(self, path: str) -> tuple[int, str]:
        """Return status and text of a page that it serves."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return int(answer.status), str(answer.read(), "utf-8")
        except urllib.error.HTTPError as problem:
            return problem.code, str(problem.read(), "utf-8")

    def send(self, how: signal.Signals) -> None:
        """Send the process a signal."""
        assert self._process is not None
        self._process.send_signal(how)

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the process and wait for it."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGCONT)
                self._process.send_signal(how)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(30)
                raise


@dataclass
class Seen:
    """Every driver pod that there ever was in a namespace, from a watch of the API server: name -> the uids it had."""

    uids: dict[str, set[str]] = field(default_factory=dict)

    def doubled(self) -> dict[str, int]:
        """Return the names that more than one pod has had."""
        return {name: len(uids) for name, uids in self.uids.items() if len(uids) > 1}


@contextmanager
def watching_drivers(cluster: Cluster, namespace: str) -> Iterator[Seen]:
    """Write down each driver pod of a namespace."""
    connect: Any = config.new_client_from_config
    watches: Any = watch.Watch
    seen, stop = Seen(), threading.Event()
    with connect(str(cluster.kubeconfig)) as api:
        listed: Any = client.CoreV1Api(api).list_namespaced_pod

        def run() -> None:
            while not stop.is_set():
                with suppress(Exception):  # the API server is restarted by some tests; a new list follows
                    for event in watches().stream(
                        listed, namespace, label_selector="exactlyonce.dev/role=driver", timeout_seconds=5
                    ):
                        pod = event["object"].metadata
                        seen.uids.setdefault(pod.name, set()).add(pod.uid)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield seen
        finally:
            stop.set()
            thread.join(30)


@dataclass
class WholeStream:
    """A stream on the API server with its topic, table and oracle (`rig`); whoever runs the operator is another's business."""

    rig: Rig
    cluster: Cluster
    api: client.ApiClient
    namespace: str
    name: str
    changes: Mapping[str, Any]
    operators: list[OperatorProcess] = field(default_factory=list)

    def apply(self, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Create the resource."""
        made = document({**self.changes, **(changes or {})}, name=self.name, namespace=self.namespace)
        return self.streams.create(made)

    def change(self, changes: Mapping[str, Any]) -> None:
        """Change fields of the resource: values by paths with dots."""
        self.streams.patch(self.name, changed({}, changes))

    @property
    def streams(self) -> Streams:
        """The resources of the namespace."""
        return Streams(self.api, self.namespace)

    @property
    def resource(self) -> dict[str, Any]:
        """The resource as it is now."""
        return self.streams.get(self.name)

    @property
    def status(self) -> dict[str, Any]:
        """Its status."""
        return dict(self.resource.get("status") or {})

    @property
    def phase(self) -> str | None:
        """Its phase."""
        return self.status.get("phase")

    @property
    def holding_condition(self) -> str:
        """The one condition of kstatus' three that is True, with its reason."""
        three = [
            entry for entry in self.status.get("conditions", []) if entry["type"] in ("Ready", "Reconciling", "Stalled")
        ]
        (found,) = [entry for entry in three if entry["status"] == "True"]
        return f"{found['type']}: {found['reason']}"

    def events(self) -> list[tuple[str, str]]:
        """The events of the resource: reason and message, in no order."""
        return [(event["reason"], event["message"]) for event in self._events()]

    def reasons(self) -> Counter[str]:
        """How often each event was told."""
        told: Counter[str] = Counter()
        for event in self._events():
            told[event["reason"]] += event["count"] or 1
        return told

    def _events(self) -> list[dict[str, Any]]:
        about = f"involvedObject.kind={KIND},involvedObject.name={self.name}"
        return self._listed("list_namespaced_event", field_selector=about)

    def until(self, condition: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
        """Wait for `condition`; operators that a crash point has killed are started again meanwhile."""
        deadline, pause = time.monotonic() + seconds, threading.Event()
        while not _holds(condition):
            if time.monotonic() > deadline:
                raise TookTooLong(f"{what}: not within {seconds:.0f} s\n{self.story()}")
            for operator in self.operators:
                if operator.status == -signal.SIGKILL:
                    operator.start()
                assert operator.status is None, f"the operator has ended with {operator.status}\n{self.story()}"
            pause.wait(0.3)

    def until_landed_all(self) -> None:
        """Wait until every id that was produced is in the table."""
        self.until(self.rig.has_all, "every id is in the table")

    def until_lands(self, attempt: int) -> None:
        """Produce a few records and wait until a batch of this attempt has landed."""
        self.rig.produce(200)
        landed = "select max(epoch) from exactlyonce.batches where landed_at is not null"
        self.until(lambda: self.rig.sql(landed) == [(attempt,)], f"attempt {attempt} has landed a batch")

    def driver_name(self, attempt: int | None = None) -> str:
        """The name of a driver's pod; of the latest where none is named."""
        return f"{self.name}-driver-{attempt or self.status['attempt']}"

    def pods(self, role: str) -> list[dict[str, Any]]:
        """Return the stream's pods of a role."""
        selector = f"exactlyonce.dev/stream={self.name},exactlyonce.dev/role={role}"
        return self._listed("list_namespaced_pod", label_selector=selector)

    def _listed(self, method: str, **arguments: str) -> list[dict[str, Any]]:
        """Return objects as the API server has them: by a connection that is there, since tests ask again and again."""
        answer = getattr(client.CoreV1Api(self.api), method)(
            self.namespace, **arguments, _preload_content=False, _request_timeout=30
        )
        return list(json.loads(answer.data)["items"])

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace."""
        return self.cluster.kubectl(*arguments, "--namespace", self.namespace, stdin=stdin)

    def story(self) -> str:
        """What a person would look at."""
        told = []
        with suppress(Exception):
            told += [json.dumps(self.status, indent=1)[:3000], self.kubectl("get", "pods", "--output=wide")]
            told += [f"{reason}: {message[:300]}" for reason, message in self.events()]
        with suppress(Exception):
            for pod in self.pods("driver"):
                told.append(self.kubectl("logs", pod["metadata"]["name"], "--tail=25"))
        told += [operator.log[-3000:] for operator in self.operators]
        return "\n".join(told)


def whole_stream(
    rig: Rig,
    cluster: Cluster,
    api: client.ApiClient,
    namespace: str,
    changes: Mapping[str, Any],
    s3: Any,
    *,
    with_account: bool = True,
) -> WholeStream:
    """Return a stream with one small executor, with what it names put into its namespace."""
    rig.sql(f"create role {rig.user} login superuser password '{rig.password}'")
    rig.write_secret(host=cluster.host_address)
    login = {file.name: file.read_text() for file in (rig.secrets / "warehouse").iterdir()}
    account = rights(ACCOUNT, DRIVER_RIGHTS) if with_account else []
    apply(cluster, namespace, *account, secret("warehouse", login), secret("lake", s3.secret()))
    small = {"memory": "600Mi", "memoryOverhead": "500Mi", "cpuRequest": "50m"}
    settled = {
        "spec.source.kafka": {
            "bootstrapServers": rig.kafka.bootstrap_servers,
            "topics": [rig.name],
            "maxOffsetsPerTrigger": 4000,
        },
        "spec.source.format": {"schema": "id BIGINT, customer STRING, amount DECIMAL(12,2), ts TIMESTAMP"},
        "spec.trigger.interval": "1s",  # else a driver asks the brokers a hundred times a second while nothing comes
        "spec.checkpoint.s3": {
            "location": f"s3a://lake/checkpoints/{namespace}/{rig.name}",
            "secretRef": {"name": "lake"},
            "endpoint": s3.endpoint,
            "pathStyle": True,
        },
        "spec.recovery": {"backoff": {"initial": "1s", "max": "2s"}},
        "spec.driver": small,
        "spec.executor": {**small, "instances": 1},
        "spec.drainTimeout": "60s",
        "spec.sparkConf": {
            "spark.driver.extraJavaOptions": QUICK_JVM,
            "spark.executor.extraJavaOptions": QUICK_JVM,
            "spark.sql.shuffle.partitions": "2",
        },
    }
    return WholeStream(rig, cluster, api, namespace, rig.name, {**settled, **changes})


def _holds(condition: Callable[[], bool]) -> bool:
    """Whether it holds; a server that is down for the test's sake says no."""
    try:
        return condition()
    except (KubectlFailed, OSError, client.ApiException):
        return False
    except Exception as problem:
        if type(problem).__module__.split(".")[0] in ("urllib3", "psycopg2"):
            return False
        raise


MakeStream = Callable[..., WholeStream]
MakeOperator = Callable[..., OperatorProcess]
