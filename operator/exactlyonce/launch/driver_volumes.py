"""What a driver's pod mounts: the attempt, secrets, the network's keys, the checkpoint. Performs no I/O."""

from __future__ import annotations

from exactlyonce.launch.driver_document import (
    CHECKPOINT_VARIABLE,
    SCRATCH,
)
from exactlyonce.launch.network_secret import network_volume
from exactlyonce.launch.pod_names import (
    network_secret_name,
    volume_name,
)
from exactlyonce.launch.pod_settings import PodSettings
from exactlyonce.launch.pod_template import Manifest

SECRETS_MOUNT = "/etc/exactlyonce/secrets"


def s3_secret(settings: PodSettings) -> list[Manifest]:
    """Executors write files and the state of stateful queries; they read no document that would name the secret."""
    if settings.s3_secret is None:
        return []
    return [{"name": CHECKPOINT_VARIABLE, "value": settings.s3_secret}]


def volumes_of(settings: PodSettings) -> list[Manifest]:
    """Return the volumes of a driver's pod."""
    volumes: list[Manifest] = [
        {"name": "tmp", "emptyDir": {}},
        {"name": "spark-local-dir-1", "emptyDir": {}},  # the name by which Spark takes it for its local folder
    ]
    volumes += [
        {"name": volume_name("secret", secret), "secret": {"secretName": secret}} for secret in settings.secrets
    ]
    if settings.claim is not None:
        volumes.append({"name": "checkpoint", "persistentVolumeClaim": {"claimName": settings.claim.name}})
    return volumes


def networks_volume(settings: PodSettings) -> Manifest:
    """Return the volume with the keys of Spark's own network."""
    return network_volume(network_secret_name(settings.stream, settings.attempt))


def mounts_of(settings: PodSettings) -> list[Manifest]:
    """Return where its container has them."""
    mounts: list[Manifest] = [
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod alone
        {"name": "spark-local-dir-1", "mountPath": SCRATCH},
    ]
    for secret in settings.secrets:
        folder = f"{SECRETS_MOUNT}/{secret}"
        mounts.append({"name": volume_name("secret", secret), "mountPath": folder, "readOnly": True})
    if settings.claim is not None:
        mounts.append({"name": "checkpoint", "mountPath": settings.claim.folder})
    return mounts
