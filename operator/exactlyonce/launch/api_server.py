"""The few calls to the API server that drivers need, as plain manifests. Blocking; every call has a time limit.

Nothing is cached: a read is answered from a quorum of the API server's store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from kubernetes import client
from urllib3.exceptions import HTTPError
from urllib3.util import Timeout

from exactlyonce.errors import ExactlyOnceError, Unreachable
from exactlyonce.launch.pod_template import Manifest

_TIMEOUT = Timeout(connect=5.0, read=10.0)  # in seconds
_PAGE = 500
_MOST_PAGES = 100
_PIECE = 65_536  # bytes

UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT = 401, 403, 404, 409
_BAD_REQUEST, _TOO_LARGE, _INVALID, _TOO_MANY, _SERVER_ERROR = 400, 413, 422, 429, 500

_PLURALS = {"Pod": "pods", "ConfigMap": "configmaps", "Service": "services", "Secret": "secrets", "Node": "nodes"}
_JSON, JSON_PATCH = "application/json", "application/json-patch+json"


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


@dataclass(frozen=True)
class ApiServer:
    """One API server, by the blocking client; safe to use from several threads.

    `before_act` is asked before each call that changes something, and raises where nothing may be changed any more.
    """

    api: client.ApiClient
    before_act: Callable[[], None] = lambda: None

    def read(self, kind: str, namespace: str | None, name: str) -> Manifest | None:
        """Return an object as a quorum of the store has it now, or None where there is none."""
        try:
            return self._asked("GET", _path(kind, namespace, name))
        except Answered as answer:
            if answer.status == NOT_FOUND:
                return None
            raise

    def list(self, kind: str, namespace: str, selector: str) -> list[Manifest]:
        """Return every object that has the labels of `selector`."""
        found: list[Manifest] = []
        query: dict[str, Any] = {"labelSelector": selector, "limit": _PAGE}
        for _ in range(_MOST_PAGES):
            page = self._asked("GET", _path(kind, namespace), query)
            found += page["items"]
            following = page["metadata"].get("continue")
            if not following:
                return found
            query["continue"] = following
        raise ApiServerUnreachable(f"There are more than {len(found)} objects of kind {kind} with {selector}.")

    def create(self, manifest: Mapping[str, Any], *, dry_run: bool = False) -> Manifest:
        """Create an object and return it as it stands; a field that the API server does not know is an error.

        A dry run stops short of storing it.
        """
        path = _path(manifest["kind"], manifest["metadata"]["namespace"])
        query = {"fieldValidation": "Strict"}
        return self._asked("POST", path, {**query, "dryRun": "All"} if dry_run else query, manifest)

    def delete(self, found: Manifest, kind: str, grace_seconds: int | None = None) -> None:
        """Delete the very object that was read; one that is gone by now, or is another, is left as it is."""
        metadata = found["metadata"]
        options: Manifest = {"preconditions": {"uid": metadata["uid"]}, "propagationPolicy": "Background"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            self._asked("DELETE", _path(kind, metadata["namespace"], metadata["name"]), body=options)
        except Answered as answer:
            if answer.status not in (NOT_FOUND, CONFLICT):
                raise

    def remove_finalizer(self, pod: Manifest, finalizer: str) -> None:
        """Take a finalizer off the very pod that was read; done before, or meanwhile by another, is as good."""
        metadata = pod["metadata"]
        finalizers = metadata.get("finalizers") or []
        if finalizer not in finalizers:
            return
        place = f"/metadata/finalizers/{finalizers.index(finalizer)}"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
            {"op": "test", "path": place, "value": finalizer},
            {"op": "remove", "path": place},
        ]
        try:
            self._asked("PATCH", _path("Pod", metadata["namespace"], metadata["name"]), body=patch, content=JSON_PATCH)
        except Answered as answer:
            if answer.status not in (NOT_FOUND, CONFLICT, _INVALID):
                raise

    def _asked(
        self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None, content: str = _JSON
    ) -> Manifest:
        if method != "GET":
            self.before_act()
        return asked(self.api, method, path, query, body, content)


def asked(
    api: client.ApiClient,
    method: str,
    path: str,
    query: Mapping[str, Any] | None = None,
    body: Any = None,
    content: str = _JSON,
    accept: str = _JSON,
) -> Manifest:
    """Send one request, with the client's connections and login, and return the JSON that answers it.

    The client's own types stay out of it: they cost more than the call, and drop what they do not know.

    Raises:
        ApiServerUnreachable: if there was no answer, or one that tells nothing.
        Answered: if the API server answered with an error.
    """
    known: Any = api
    headers = {"Accept": accept, "Content-Type": content, "User-Agent": known.user_agent}
    url = known.configuration.host + path + (f"?{urlencode(query)}" if query else "")
    sent = None if body is None else json.dumps(body, separators=(",", ":")).encode()
    try:
        known.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        answer = known.rest_client.pool_manager.request(
            method, url, body=sent, headers=headers, timeout=_TIMEOUT, redirect=False
        )
        found = json.loads(answer.data)
    except (HTTPError, OSError, ValueError) as problem:
        raise ApiServerUnreachable(f"The API server did not answer ({type(problem).__name__}).") from problem
    if answer.status >= _SERVER_ERROR or answer.status == _TOO_MANY:
        raise ApiServerUnreachable(f"The API server cannot answer now ({_message(found, answer)}).")
    if answer.status >= _BAD_REQUEST:
        raise Answered(answer.status, _message(found, answer))
    return dict(found)


def streamed(api: client.ApiClient, path: str, query: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield what answers a GET in pieces as they come: a log, which may be followed for days and be silent for hours.

    Raises:
        ApiServerUnreachable, Answered: as `asked`; the former also where the connection breaks in the middle.
    """
    known: Any = api
    headers = {"Accept": "*/*", "User-Agent": known.user_agent}
    followed = "follow" in query
    timeout = Timeout(connect=5.0, read=None) if followed else _TIMEOUT
    try:
        known.update_params_for_auth(headers, [], ["BearerToken"], path, "GET", None)
        answer = known.rest_client.pool_manager.request(
            "GET",
            f"{known.configuration.host}{path}?{urlencode(query)}",
            headers=headers,
            timeout=timeout,
            redirect=False,
            preload_content=False,
        )
        if answer.status >= _BAD_REQUEST:
            raise Answered(answer.status, _message(_json_of(answer.read()), answer))
        yield from answer.stream(_PIECE)
    except (HTTPError, OSError) as problem:
        raise ApiServerUnreachable(f"The API server did not answer to the end ({type(problem).__name__}).") from problem


def _json_of(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _path(kind: str, namespace: str | None, name: str | None = None) -> str:
    where = "" if namespace is None else f"/namespaces/{quote(namespace)}"
    which = "" if name is None else f"/{quote(name)}"
    return f"/api/v1{where}/{_PLURALS[kind]}{which}"


def _message(found: Any, answer: Any) -> str:
    """The API server's own words; its answers are a Status object, except from what stands before it."""
    message = found.get("message") if isinstance(found, dict) else None
    return str(message or f"{answer.status} {answer.reason}").rstrip(".")
