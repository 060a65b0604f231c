"""Which images, service accounts, priority classes and nodes the streams of a namespace may name. Performs no I/O.

An administrator lists them (`drivers.allowlists` of the chart); what no entry lists for a namespace is not restricted there.
The check is over what a stream says: code that runs in a driver's pod may do what the pod's service account may do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from exactlyonce.api.resource import ResourceInvalid, Stream, parse_stream
from exactlyonce.control.namespace_lists import NamespacePattern, entries_of, is_like
from exactlyonce.launch.pod_settings import PodDefaults
from exactlyonce.schema.constraints import matches
from exactlyonce.schema.model import Model

_CHARACTER = r"[!-)+-~]"  # what an image may be written with, without the *
_IMAGES = rf"{_CHARACTER}+|({_CHARACTER}*[/:@])?\*"
_NAMES = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?|([a-z0-9][-a-z0-9.]*)?\*"


class Kind(StrEnum):
    """What a stream names, as the field of an allowlist."""

    IMAGE = "images"
    SERVICE_ACCOUNT = "service_accounts"
    PRIORITY_CLASS = "priority_classes"
    NODE = "node_names"


_WORDS = {
    Kind.IMAGE: "image",
    Kind.SERVICE_ACCOUNT: "service account",
    Kind.PRIORITY_CLASS: "priority class",
    Kind.NODE: "node",
}

ImagePattern = Annotated[
    str,
    Field(max_length=512),
    matches(
        _IMAGES,
        "write an image, or how images begin up to a /, : or @, followed by a *, such as registry.example/streams/*",
    ),
]
NamePattern = Annotated[
    str, Field(max_length=253), matches(_NAMES, "write a name, or how names begin followed by a *, such as streams-*")
]


class Allowlist(Model):
    """Some namespaces, and what their streams may name: an empty list allows nothing, one left out restricts nothing."""

    namespaces: tuple[NamespacePattern, ...] = Field(min_length=1, description="Namespaces by name or pattern.")
    images: tuple[ImagePattern, ...] | None = Field(None, description="Images.")
    service_accounts: tuple[NamePattern, ...] | None = Field(None, description="Service accounts.")
    priority_classes: tuple[NamePattern, ...] | None = Field(None, description="Priority classes.")
    node_names: tuple[NamePattern, ...] | None = Field(None, description="Nodes.")

    def patterns(self, kind: Kind) -> tuple[str, ...] | None:
        """Return what is listed of a kind, or None where that is not restricted."""
        listed: tuple[str, ...] | None = getattr(self, kind)
        return listed


@dataclass(frozen=True, slots=True)
class Named:
    """One thing that a stream names, and the field that names it."""

    field: str
    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Allowlists:
    """All allowlists. For a namespace, the entries that match it are taken together."""

    entries: tuple[Allowlist, ...] = ()

    def refusals(self, stream: Stream, defaults: PodDefaults) -> list[str]:
        """Return a sentence for each thing that a stream names and may not; the operator's own defaults may be named."""
        namespace = stream.metadata.namespace
        given = {Kind.IMAGE: defaults.image and defaults.image.name, Kind.SERVICE_ACCOUNT: defaults.service_account}
        told = []
        for named in named_by(stream):
            allowed = self._allowed(namespace, named.kind)
            if allowed is None or named.name == given.get(named.kind):
                continue
            if not any(_allows(pattern, named) for pattern in allowed):
                told.append(_sentence(named, namespace, allowed))
        return told

    def _allowed(self, namespace: str, kind: Kind) -> tuple[str, ...] | None:
        matching = [entry for entry in self.entries if any(is_like(namespace, it) for it in entry.namespaces)]
        lists = [listed for entry in matching if (listed := entry.patterns(kind)) is not None]
        return tuple(dict.fromkeys(pattern for listed in lists for pattern in listed)) if lists else None


NO_ALLOWLISTS = Allowlists()


def admitted_stream(document: Mapping[str, Any], allowlists: Allowlists, defaults: PodDefaults) -> Stream:
    """Return the stream of a resource that is valid and names nothing that its namespace may not.

    Raises:
        ResourceInvalid: with a sentence for each thing that is wrong.
    """
    stream = parse_stream(document, "the resource")
    problems = allowlists.refusals(stream, defaults)
    if problems:
        raise ResourceInvalid([f"the resource: {problem}" for problem in problems])
    return stream


def still_admitted(made: Stream | None, allowlists: Allowlists, defaults: PodDefaults) -> Stream | None:
    """Return the stream as its latest attempt was made of, or None where an administrator has taken from the lists since.

    No further attempt is made then; a driver that runs keeps running.
    """
    return None if made is None or allowlists.refusals(made, defaults) else made


def named_by(stream: Stream) -> Iterator[Named]:
    """Yield every image, service account, priority class and node that a stream names for its pods."""
    spec = stream.spec
    if spec.image is not None:
        yield Named("spec.image", Kind.IMAGE, spec.image)
    if spec.driver.service_account_name is not None:
        yield Named("spec.driver.serviceAccountName", Kind.SERVICE_ACCOUNT, spec.driver.service_account_name)
    for role, process in (("driver", spec.driver), ("executor", spec.executor)):
        yield from _named_by_pod(process.pod_template.spec, f"spec.{role}.podTemplate.spec")


def parse_allowlists(text: str) -> Allowlists:
    """Return what the operator is started with: a JSON list of allowlists, or nothing.

    Raises:
        ListUnusable: with a sentence for each thing that is wrong.
    """
    return Allowlists(entries_of(text, _ENTRIES, "drivers.allowlists"))


_ENTRIES = TypeAdapter(tuple[Allowlist, ...])


def _named_by_pod(pod: Mapping[str, Any], where: str) -> Iterator[Named]:
    """Yield what a pod template names. What has another shape than a pod's is left to the launch, which refuses it."""
    for field in ("serviceAccountName", "serviceAccount"):
        if pod.get(field) is not None:  # an empty name is not nothing: it takes the place of the operator's
            yield Named(f"{where}.{field}", Kind.SERVICE_ACCOUNT, str(pod[field]))
    for field, kind in (("priorityClassName", Kind.PRIORITY_CLASS), ("nodeName", Kind.NODE)):
        if pod.get(field):
            yield Named(f"{where}.{field}", kind, str(pod[field]))
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in _objects(pod.get(field)):
            if container.get("image"):
                yield Named(f"{where}.{field}[{container.get('name')}].image", Kind.IMAGE, str(container["image"]))
    for volume in _objects(pod.get("volumes")):
        image = volume.get("image")
        if isinstance(image, Mapping) and image.get("reference"):
            at = f"{where}.volumes[{volume.get('name')}].image.reference"
            yield Named(at, Kind.IMAGE, str(image["reference"]))


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def _allows(pattern: str, named: Named) -> bool:
    if not pattern.endswith("*"):
        return named.name == pattern
    begin = pattern[:-1]
    if not named.name.startswith(begin):
        return False
    # A tag or a digest has no slash: after a colon, what has one would be a registry's port.
    return named.kind is not Kind.IMAGE or not begin.endswith((":", "@")) or "/" not in named.name[len(begin) :]


def _sentence(named: Named, namespace: str, allowed: tuple[str, ...]) -> str:
    word = _WORDS[named.kind]
    may = f"{' or '.join(allowed)} is allowed as {word}" if allowed else f"no {word} may be named"
    instead = "Use that" if allowed else "Leave the field out"
    return (
        f"{named.field}: {named.name!r} is not allowed; in namespace {namespace} {may}. {instead}, or ask the "
        "administrator of the operator, who sets drivers.allowlists of its chart."
    )
