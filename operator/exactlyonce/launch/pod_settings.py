"""What the pods of one attempt are made of, resolved: nothing is left to defaults that may change under a running driver."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from exactlyonce.api.checkpoint import Checkpoint
from exactlyonce.api.field_classes import OPERATORS_OWN
from exactlyonce.api.places_on_s3 import login_to_s3
from exactlyonce.api.pods import Driver, Executor
from exactlyonce.api.resource import API_VERSION, KIND, Stream
from exactlyonce.assembly import secrets_of
from exactlyonce.errors import Refused
from exactlyonce.launch.driver_document import Image, Size
from exactlyonce.launch.driver_progress import progress_limit
from exactlyonce.launch.port import NO_ORDERS, Orders
from exactlyonce.positions.ranges import Epoch

_LEAST_OVERHEAD_MIB = 384  # spark.executor.minMemoryOverhead
_OVERHEAD_PERCENT = 40  # Spark's own factor for Python: the workers and Arrow stand beside the heap


NOT_THE_DRIVERS = (
    *OPERATORS_OWN,
    "restartNonce",
    "driver.progressTimeout",
    "driver.podTemplate",
    "executor.podTemplate",
)
"""What a driver does not read of a spec; it is left out, so that a driver need not know all of what its operator knows."""


class ImageMissing(Refused):
    """No image is named for the pods of a stream."""


@dataclass(frozen=True, slots=True)
class OwnerReference:
    """The resource that owns what is made for it, so that everything goes with the stream."""

    name: str
    uid: str
    kind: str = KIND

    def manifest(self) -> dict[str, Any]:
        """Return the reference as it stands in an object's metadata."""
        return {"apiVersion": API_VERSION, "kind": self.kind, "name": self.name, "uid": self.uid, "controller": True}


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim that holds the checkpoints, and the folder at which it is mounted."""

    name: str
    folder: str


@dataclass(frozen=True)
class PodSettings:
    """What the pods of one attempt are made of.

    `spec` is what the driver reads of `whole_spec`. `secrets` are mounted as files. The `brief` among
    its orders is given to the reconciliation in the driver's pod, where there is one.
    """

    stream: str
    stream_id: str
    namespace: str
    attempt: Epoch
    owner: OwnerReference
    image: Image
    spec: Mapping[str, Any]
    whole_spec: Mapping[str, Any]
    driver: Size
    executor: Size
    executors: int
    most_executors: int | None
    service_account: str
    drain_seconds: int
    secrets: tuple[str, ...]
    s3_secret: str | None
    driver_template: Mapping[str, Any]
    executor_template: Mapping[str, Any]
    claim: VolumeClaim | None = None
    ui: bool = False
    orders: Orders = NO_ORDERS
    progress_limit: timedelta = timedelta(minutes=30)


def mib(text: str) -> int:
    """Return the mebibytes of a quantity such as 512Mi or 2Gi."""
    return int(text[:-2]) * (1024 if text.endswith("Gi") else 1)


def overhead_mib(heap_mib: int, given: str | None) -> int:
    """Return the memory beside the heap: what is given, or what Spark takes for Python."""
    return mib(given) if given is not None else max(_LEAST_OVERHEAD_MIB, heap_mib * _OVERHEAD_PERCENT // 100)


@dataclass(frozen=True, slots=True)
class PodDefaults:
    """What the operator was installed with, for what a resource leaves open."""

    service_account: str
    image: Image | None = None


def resolve(
    stream: Stream, attempt: Epoch, owner_uid: str, defaults: PodDefaults, orders: Orders = NO_ORDERS
) -> PodSettings:
    """Return what the pods of an attempt are made of.

    Raises:
        ImageMissing: if neither the resource nor the operator names an image.
    """
    spec, metadata = stream.spec, stream.metadata
    checkpoint, login = spec.checkpoint, login_to_s3(spec)
    return PodSettings(
        stream=metadata.name,
        stream_id=stream.stream_id,
        namespace=metadata.namespace,
        attempt=attempt,
        owner=OwnerReference(metadata.name, owner_uid),
        image=_image(stream, defaults),
        spec=spec.differences(*NOT_THE_DRIVERS),
        whole_spec=spec.differences("suspend"),
        driver=_size(spec.driver),
        executor=_size(spec.executor),
        executors=spec.executor.instances,
        most_executors=spec.executor.max_instances,
        service_account=spec.driver.service_account_name or defaults.service_account,
        drain_seconds=math.ceil(spec.drain_timeout.total_seconds()),
        secrets=tuple(reference.name for reference in secrets_of(spec)),
        s3_secret=None if login is None else login.name,
        driver_template=spec.driver.pod_template.to_document(),
        executor_template=spec.executor.pod_template.to_document(),
        claim=_claim(checkpoint),
        ui=spec.spark_ui.enabled,
        orders=orders,
        progress_limit=progress_limit(spec),
    )


def _image(stream: Stream, defaults: PodDefaults) -> Image:
    spec = stream.spec
    default = defaults.image
    name = spec.image or (default.name if default is not None else None)
    if name is None:
        raise ImageMissing("The stream names no image and the operator was given none; set spec.image.")
    policy = None if spec.image_pull_policy is None else str(spec.image_pull_policy)
    secrets = tuple(secret.name for secret in spec.image_pull_secrets)
    if default is None or spec.image is not None:
        return Image(name, policy, secrets)
    return Image(name, policy or default.pull_policy, tuple(dict.fromkeys([*secrets, *default.pull_secrets])))


def _size(process: Driver | Executor) -> Size:
    heap = mib(process.memory)
    return Size(
        process.cores, heap, overhead_mib(heap, process.memory_overhead), process.cpu_request, process.cpu_limit
    )


def _claim(checkpoint: Checkpoint) -> VolumeClaim | None:
    volume = checkpoint.volume
    return None if volume is None else VolumeClaim(volume.claim_name, volume.mounted_at)
