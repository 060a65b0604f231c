"""What an object of the cluster says of the attempt that it belongs to. Performs no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from exactlyonce.launch.driver_pod import STREAM_FILE
from exactlyonce.launch.pod_names import (
    ATTEMPT_LABEL,
    ROLE_LABEL,
)
from exactlyonce.launch.pod_template import Manifest
from exactlyonce.positions.ranges import Epoch


def spec_in(config_map: Manifest | None) -> Mapping[str, Any] | None:
    """Return the spec in an attempt's ConfigMap, or None where it has none that can be read."""
    if config_map is None:
        return None
    try:
        spec = json.loads(config_map["data"][STREAM_FILE])
    except (KeyError, TypeError, ValueError):
        return None
    return spec if isinstance(spec, dict) else None


def attempt_of(found: Manifest) -> Epoch:
    """The attempt that an object belongs to; what says none belongs to the first."""
    label = (found["metadata"].get("labels") or {}).get(ATTEMPT_LABEL, "")
    return Epoch(int(label)) if label.isdigit() else Epoch(0)


def role_of(found: Manifest) -> str | None:
    """Return whether it is a driver's or an executor's."""
    role: str | None = (found["metadata"].get("labels") or {}).get(ROLE_LABEL)
    return role
