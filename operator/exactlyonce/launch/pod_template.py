"""A user's pod template merged into the operator's pod, as a strategic merge does. Performs no I/O.

Lists of named things (containers, volumes, environment variables, …) are merged by their key, other lists are replaced,
objects are merged field by field. What the operator depends on is refused by name, with the reason, never overridden
in silence. Source of the keys: `patchMergeKey` in k8s.io/api/core/v1 (PodSpec, Container).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exactlyonce.errors import Refused
from exactlyonce.launch.pod_names import RECONCILE
from exactlyonce.launch.restricted import secured, violations

Manifest = dict[str, Any]

_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
}
_TAKEN_WHOLE = {
    "volumes",
    "env",
    "resourceClaims",
}  # one of several kinds: two halves of different kinds would be invalid

_OBJECTS = {
    "resources", "requests", "limits", "securityContext", "capabilities", "seccompProfile", "appArmorProfile",
    "seLinuxOptions", "windowsOptions", "lifecycle", "preStop", "postStart", "livenessProbe", "readinessProbe",
    "startupProbe", "httpGet", "tcpSocket",
}  # fmt: skip
_LISTS = {"add", "drop", "command", "args"}
_LISTS_OF_OBJECTS = {"sysctls"}

_METADATA = {"labels", "annotations"}
_SPEC = {
    "restartPolicy": "an attempt runs once, and the operator starts the next one",
    "activeDeadlineSeconds": "a stream has no end at which its pods are to be killed",
    "ephemeralContainers": "they are added to a pod that runs, by kubectl debug",
    "serviceAccount": "it is the old name of serviceAccountName",
    "hostname": "Spark finds its processes by address",
    "subdomain": "Spark finds its processes by address",
}
_SPEC_OF_DRIVER = {
    "terminationGracePeriodSeconds": "drainTimeout says how long a driver may take to end",
    "serviceAccountName": "driver.serviceAccountName says it",
    "automountServiceAccountToken": "the driver starts its executors with this token",
}
_MAIN_CONTAINER = {
    "image": "image says it",
    "imagePullPolicy": "imagePullPolicy says it",
    "command": "the operator says what runs here",
    "args": "the operator says what runs here",
    "workingDir": "it must be a folder that can be written to; the operator gives one",
    "restartPolicy": "an attempt runs once, and the operator starts the next one",
    "restartPolicyRules": "an attempt runs once, and the operator starts the next one",
    "terminationMessagePath": "the last message of what runs here is read from it",
    "terminationMessagePolicy": "the last message of what runs here is read by it",
}
_RESOURCES = {
    ("requests", "cpu"): "{role}.cores says it",
    ("requests", "memory"): "{role}.memory and {role}.memoryOverhead say it",
    ("limits", "memory"): "{role}.memory and {role}.memoryOverhead say it",
}
REPLACEABLE_VOLUMES = {"tmp", "spark-local-dir-1"}
"""The operator's volumes that a template may have of another kind: scratch space of any size and speed."""


class TemplateRefused(Refused):
    """A pod template asks for something that would break the stream or its security; one sentence for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(" ".join(f"{problem}." for problem in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Role:
    """Whose template it is: the field of the spec, and the main container's name in the pod."""

    name: str
    alone: bool
    """Whether no other container may stand beside the main one."""


DRIVER_ROLE = Role("driver", alone=True)
EXECUTOR_ROLE = Role("executor", alone=False)


def merged(base: Manifest, template: Mapping[str, Any], role: Role) -> Manifest:
    """Return the pod `base` with what `template` adds to it.

    Raises:
        TemplateRefused: with a sentence for each field that may not be given, or that has no meaning.
    """
    where = f"{role.name}.podTemplate"
    template = _without_nulls(template)
    problems = list(_shape(template, where)) or list(_refused(base, template, role, where))
    if problems:
        raise TemplateRefused(problems)
    pod: Manifest = _merge(base, template, "")
    spec = pod["spec"]
    for kind in ("initContainers", "containers"):
        if kind in spec:
            spec[kind] = [secured(container) for container in spec[kind]]
    problems = [f"{where}.spec.{problem}" for problem in violations(spec)]
    if problems:
        raise TemplateRefused(problems)
    return pod


def _without_nulls(value: Any) -> Any:
    """Null is nothing given; in a patch it would take away what the operator has there."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value if item is not None] if isinstance(value, list) else value


def _merge(base: Any, patch: Any, field: str) -> Any:
    if isinstance(patch, Mapping):
        kept = base if isinstance(base, Mapping) else {}
        return {**kept, **{key: _merge(kept.get(key), value, key) for key, value in patch.items()}}
    if isinstance(base, list) and isinstance(patch, list) and field in _KEYS:
        return _merge_list(base, patch, field)
    return patch


def _merge_list(base: list[Any], patch: list[Any], field: str) -> list[Any]:
    key = _KEYS[field]
    result = {entry[key]: entry for entry in base}
    for entry in patch:
        before = result.get(entry[key])
        result[entry[key]] = entry if before is None or field in _TAKEN_WHOLE else _merge(before, entry, "")
    return list(result.values())


def _shape(template: Any, where: str) -> Iterator[str]:
    """Yield what is not a pod template at all, at any depth that the merge goes to."""
    if not isinstance(template, Mapping):
        yield f"{where}: give an object with metadata and spec"
        return
    yield from _unknown(
        template, {"metadata", "spec", "apiVersion", "kind"}, where, "a pod template has metadata and spec"
    )
    for part in ("metadata", "spec"):
        value = template.get(part)
        if value is not None and not isinstance(value, Mapping):
            yield f"{where}.{part}: give an object"
        elif value is not None:
            yield from _shape_of_fields(value, f"{where}.{part}")


def _shape_of_fields(fields: Mapping[str, Any], where: str) -> Iterator[str]:
    for name, value in fields.items():
        at = f"{where}.{name}"
        if str(name).startswith("$"):
            yield f"{at}: directives of a patch have no meaning here; remove it"
        elif name in ("labels", "annotations", "nodeSelector"):
            if not isinstance(value, Mapping) or not all(isinstance(entry, str) for entry in value.values()):
                yield f"{at}: give an object of strings; put numbers and booleans in quotes"
        elif name in _KEYS:
            yield from _shape_of_list(value, _KEYS[name], at)
        elif name in _LISTS_OF_OBJECTS:
            yield from _shape_of_list(value, "name", at)
        elif name in _LISTS and not isinstance(value, list):
            yield f"{at}: give a list"
        elif name in _OBJECTS and not isinstance(value, Mapping):
            yield f"{at}: give an object"
        elif isinstance(value, Mapping):
            yield from _shape_of_fields(value, at)


def _shape_of_list(value: Any, key: str, where: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{where}: give a list"
        return
    for place, entry in enumerate(value):
        if not isinstance(entry, Mapping) or not isinstance(entry.get(key), str | int):
            yield f"{where}[{place}]: each entry is an object with {key}"
        else:
            yield from _shape_of_fields(entry, f"{where}[{entry[key]}]")


def _refused(base: Manifest, template: Mapping[str, Any], role: Role, where: str) -> Iterator[str]:
    metadata, spec = template.get("metadata", {}), template.get("spec", {})
    yield from _unknown(metadata, _METADATA, f"{where}.metadata", "only labels and annotations may be given")
    for part in sorted(_METADATA):
        owned = set(base["metadata"].get(part) or {})
        for key in sorted(owned & set(metadata.get(part, {}))):
            yield f"{where}.metadata.{part}[{key}]: the operator sets it itself; remove it"
    reasons = {**_SPEC, **(_SPEC_OF_DRIVER if role is DRIVER_ROLE else {})}
    for name in sorted(set(spec) & set(reasons)):
        yield f"{where}.spec.{name}: {reasons[name]}; remove it"
    yield from _refused_volumes(base["spec"], spec, f"{where}.spec")
    for container in spec.get("initContainers", ()):
        if container["name"] == RECONCILE:
            yield f"{where}.spec.initContainers[{RECONCILE}]: the operator makes it itself; choose another name"
    for container in spec.get("containers", ()):
        at = f"{where}.spec.containers[{container['name']}]"
        if container["name"] == role.name:
            yield from _refused_in_main(_main(base, role), container, role, at)
        elif role.alone:
            yield (
                f"{at}: a container beside the driver would keep its pod running after the driver has ended; "
                "write it as an initContainer with restartPolicy: Always"
            )


def _refused_volumes(base: Mapping[str, Any], spec: Mapping[str, Any], where: str) -> Iterator[str]:
    owned = {volume["name"] for volume in base["volumes"]} - REPLACEABLE_VOLUMES
    for volume in spec.get("volumes", ()):
        if volume["name"] in owned:
            yield f"{where}.volumes[{volume['name']}]: the operator makes this volume; choose another name"


def _refused_in_main(base: Mapping[str, Any], container: Mapping[str, Any], role: Role, where: str) -> Iterator[str]:
    for name in sorted(set(container) & set(_MAIN_CONTAINER)):
        yield f"{where}.{name}: {_MAIN_CONTAINER[name]}; remove it"
    resources = container.get("resources", {})
    for (kind, name), reason in _RESOURCES.items():
        if name in resources.get(kind, {}):
            yield f"{where}.resources.{kind}.{name}: {reason.format(role=role.name)}; remove it"
    owned = {variable["name"] for variable in base["env"]}
    for variable in container.get("env", ()):
        if variable["name"] in owned:
            yield f"{where}.env[{variable['name']}]: the operator sets it itself; remove it"
    mounted = {mount["mountPath"].rstrip("/") for mount in base["volumeMounts"]}
    for mount in container.get("volumeMounts", ()):
        if mount["mountPath"].rstrip("/") in mounted:
            yield (
                f"{where}.volumeMounts[{mount['mountPath']}]: the operator mounts a volume there; "
                "give volumes an entry of that volume's name to have it of another kind, or choose another path"
            )


def _main(pod: Manifest, role: Role) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(entry for entry in pod["spec"]["containers"] if entry["name"] == role.name)
    return found


def _unknown(fields: Mapping[str, Any], known: set[str], where: str, what: str) -> Iterator[str]:
    for name in sorted(set(fields) - known):
        yield f"{where}.{name}: {what}; remove it"
