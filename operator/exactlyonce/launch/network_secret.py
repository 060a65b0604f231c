"""The secret by which driver and executors of one attempt know each other, and from which they draw their keys.

Spark would draw one itself and write it into a variable of each executor's pod, where everybody reads it who may look at pods.
So each attempt has a Secret, mounted by its pods alone: docs/adr/0023.
"""

from __future__ import annotations

import base64
import secrets
from typing import Any

from exactlyonce.launch.pod_template import Manifest

NETWORK_FOLDER = "/etc/exactlyonce/network"
NETWORK_FILE = f"{NETWORK_FOLDER}/secret"
"""The file with the secret, in the driver's pod and in each executor's."""

NETWORK_VOLUME = "exactlyonce-network"
_KEY = "secret"
_BYTES = 32  # as many as Spark draws itself by default (spark.authenticate.secretBitLength: 256)


def network_secret(metadata: Manifest) -> Manifest:
    """Return the Secret of an attempt as it stands in no file and no log: without its content and its owner.

    Performs no I/O.
    """
    unowned = {key: value for key, value in metadata.items() if key != "ownerReferences"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": unowned, "immutable": True, "type": "Opaque"}


def drawn(manifest: Manifest, config_map: Manifest) -> Manifest:
    """Return the Secret with a content that was drawn just now; it goes with the attempt's ConfigMap.

    The owner is what spares the operator the right to delete secrets.
    """
    of = config_map["metadata"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": of["name"], "uid": of["uid"]}
    content = base64.b64encode(secrets.token_hex(_BYTES).encode()).decode()
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}, "data": {_KEY: content}}


def network_volume(name: str) -> dict[str, Any]:
    """Return the volume of the Secret called `name`."""
    return {"name": NETWORK_VOLUME, "secret": {"secretName": name}}


def network_mount() -> dict[str, Any]:
    """Return where a container has that volume."""
    return {"name": NETWORK_VOLUME, "mountPath": NETWORK_FOLDER, "readOnly": True}
