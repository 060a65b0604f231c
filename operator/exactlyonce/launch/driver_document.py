"""The document that a driver reads: the resolved spec of its stream and how Spark runs. Performs no I/O.

The launcher writes it and the driver reads it, so both sides take its form from here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from exactlyonce.api.attempt_status import DriverTask
from exactlyonce.launch.port import Orders, Quarantine, ShrunkLimit

POD_IP = "EXACTLYONCE_POD_IP"
"""The environment variable that tells a driver pod its own address."""

CHECKPOINT_VARIABLE = "EXACTLYONCE_CHECKPOINT_SECRET"
"""The environment variable that names the secret with the login to S3 to an executor pod."""

PROGRESS_VARIABLE = "EXACTLYONCE_PROGRESS"
"""The environment variable that names the file which a driver touches when it makes progress."""

SCRATCH = "/var/spark"
"""Spark's local folder in a pod, and the working folder: the root file system is read-only."""

RPC_PORT, BLOCK_PORT, METRICS_PORT, UI_PORT = 7078, 7079, 7080, 4040  # fixed, so that a NetworkPolicy can name them


@dataclass(frozen=True, slots=True)
class Size:
    """What one process may use: cores, the heap of its JVM, and the memory beside it.

    `cpu_request` and `cpu_limit` are Kubernetes' quantities; without them it asks for its cores and has no limit.
    """

    cores: int
    heap_mib: int
    overhead_mib: int
    cpu_request: str | None = None
    cpu_limit: str | None = None

    @property
    def memory_mib(self) -> int:
        """The memory of the whole container."""
        return self.heap_mib + self.overhead_mib


@dataclass(frozen=True, slots=True)
class Image:
    """The image of driver and executors, and how it is pulled."""

    name: str
    pull_policy: str | None = None
    pull_secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KubernetesPlace:
    """Where a driver pod runs and what its executors are made of; `executor_template` is a file in the driver's pod.

    `network_secret_file` is a file of driver and executors.
    """

    namespace: str
    pod_name: str
    image: Image
    executor_prefix: str
    executor_template: str
    executor: Size
    executors: int
    most_executors: int | None
    ui: bool
    network_secret_file: str

    def document(self) -> dict[str, Any]:
        """Return the place as it stands in the document."""
        return {
            "namespace": self.namespace,
            "podName": self.pod_name,
            "image": self.image.name,
            "imagePullPolicy": self.image.pull_policy,
            "imagePullSecrets": list(self.image.pull_secrets),
            "executorPrefix": self.executor_prefix,
            "executorTemplate": self.executor_template,
            "executors": {"instances": self.executors, "maxInstances": self.most_executors},
            "executor": {
                "cores": self.executor.cores,
                "heapMiB": self.executor.heap_mib,
                "overheadMiB": self.executor.overhead_mib,
                "cpuRequest": self.executor.cpu_request,
                "cpuLimit": self.executor.cpu_limit,
            },
            "sparkUi": self.ui,
            "networkSecretFile": self.network_secret_file,
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> KubernetesPlace:
        """Return the place that `document` describes."""
        return cls(
            namespace=document["namespace"],
            pod_name=document["podName"],
            image=Image(document["image"], document["imagePullPolicy"], tuple(document["imagePullSecrets"])),
            executor_prefix=document["executorPrefix"],
            executor_template=document["executorTemplate"],
            executor=Size(
                document["executor"]["cores"],
                document["executor"]["heapMiB"],
                document["executor"]["overheadMiB"],
                document["executor"]["cpuRequest"],
                document["executor"]["cpuLimit"],
            ),
            executors=document["executors"]["instances"],
            most_executors=document["executors"]["maxInstances"],
            ui=document["sparkUi"],
            network_secret_file=document["networkSecretFile"],
        )


@dataclass(frozen=True)
class DriverDocument:
    """What a driver is started with. `master` is Spark's, or `k8s` for the cluster that the driver's pod is in.

    `ticket` is what the raise of the attempt's epoch drew; it is empty until the document is `ordered`. `checkpoint_path` is
    what the attempt's decision chose; None where that is left to the pod.
    `limit` is there while a batch was too large, `quarantine` until a batch that failed too often was passed over. `task` is
    what the driver does; for `writer_is_dead` see `Orders`.
    """

    stream_id: str
    spec: Mapping[str, Any]
    master: str
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    kubernetes: KubernetesPlace | None = None
    ticket: str = ""
    limit: ShrunkLimit | None = None
    quarantine: Quarantine | None = None
    checkpoint_path: str | None = None
    task: DriverTask = DriverTask.RUN_QUERY
    writer_is_dead: bool = False

    def ordered(self, orders: Orders) -> DriverDocument:
        """Return the document with an attempt's orders in it."""
        return replace(
            self,
            ticket=orders.ticket,
            limit=orders.limit,
            quarantine=orders.quarantine,
            checkpoint_path=orders.checkpoint_path,
            task=orders.task,
            writer_is_dead=orders.writer_is_dead,
        )

    def render(self) -> str:
        """Return the document as JSON."""
        document: dict[str, Any] = {
            "streamId": self.stream_id,
            "spec": self.spec,
            "master": self.master,
            "sparkConf": self.spark_conf,
            "ticket": self.ticket,
            "task": self.task,
        }
        if self.limit is not None:
            document["batchLimit"] = {"records": self.limit.records, "until": self.limit.until}
        if self.quarantine is not None:
            document["quarantine"] = asdict(self.quarantine)
        if self.checkpoint_path is not None:
            document["checkpointPath"] = self.checkpoint_path
        if self.writer_is_dead:
            document["writerIsDead"] = True
        if self.kubernetes is not None:
            document["kubernetes"] = self.kubernetes.document()
        return json.dumps(document, indent=2)

    @classmethod
    def parse(cls, text: str) -> DriverDocument:
        """Return what `render` wrote.

        Raises:
            KeyError, TypeError, ValueError: if the text is something else.
        """
        document = json.loads(text)
        if not isinstance(document, dict):
            raise TypeError("it is not an object")
        place, limit, quarantine = (document.get(key) for key in ("kubernetes", "batchLimit", "quarantine"))
        return cls(
            document["streamId"],
            document["spec"],
            document["master"],
            document["sparkConf"],
            None if place is None else KubernetesPlace.read(place),
            document["ticket"],
            None if limit is None else ShrunkLimit(**limit),
            None if quarantine is None else Quarantine(**quarantine),
            document.get("checkpointPath"),
            DriverTask(document.get("task", DriverTask.RUN_QUERY)),
            document.get("writerIsDead") is True,
        )
