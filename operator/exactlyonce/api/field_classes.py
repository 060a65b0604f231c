"""Classes of a spec's fields, by their paths in its document: what a change of each one needs. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exactlyonce.api import connector_rules

OPERATORS_OWN = (
    "recovery",
    "replay",
    "history",
    "deletionPolicy",
    "objectives",
    "suspend",
    "drainTimeout",
    "driver.startTimeout",
    *connector_rules.OPERATORS_OWN,
)
"""Fields that the operator alone reads: a change of them needs no other driver."""

HOW_DRIVERS_RUN = (
    "image",
    "imagePullPolicy",
    "imagePullSecrets",
    "driver",
    "executor",
    "sparkConf",
    "sparkUi",
    "restartNonce",
)
"""Fields that say how drivers run; not what is read, how it is transformed, where it lands or where checkpoints are kept."""


def remove(document: dict[str, Any], path: str) -> None:
    """Remove the field at a path, and what it stood in where nothing else does."""
    first, _, rest = path.partition(".")
    inner = document.get(first)
    if rest and inner is not None:
        remove(inner, rest)
    if not rest or inner == {}:
        document.pop(first, None)


def copy_field(document: dict[str, Any], given: Mapping[str, Any], path: str) -> None:
    """Give `document` the field at a path as `given` has it, which may be not at all."""
    remove(document, path)
    first, _, rest = path.partition(".")
    if first not in given:
        return
    if not rest:
        document[first] = given[first]
        return
    inner = dict(document.get(first) or {})
    copy_field(inner, given[first], rest)
    if inner:
        document[first] = inner
