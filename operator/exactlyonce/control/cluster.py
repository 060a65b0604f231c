"""What a pass asks of the API server: resources, their status, secrets, events. Blocking; each call has a time limit."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kubernetes import client
from kubernetes.client import ApiException

from exactlyonce.control.wakeups import Key
from exactlyonce.errors import Refused, Unreachable
from exactlyonce.reconcile.loop import StatusConflict

GROUP, VERSION, PLURAL, KIND = "exactlyonce.dev", "v1alpha1", "exactlyoncestreams", "ExactlyOnceStream"
_TIMEOUT_SECONDS = 10.0
_NOT_FOUND, _CONFLICT, _FORBIDDEN, _ERRORS = 404, 409, 403, 400
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


class ClusterUnreachable(Unreachable):
    """The API server did not answer, or not with sense; nothing is known."""


class ClusterRefused(Refused):
    """The API server says that the operator may not, or that what it sent is wrong."""


@dataclass(frozen=True)
class Cluster:
    """One API server, by the blocking client; safe to use from several threads."""

    api: client.ApiClient
    cluster_id: str

    @classmethod
    def connect(cls, api: client.ApiClient) -> Cluster:
        """Return the cluster that a client points at; the uid of kube-system stands for it, as is the custom."""
        core = client.CoreV1Api(api)
        namespace = _asked(lambda: core.read_namespace("kube-system", _request_timeout=_TIMEOUT_SECONDS), "namespace")
        return cls(api, str(namespace.metadata.uid))

    def stream(self, key: Key, selector: str = "") -> dict[str, Any] | None:
        """Return the resource as it is now, or None where there is none, or none with the labels of `selector`."""
        custom: Any = client.CustomObjectsApi(self.api)
        if selector:
            query = {"field_selector": f"metadata.name={key.name}", "label_selector": selector}
            listed = _asked(
                lambda: custom.list_namespaced_custom_object(
                    GROUP, VERSION, key.namespace, PLURAL, **query, _request_timeout=_TIMEOUT_SECONDS
                ),
                f"ExactlyOnceStream {key}",
            )
            return dict(listed["items"][0]) if listed["items"] else None
        try:
            found = custom.get_namespaced_custom_object(
                GROUP, VERSION, key.namespace, PLURAL, key.name, _request_timeout=_TIMEOUT_SECONDS
            )
        except ApiException as problem:
            if problem.status == _NOT_FOUND:
                return None
            raise _told(problem, f"ExactlyOnceStream {key}") from problem
        except Exception as problem:
            raise _silent(problem) from problem
        return dict(found)

    def keys(self, namespaces: Sequence[str], selector: str) -> list[Key]:
        """Return every stream of these namespaces, or of all where none is named, that has the labels of `selector`."""
        where = [f"/namespaces/{namespace}" for namespace in namespaces] or [""]
        return [key for place in where for key in self._keys_in(place, selector)]

    def _keys_in(self, place: str, selector: str) -> Iterator[Key]:
        api: Any = self.api
        query = {"limit": "500", **({"labelSelector": selector} if selector else {})}
        while True:
            request = api.param_serialize(
                "GET", f"/apis/{GROUP}/{VERSION}{place}/{PLURAL}", query_params=list(query.items()),
                header_params={"Accept": _METADATA_ONLY}, auth_settings=["BearerToken"],
            )  # fmt: skip
            page = _asked(lambda: _json_of(api, request), "all ExactlyOnceStreams")  # noqa: B023 - called at once
            for item in page["items"]:
                yield Key(item["metadata"]["namespace"], item["metadata"]["name"])
            query["continue"] = page["metadata"].get("continue") or ""
            if not query["continue"]:
                return

    def put_status(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the status of the very version that `document` names and return the resource.

        Raises:
            StatusConflict: if the resource has changed since, or is gone.
        """
        metadata = document["metadata"]
        custom: Any = client.CustomObjectsApi(self.api)
        return dict(
            self._replaced(
                lambda: custom.replace_namespaced_custom_object_status(
                    GROUP,
                    VERSION,
                    metadata["namespace"],
                    PLURAL,
                    metadata["name"],
                    document,
                    _request_timeout=_TIMEOUT_SECONDS,
                ),
                metadata,
            )
        )

    def put_finalizers(self, document: Mapping[str, Any], finalizers: list[str]) -> dict[str, Any]:
        """Replace the finalizers of the very version that `document` names and return the resource."""
        metadata = {**document["metadata"], "finalizers": finalizers}
        custom: Any = client.CustomObjectsApi(self.api)
        return dict(
            self._replaced(
                lambda: custom.replace_namespaced_custom_object(
                    GROUP,
                    VERSION,
                    metadata["namespace"],
                    PLURAL,
                    metadata["name"],
                    {**document, "metadata": metadata},
                    _request_timeout=_TIMEOUT_SECONDS,
                ),
                metadata,
            )
        )

    def secret(self, namespace: str, name: str) -> dict[str, str] | None:
        """Return a secret's keys as text, or None where there is no such secret."""
        core: Any = client.CoreV1Api(self.api)
        try:
            found = core.read_namespaced_secret(name, namespace, _request_timeout=_TIMEOUT_SECONDS)
        except ApiException as problem:
            if problem.status == _NOT_FOUND:
                return None
            raise _told(problem, f"Secret {namespace}/{name}") from problem
        except Exception as problem:
            raise _silent(problem) from problem
        return {key: base64.b64decode(value).decode() for key, value in (found.data or {}).items()}

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
                "kind": KIND,
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
        core: Any = client.CoreV1Api(self.api)
        try:
            core.create_namespaced_event(namespace, body, _request_timeout=_TIMEOUT_SECONDS)
        except ApiException as problem:
            if problem.status != _CONFLICT:
                return
            try:
                before = core.read_namespaced_event(name, namespace, _request_timeout=_TIMEOUT_SECONDS)
                changed = {"count": (before.count or 1) + 1, "lastTimestamp": now}
                core.patch_namespaced_event(name, namespace, changed, _request_timeout=_TIMEOUT_SECONDS)
            except Exception:
                return
        except Exception:
            return

    @staticmethod
    def _replaced(ask: Any, metadata: Mapping[str, Any]) -> Any:
        try:
            return ask()
        except ApiException as problem:
            if problem.status in (_CONFLICT, _NOT_FOUND):
                raise StatusConflict(
                    f"{metadata['namespace']}/{metadata['name']} has changed since it was read; looking again."
                ) from problem
            raise _told(problem, f"ExactlyOnceStream {metadata['namespace']}/{metadata['name']}") from problem
        except Exception as problem:
            raise _silent(problem) from problem


def _json_of(api: Any, request: Any) -> Any:
    answer = api.call_api(*request, _request_timeout=_TIMEOUT_SECONDS)
    text = answer.read()
    if answer.status >= _ERRORS:
        raise ApiException(status=answer.status, reason=answer.reason)
    return json.loads(text)


def _asked(ask: Any, what: str) -> Any:
    try:
        return ask()
    except ApiException as problem:
        raise _told(problem, what) from problem
    except Exception as problem:
        raise _silent(problem) from problem


def _told(problem: ApiException, what: str) -> ClusterUnreachable | ClusterRefused:
    """Turn an answer of the API server into an error; what it may say later is not known, unless it forbids."""
    if problem.status == _FORBIDDEN:
        return ClusterRefused(f"The operator may not use {what}: its role lacks a right ({problem.reason}).")
    return ClusterUnreachable(f"The API server answered {problem.status} {problem.reason} for {what}.")


def _silent(problem: Exception) -> ClusterUnreachable:
    return ClusterUnreachable(f"The API server did not answer ({type(problem).__name__}).")
