"""What an attempt is on Kubernetes: a ConfigMap, a Secret, the driver's pod, a template of its executors'. Performs no I/O.

The ConfigMap is immutable and holds everything that was resolved, so an upgrade of the operator changes no attempt that runs.
Credentials are mounted from their secrets as files; none stands in an argument, a variable or the ConfigMap.
Golden files: tests/golden/driver_pods.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import yaml

from exactlyonce.launch.driver_document import (
    BLOCK_PORT,
    METRICS_PORT,
    POD_IP,
    PROGRESS_VARIABLE,
    RPC_PORT,
    SCRATCH,
    UI_PORT,
    DriverDocument,
    KubernetesPlace,
    Size,
)
from exactlyonce.launch.driver_progress import progress_file, with_progress_probe
from exactlyonce.launch.driver_volumes import SECRETS_MOUNT, mounts_of, networks_volume, s3_secret, volumes_of
from exactlyonce.launch.network_secret import NETWORK_FILE, network_mount, network_secret
from exactlyonce.launch.pod_names import (
    DRIVER,
    ENDING_FINALIZER,
    EXECUTOR,
    RECONCILE,
    ROLE_LABEL,
    STREAM_ID_ANNOTATION,
    STREAM_LABEL,
    driver_name,
    executor_prefix,
    label_value,
    labels_of,
    network_secret_name,
    ui_service_name,
)
from exactlyonce.launch.pod_settings import PodSettings
from exactlyonce.launch.pod_template import DRIVER_ROLE, EXECUTOR_ROLE, Manifest, merged
from exactlyonce.launch.reconcile_container import LOCAL_FOLDERS, with_reconciliation
from exactlyonce.launch.restricted import OWN_SECURITY, POD_SECURITY
from exactlyonce.launch.secrets import SECRETS_FOLDER

ATTEMPT_FOLDER = "/etc/exactlyonce/attempt"
TERMINATION_LOG = "/dev/termination-log"
DRIVER_FILE, EXECUTOR_FILE, BRIEF_FILE = "driver.json", "executor.yaml", "reconcile.json"
STREAM_FILE = "stream.json"
"""The whole spec: what the next attempt is made of while the resource's own is invalid."""
VOLUME_SECURITY = {**POD_SECURITY, "fsGroup": 65532, "fsGroupChangePolicy": "OnRootMismatch"}
"""With a claim: what is on its volume belongs to the image's group too, whoever made the volume."""
_YAML: type[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # the same text in a fifth of the time

START_SECONDS = 30  # what a driver may take to end beside its current batch


@dataclass(frozen=True, slots=True)
class Manifests:
    """What an attempt consists of, in the order in which it is created.

    `network_secret` is None for what has no executors, and `service` is there by choice.
    """

    config_map: Manifest
    network_secret: Manifest | None
    pod: Manifest
    service: Manifest | None

    def all(self) -> list[Manifest]:
        """Return every manifest, in that order."""
        return [entry for entry in (self.service, self.config_map, self.network_secret, self.pod) if entry is not None]


def manifests_of(settings: PodSettings) -> Manifests:
    """Return what an attempt consists of.

    Raises:
        TemplateRefused: if a pod template asks for what may not be.
    """
    executor = merged(executor_template(settings), settings.executor_template, EXECUTOR_ROLE)
    return Manifests(
        _config_map(settings, executor),
        network_secret(metadata_of(settings, network_secret_name(settings.stream, settings.attempt))),
        with_progress_probe(
            with_reconciliation(merged(_driver_pod(settings), settings.driver_template, DRIVER_ROLE)),
            settings.progress_limit,
        ),
        _ui_service(settings) if settings.ui else None,
    )


def executor_template(settings: PodSettings) -> Manifest:
    """Return the template of which Spark makes each executor's pod; Spark adds name, image, resources and variables."""
    spec = {
        "restartPolicy": "Never",
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _pod_security(settings),
        "containers": [
            {
                "name": EXECUTOR,
                "workingDir": SCRATCH,
                "env": [*variables(), *s3_secret(settings)],
                "volumeMounts": [*mounts_of(settings), network_mount()],
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "securityContext": OWN_SECURITY,
            }
        ],
        "volumes": [*volumes_of(settings), networks_volume(settings)],
    }
    metadata = {"labels": labels_of(settings.stream, settings.attempt, EXECUTOR), "annotations": _annotations(settings)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _config_map(settings: PodSettings, executor: Manifest) -> Manifest:
    data = {
        DRIVER_FILE: _driver_document(settings).render(),
        EXECUTOR_FILE: yaml.dump(executor, Dumper=_YAML, sort_keys=False, width=120),
    }
    data[STREAM_FILE] = json.dumps(settings.whole_spec, indent=2)
    if settings.orders.brief is not None:
        data[BRIEF_FILE] = settings.orders.brief
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata_of(settings, driver_name(settings.stream, settings.attempt)),
        "immutable": True,
        "data": data,
    }


def _driver_document(settings: PodSettings) -> DriverDocument:
    place = KubernetesPlace(
        namespace=settings.namespace,
        pod_name=driver_name(settings.stream, settings.attempt),
        image=settings.image,
        executor_prefix=executor_prefix(settings.stream, settings.attempt),
        executor_template=f"{ATTEMPT_FOLDER}/{EXECUTOR_FILE}",
        executor=settings.executor,
        executors=settings.executors,
        most_executors=settings.most_executors,
        ui=settings.ui,
        network_secret_file=NETWORK_FILE,
    )
    return DriverDocument(settings.stream_id, settings.spec, "k8s", {}, place).ordered(settings.orders)


def _driver_pod(settings: PodSettings) -> Manifest:
    name = driver_name(settings.stream, settings.attempt)
    spec: Manifest = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": settings.drain_seconds + START_SECONDS,
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "securityContext": _pod_security(settings),
        "containers": [_driver_container(settings)],
        "volumes": [
            {"name": "attempt", "configMap": {"name": name}},
            *volumes_of(settings),
            networks_volume(settings),
        ],
    }
    if settings.image.pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in settings.image.pull_secrets]
    if settings.orders.brief is not None:
        spec["initContainers"] = [_reconcile_container(settings)]
    metadata = {**metadata_of(settings, name), "finalizers": [ENDING_FINALIZER]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _driver_container(settings: PodSettings) -> Manifest:
    arguments = [
        "driver",
        "--spec",
        f"{ATTEMPT_FOLDER}/{DRIVER_FILE}",
        *_epoch(settings),
        "--last-words",
        TERMINATION_LOG,
    ]
    environment: list[Manifest] = [
        *variables(),
        {"name": LOCAL_FOLDERS, "value": SCRATCH},
        {"name": PROGRESS_VARIABLE, "value": progress_file(driver_name(settings.stream, settings.attempt))},
        {"name": POD_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    container = container_of(settings, DRIVER, arguments, {"env": environment, "ports": _ports(settings)})
    container["volumeMounts"].append(network_mount())
    return container


def _reconcile_container(settings: PodSettings) -> Manifest:
    """It needs less than the driver, and a pod is given room for the greater of the two."""
    arguments = [RECONCILE, "--brief", f"{ATTEMPT_FOLDER}/{BRIEF_FILE}", *_epoch(settings), "--word", TERMINATION_LOG]
    return container_of(settings, RECONCILE, arguments, {"env": variables()})


def _epoch(settings: PodSettings) -> list[str]:
    return ["--epoch", str(settings.attempt)]


def container_of(settings: PodSettings, name: str, arguments: list[str], own: Manifest) -> Manifest:
    """Return a container of the driver's pod: what both have, and what is its own."""
    container: Manifest = {
        "name": name,
        "image": settings.image.name,
        "args": arguments,
        "workingDir": SCRATCH,
        **own,
        "resources": _resources(settings.driver),
        "volumeMounts": [{"name": "attempt", "mountPath": ATTEMPT_FOLDER, "readOnly": True}, *mounts_of(settings)],
        "terminationMessagePath": TERMINATION_LOG,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": OWN_SECURITY,
    }
    if settings.image.pull_policy is not None:
        container["imagePullPolicy"] = settings.image.pull_policy
    return container


def _pod_security(settings: PodSettings) -> dict[str, Any]:
    return POD_SECURITY if settings.claim is None else VOLUME_SECURITY


def _ports(settings: PodSettings) -> list[Manifest]:
    ports = [
        {"name": "driver-rpc", "containerPort": RPC_PORT},
        {"name": "blockmanager", "containerPort": BLOCK_PORT},
        {"name": "metrics", "containerPort": METRICS_PORT},
    ]
    return [*ports, {"name": "spark-ui", "containerPort": UI_PORT}] if settings.ui else ports


def _ui_service(settings: PodSettings) -> Manifest:
    """The Service of Spark's user interface, the same for every attempt: it finds the driver by its labels."""
    metadata = metadata_of(settings, ui_service_name(settings.stream))
    metadata["labels"] = {key: value for key, value in metadata["labels"].items() if not key.endswith("/attempt")}
    spec = {
        "selector": {STREAM_LABEL: label_value(settings.stream), ROLE_LABEL: DRIVER},
        "publishNotReadyAddresses": True,  # a driver that shows no progress is the one to look at
        "ports": [{"name": "spark-ui", "port": UI_PORT, "targetPort": "spark-ui"}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def metadata_of(settings: PodSettings, name: str) -> Manifest:
    """Return the metadata of what belongs to an attempt."""
    return {
        "name": name,
        "namespace": settings.namespace,
        "labels": labels_of(settings.stream, settings.attempt, DRIVER),
        "annotations": _annotations(settings),
        "ownerReferences": [settings.owner.manifest()],
    }


def _annotations(settings: PodSettings) -> dict[str, str]:
    return {STREAM_ID_ANNOTATION: settings.stream_id}


def _resources(size: Size) -> dict[str, Any]:
    """No limit of CPU unless one is asked for: a driver that may not use an idle core only takes longer."""
    memory = f"{size.memory_mib}Mi"
    limits = {"memory": memory} if size.cpu_limit is None else {"cpu": size.cpu_limit, "memory": memory}
    return {"requests": {"cpu": size.cpu_request or str(size.cores), "memory": memory}, "limits": limits}


def variables() -> list[Manifest]:
    """Return the environment of every container of a driver's pod."""
    return [{"name": SECRETS_FOLDER, "value": SECRETS_MOUNT}, {"name": "HOME", "value": "/tmp"}]  # noqa: S108 - a volume of the pod alone
