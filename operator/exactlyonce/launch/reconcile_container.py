"""What the reconciliation in a driver's pod shares with the driver: whatever a template gives to that. Performs no I/O."""

from __future__ import annotations

from exactlyonce.launch.driver_document import POD_IP
from exactlyonce.launch.network_secret import NETWORK_FOLDER
from exactlyonce.launch.pod_names import DRIVER, RECONCILE
from exactlyonce.launch.pod_template import Manifest

LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"

_OF_THE_DRIVER_ALONE = {LOCAL_FOLDERS, POD_IP, NETWORK_FOLDER}
"""Variables and a folder of Spark's own, of which the reconciliation has no use."""


def with_reconciliation(pod: Manifest) -> Manifest:
    """Return the pod with its reconciliation, where it has one, as the last init container and under the driver's identity.

    A template may give the driver a login by variables or files, such as a web identity: what reaches the checkpoint for the
    driver has to reach it here. A user's init containers come first: a proxy to the database may be one.
    """
    inits = pod["spec"].get("initContainers", [])
    (driver,) = [container for container in pod["spec"]["containers"] if container["name"] == DRIVER]
    for container in inits:
        if container["name"] == RECONCILE:
            container["env"] = _with_others_of(driver, container, "env", "name")
            container["volumeMounts"] = _with_others_of(driver, container, "volumeMounts", "mountPath")
            container |= {"envFrom": driver["envFrom"]} if "envFrom" in driver else {}
    inits.sort(key=lambda container: container["name"] == RECONCILE)
    return pod


def _with_others_of(driver: Manifest, container: Manifest, field: str, key: str) -> list[Manifest]:
    """Return a container's entries of a field, and those that the driver has beside them."""
    known = {entry[key] for entry in container[field]} | _OF_THE_DRIVER_ALONE
    return [*container[field], *(entry for entry in driver[field] if entry[key] not in known)]
