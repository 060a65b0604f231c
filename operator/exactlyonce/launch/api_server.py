"""The few calls to the API server that drivers need, as plain manifests. Blocking; every call has a time limit.

Answers are parsed as JSON and not into the client's own types, which would cost more than the call. Nothing is cached.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kubernetes import client
from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from exactlyonce.errors import ExactlyOnceError, Unreachable
from exactlyonce.launch.pod_template import Manifest

_TIMEOUT_SECONDS = (5.0, 10.0)  # to connect, to read
_PAGE = 500
_MOST_PAGES = 100

FORBIDDEN, NOT_FOUND, CONFLICT = 403, 404, 409
_BAD_REQUEST, _TOO_LARGE, _INVALID = 400, 413, 422

_METHODS = {
    "Pod": "namespaced_pod",
    "ConfigMap": "namespaced_config_map",
    "Service": "namespaced_service",
    "Node": "node",
}


class ApiServerUnreachable(Unreachable):
    """The API server did not answer, or could not; nothing is known."""


class Answered(ExactlyOnceError):
    """The API server answered with an error; `status` is HTTP's, and the text is its own sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def blames_manifest(self) -> bool:
        """Whether the manifest that was sent is at fault, so that sending it again changes nothing."""
        return self.status in (_BAD_REQUEST, _TOO_LARGE, _INVALID)


@dataclass
class ApiServer:
    """One API server, by the blocking client; safe to use from several threads."""

    api: client.ApiClient
    _core: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._core = client.CoreV1Api(self.api)

    def read(self, kind: str, namespace: str | None, name: str) -> Manifest | None:
        """Return an object as a quorum of the store has it now, or None where there is none."""
        try:
            return self._call("read", kind, name, *_where(namespace))
        except Answered as answer:
            if answer.status == NOT_FOUND:
                return None
            raise

    def list(self, kind: str, namespace: str, selector: str) -> list[Manifest]:
        """Return every object that has the labels of `selector`."""
        found: list[Manifest] = []
        following = None
        for _ in range(_MOST_PAGES):
            options = {"label_selector": selector, "limit": _PAGE, "_continue": following}
            page = self._call("list", kind, namespace, **{name: value for name, value in options.items() if value})
            found += page["items"]
            following = page["metadata"].get("continue")
            if not following:
                break
        return found

    def create(self, manifest: Mapping[str, Any]) -> None:
        """Create an object; a field that the API server does not know is an error."""
        self._call("create", manifest["kind"], manifest["metadata"]["namespace"], manifest, field_validation="Strict")

    def delete(self, found: Manifest, kind: str, grace_seconds: int | None = None) -> None:
        """Delete the very object that was read; one that is gone by now, or is another, is left as it is."""
        metadata = found["metadata"]
        options: Manifest = {"preconditions": {"uid": metadata["uid"]}, "propagationPolicy": "Background"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            self._call("delete", kind, metadata["name"], metadata["namespace"], body=options)
        except Answered as answer:
            if answer.status not in (NOT_FOUND, CONFLICT):
                raise

    def remove_finalizer(self, pod: Manifest, finalizer: str) -> None:
        """Take a finalizer off the very pod that was read; done before, or meanwhile by another, is as good."""
        metadata = pod["metadata"]
        finalizers = metadata.get("finalizers") or []
        if finalizer not in finalizers:
            return
        path = f"/metadata/finalizers/{finalizers.index(finalizer)}"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
            {"op": "test", "path": path, "value": finalizer},
            {"op": "remove", "path": path},
        ]
        try:
            self._call("patch", "Pod", metadata["name"], metadata["namespace"], patch)
        except Answered as answer:
            if answer.status not in (NOT_FOUND, CONFLICT, _INVALID):
                raise

    def _call(self, verb: str, kind: str, *arguments: Any, **options: Any) -> Manifest:
        ask = getattr(self._core, f"{verb}_{_METHODS[kind]}")
        try:
            answer = ask(*arguments, _preload_content=False, _request_timeout=_TIMEOUT_SECONDS, **options)
            return dict(json.loads(answer.data))
        except ApiException as problem:
            if (
                problem.status is None
                or problem.status < _BAD_REQUEST
                or problem.status >= 500
                or problem.status == 429
            ):
                raise ApiServerUnreachable(f"The API server cannot answer now ({_message(problem)}).") from problem
            raise Answered(problem.status, _message(problem)) from problem
        except (HTTPError, OSError, ValueError) as problem:
            raise ApiServerUnreachable(f"The API server did not answer ({type(problem).__name__}).") from problem


def _where(namespace: str | None) -> tuple[str, ...]:
    return () if namespace is None else (namespace,)


def _message(problem: ApiException) -> str:
    """The API server's own words; its answers are a Status object, except from what stands before it."""
    try:
        return str(json.loads(problem.body or "")["message"]).rstrip(".")
    except (ValueError, KeyError, TypeError):
        return f"{problem.status} {problem.reason}"
