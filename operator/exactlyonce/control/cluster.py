"""What a pass asks of the API server: resources, their status, secrets, events. Blocking; each call has a time limit."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kubernetes import client

from exactlyonce.control.wakeups import Key
from exactlyonce.errors import ExactlyOnceError, Refused, Unreachable
from exactlyonce.launch.api_server import CONFLICT, FORBIDDEN, NOT_FOUND, Answered, ApiServerUnreachable, asked
from exactlyonce.launch.secrets import is_text
from exactlyonce.reconcile.loop import StatusConflict

GROUP, VERSION, PLURAL, KIND = "exactlyonce.dev", "v1alpha1", "exactlyoncestreams", "ExactlyOnceStream"
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_MERGE_PATCH = "application/merge-patch+json"
LIST_PAGE = 500


class ClusterUnreachable(Unreachable):
    """The API server did not answer, or not with sense; nothing is known."""


class ClusterRefused(Refused):
    """The API server says that the operator may not, or that what it sent is wrong."""


class ResourceNotAccepted(Refused):
    """A resource is stored in a form that its definition no longer knows, so that nobody can write its status either."""


@dataclass(frozen=True)
class Cluster:
    """One API server, by the blocking client; safe to use from several threads."""

    api: client.ApiClient
    cluster_id: str

    @classmethod
    def connect(cls, api: client.ApiClient) -> Cluster:
        """Return the cluster that a client points at; the uid of kube-system stands for it, as is the custom."""
        namespace = _asked(lambda: asked(api, "GET", "/api/v1/namespaces/kube-system"), "namespace kube-system")
        return cls(api, str(namespace["metadata"]["uid"]))

    def stream(self, key: Key, selector: str = "") -> dict[str, Any] | None:
        """Return the resource as it is now, or None where there is none, or none with the labels of `selector`."""
        what = f"ExactlyOnceStream {key}"
        if not selector:
            return self._found(_path(key.namespace, key.name), what)
        query = {"fieldSelector": f"metadata.name={key.name}", "labelSelector": selector}
        listed = _asked(lambda: asked(self.api, "GET", _path(key.namespace), query), what)
        return dict(listed["items"][0]) if listed["items"] else None

    def keys(self, namespaces: Sequence[str], selector: str) -> list[Key]:
        """Return every stream of these namespaces, or of all where none is named, that has the labels of `selector`."""
        where = [f"/namespaces/{namespace}" for namespace in namespaces] or [""]
        return [key for place in where for key in self._keys_in(place, selector)]

    def _keys_in(self, place: str, selector: str) -> Iterator[Key]:
        query = {"limit": LIST_PAGE, **({"labelSelector": selector} if selector else {})}
        path = f"/apis/{GROUP}/{VERSION}{place}/{PLURAL}"
        while True:
            page = _asked(lambda: asked(self.api, "GET", path, query, accept=_METADATA_ONLY), "all ExactlyOnceStreams")
            for item in page["items"] or ():
                yield Key(item["metadata"]["namespace"], item["metadata"]["name"])
            query["continue"] = page["metadata"].get("continue") or ""
            if not query["continue"]:
                return

    def put_status(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the status of the very version that `document` names and return the resource.

        Raises:
            StatusConflict: if the resource has changed since, or is gone.
        """
        return self._replaced(document, "/status")

    def put_finalizers(self, document: Mapping[str, Any], finalizers: list[str]) -> dict[str, Any]:
        """Replace the finalizers of the very version that `document` names and return the resource."""
        return self._replaced({**document, "metadata": {**document["metadata"], "finalizers": finalizers}})

    def secret(self, namespace: str, name: str) -> dict[str, str] | None:
        """Return a secret's keys, or None where there is no such secret; those that are no text are left out."""
        found = self._found(f"/api/v1/namespaces/{namespace}/secrets/{name}", f"Secret {namespace}/{name}")
        if found is None:
            return None
        decoded = {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
        return {key: value.decode() for key, value in decoded.items() if is_text(value)}

    def tell(self, document: Mapping[str, Any], reason: str, message: str, *, warning: bool) -> None:
        """Record an event of a resource; the same one again counts up. Events are told, never relied on."""
        metadata = document["metadata"]
        seal = hashlib.sha256(f"{metadata['uid']} {reason} {message}".encode()).hexdigest()[:16]
        name, namespace = f"{metadata['name'][:200]}.{seal}", metadata["namespace"]
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        body = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": document.get("kind") or KIND,
                "name": metadata["name"],
                "namespace": namespace,
                "uid": metadata["uid"],
            },
            "reason": reason,
            "message": message[:1024],
            "type": "Warning" if warning else "Normal",
            "source": {"component": "exactlyonce-operator"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        events = f"/api/v1/namespaces/{namespace}/events"
        try:
            asked(self.api, "POST", events, body=body)
        except Answered as answer:
            if answer.status == CONFLICT:
                self._count_up(f"{events}/{name}", now)
        except ApiServerUnreachable:
            return

    def _count_up(self, event: str, now: str) -> None:
        """An event that was told before is told again."""
        try:
            count = asked(self.api, "GET", event).get("count") or 1
            asked(self.api, "PATCH", event, body={"count": count + 1, "lastTimestamp": now}, content=_MERGE_PATCH)
        except (Answered, ApiServerUnreachable):
            return

    def _found(self, path: str, what: str) -> dict[str, Any] | None:
        """Return what is at a path, or None where there is nothing."""
        try:
            return asked(self.api, "GET", path)
        except (Answered, ApiServerUnreachable) as problem:
            if isinstance(problem, Answered) and problem.status == NOT_FOUND:
                return None
            raise told_by(problem, what) from problem

    def _replaced(self, document: Mapping[str, Any], part: str = "") -> dict[str, Any]:
        """Replace a resource, or a part of it, of the very version that `document` names."""
        key = Key(document["metadata"]["namespace"], document["metadata"]["name"])
        try:
            return asked(self.api, "PUT", _path(*key) + part, body=document)
        except (Answered, ApiServerUnreachable) as problem:
            if isinstance(problem, Answered) and problem.status in (CONFLICT, NOT_FOUND):
                raise StatusConflict(f"{key} has changed since it was read; looking again.") from problem
            raise told_by(problem, f"ExactlyOnceStream {key}") from problem


def _path(namespace: str, name: str = "") -> str:
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}/{name}".rstrip("/")


def _asked(call: Callable[[], dict[str, Any]], what: str) -> dict[str, Any]:
    try:
        return call()
    except (Answered, ApiServerUnreachable) as problem:
        raise told_by(problem, what) from problem


def told_by(problem: ExactlyOnceError, what: str) -> ClusterUnreachable | ClusterRefused | ResourceNotAccepted:
    """Turn an answer of the API server into an error; what it may say later is not known, unless it forbids."""
    if not isinstance(problem, Answered):
        return ClusterUnreachable(str(problem))
    if problem.status == FORBIDDEN:
        return ClusterRefused(f"The operator may not use {what}: its role lacks a right ({problem}).")
    if problem.blames_manifest:
        return ResourceNotAccepted(
            f"The API server takes no change of {what} as it is stored: {problem}. Correct its spec."
        )
    return ClusterUnreachable(f"The API server answered {problem.status} for {what}: {problem}.")
