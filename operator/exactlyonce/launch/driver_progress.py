"""How a driver's pod tells that its driver makes progress: a readiness probe over a file. Performs no I/O.

The kubelet runs the probe, so no network path is needed, neither to the driver nor from it. Ready has no other meaning in a
driver's pod. A template with a readiness probe of its own keeps it, and its driver is not judged by progress.

The probe fails after half of the limit, and the driver is given up when the probe has failed for the other half: a node that is
too busy to run the probe for some minutes makes no driver hang.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from exactlyonce.api.spec import StreamSpec
from exactlyonce.launch.driver_document import SCRATCH
from exactlyonce.launch.pod_names import DRIVER

Manifest = Mapping[str, Any]

LANDING_ROOM = timedelta(minutes=1)
"""A transaction that lands a batch shows no progress of its own; it may take as long as it may take, and this."""

_NAME = "progress-probe"
"""What the shell calls the probe: it tells ours from one of a template."""

_SCRIPT = 'test $(( $(date +%s) - $(date -r "$1" +%s) )) -lt "$2"'
_MOST_PERIOD_SECONDS, _LEAST_PERIOD_SECONDS = 30, 5


def progress_limit(spec: StreamSpec) -> timedelta:
    """Return how long a driver may show no progress: what the resource says, and never less than a landing may take."""
    return max(spec.driver.progress_timeout, spec.sink.spec.transaction_timeout + LANDING_ROOM)


def progress_file(pod_name: str) -> str:
    """Return the file that the driver of a pod touches; no other pod's, where a template gives several the same volume."""
    return f"{SCRATCH}/{pod_name}.progress"


def with_progress_probe(pod: dict[str, Any], limit: timedelta) -> dict[str, Any]:
    """Return a driver's pod with the probe, unless its template has one of its own."""
    probe = _probe(progress_file(pod["metadata"]["name"]), limit)

    def probed(container: dict[str, Any]) -> dict[str, Any]:
        if container["name"] != DRIVER or "readinessProbe" in container:
            return container
        return {**container, "readinessProbe": probe}

    spec = pod["spec"]
    return {**pod, "spec": {**spec, "containers": [probed(container) for container in spec["containers"]]}}


def hangs_from(pod: Manifest) -> datetime | None:
    """Return when a driver that shows no progress is given up; None where it shows some, or is not judged.

    Only a kubelet sets ContainersReady: the control plane, which stands in for the kubelet of a lost node, sets Ready alone. A
    probe that has never succeeded proves nothing: the image may lack what it runs.
    """
    container = _named(DRIVER, "name", pod["spec"].get("containers", ()))
    status = _named(DRIVER, "name", pod["status"].get("containerStatuses", ()))
    ready = _named("ContainersReady", "type", pod["status"].get("conditions", ()))
    running = status.get("state", {}).get("running")
    half = _half_of(container.get("readinessProbe"))
    if half is None or not running or ready.get("status") != "False" or status.get("ready"):
        return None
    since = datetime.fromisoformat(ready["lastTransitionTime"])
    return since + half if since > datetime.fromisoformat(running["startedAt"]) else None


def _named(name: str, key: str, entries: Iterable[Manifest]) -> Manifest:
    return next((entry for entry in entries if entry[key] == name), {})


def _probe(file: str, limit: timedelta) -> dict[str, Any]:
    half_seconds = math.ceil(limit.total_seconds() / 2)
    period_seconds = max(_LEAST_PERIOD_SECONDS, min(_MOST_PERIOD_SECONDS, half_seconds // 4))
    return {
        "exec": {"command": ["/bin/sh", "-c", _SCRIPT, _NAME, file, str(half_seconds)]},
        "periodSeconds": period_seconds,
        "timeoutSeconds": period_seconds,
        "failureThreshold": 1,
    }


def _half_of(probe: Manifest | None) -> timedelta | None:
    """Half of the limit that the probe was made for; None where it is not ours."""
    command = ((probe or {}).get("exec") or {}).get("command") or []
    return timedelta(seconds=int(command[-1])) if _NAME in command else None
