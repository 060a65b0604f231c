"""What a person's command asks of a cluster, with that person's rights: streams, their events, pods, logs and secrets.

It changes fields of a stream's spec, and its annotations.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from kubernetes import client, config
from kubernetes.client import ApiException

from exactlyonce.control.cluster import GROUP, PLURAL, VERSION
from exactlyonce.errors import Refused, Unreachable
from exactlyonce.launch.api_server import (
    CONFLICT,
    FORBIDDEN,
    JSON_PATCH,
    NOT_FOUND,
    UNAUTHORIZED,
    Answered,
    ApiServer,
    ApiServerUnreachable,
    asked,
    streamed,
)
from exactlyonce.launch.secrets import is_text

_Found = TypeVar("_Found")

_TIMEOUT_SECONDS = 10.0
_EVENTS = 50
_WAITS = "waiting to start"
"""What the kubelet says of a container whose log is asked for before it runs. Source: validateContainerLogStatus."""


class ClusterNotNamed(Refused):
    """There is no kubeconfig, or it has no such context."""


class ReadRefused(Refused):
    """The API server says that this person may not look, or that there is nothing to look at."""


class LogNotYet(ReadRefused):
    """The container has not started, so that there is no log yet."""


class ClusterSilent(Unreachable):
    """The API server did not answer."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream; the same one again counts up."""

    at: datetime | None
    warning: bool
    reason: str
    message: str
    count: int


@dataclass(frozen=True)
class ClusterReader:
    """One cluster as a kubeconfig names it; `namespace` is the one of its context."""

    api: client.ApiClient
    namespace: str

    @classmethod
    def connect(cls, kubeconfig: Path | None = None, context: str | None = None) -> ClusterReader:
        """Return the cluster that kubectl would use with the same options, or the one that this pod runs in.

        Raises:
            ClusterNotNamed: if there is none.
        """
        file = None if kubeconfig is None else str(kubeconfig)
        tools: Any = config
        try:
            api = tools.new_client_from_config(config_file=file, context=context)
            contexts, current = tools.list_kube_config_contexts(config_file=file)
        except config.ConfigException as problem:
            if file is None and context is None:
                return cls._of_this_pod(problem)
            raise ClusterNotNamed(
                f"No cluster can be found ({problem}); name one with --kubeconfig or --context."
            ) from None
        chosen = current if context is None else next(it for it in contexts if it["name"] == context)
        return cls(api, chosen["context"].get("namespace") or "default")

    @classmethod
    def _of_this_pod(cls, problem: Exception) -> ClusterReader:
        tools: Any = config
        try:
            tools.load_incluster_config()
        except config.ConfigException:
            raise ClusterNotNamed(
                f"No cluster can be found ({problem}); set KUBECONFIG, or name a file with --kubeconfig."
            ) from None
        return cls(client.ApiClient(), "default")

    def streams(self, namespace: str | None) -> list[dict[str, Any]]:
        """Return the streams of a namespace, or of all, in the order of their names.

        Raises:
            ReadRefused, ClusterSilent: if they cannot be listed.
        """
        custom: Any = client.CustomObjectsApi(self.api)
        where = "in any namespace" if namespace is None else f"in namespace {namespace}"
        listed = _asked(
            (lambda: custom.list_cluster_custom_object(GROUP, VERSION, PLURAL, _request_timeout=_TIMEOUT_SECONDS))
            if namespace is None
            else (
                lambda: custom.list_namespaced_custom_object(
                    GROUP, VERSION, namespace, PLURAL, _request_timeout=_TIMEOUT_SECONDS
                )
            ),
            f"list streams {where}",
        )
        return sorted(listed["items"], key=lambda it: (it["metadata"]["namespace"], it["metadata"]["name"]))

    def stream(self, namespace: str, name: str) -> dict[str, Any]:
        """Return one stream.

        Raises:
            ReadRefused, ClusterSilent: if it is not there or cannot be read.
        """
        custom: Any = client.CustomObjectsApi(self.api)
        found = _asked(
            lambda: custom.get_namespaced_custom_object(
                GROUP, VERSION, namespace, PLURAL, name, _request_timeout=_TIMEOUT_SECONDS
            ),
            f"read stream {namespace}/{name}",
        )
        return dict(found)

    def events(self, stream: Mapping[str, Any]) -> list[Event]:
        """Return the latest events of a stream, the oldest first; none where they may not be read."""
        core: Any = client.CoreV1Api(self.api)
        metadata = stream["metadata"]
        try:
            selector = f"involvedObject.uid={metadata['uid']}"
            listed = core.list_namespaced_event(
                metadata["namespace"], field_selector=selector, _request_timeout=_TIMEOUT_SECONDS
            )
        except Exception:
            return []
        told = [
            Event(it.last_timestamp or it.event_time, it.type == "Warning", it.reason, it.message, it.count or 1)
            for it in listed.items
        ]
        return sorted(told, key=lambda it: (it.at is not None, it.at))[-_EVENTS:]

    def patch_spec(self, stream: Mapping[str, Any], changes: Mapping[str, Any], what: str) -> dict[str, Any] | None:
        """Change fields of the spec of the very generation that was read, and return the stream; None where it has changed.

        Raises:
            ReadRefused, ClusterSilent: if this person may not, the API server does not take it, or nobody answers.
        """
        fields = [{"op": "add", "path": f"/spec/{field}", "value": value} for field, value in changes.items()]
        return self._patch(stream, "generation", fields, what)

    def annotate(self, stream: Mapping[str, Any], key: str, value: str, what: str) -> dict[str, Any] | None:
        """Set an annotation of the very version that was read, and return the stream; None where it has changed.

        Raises:
            ReadRefused, ClusterSilent: if this person may not, the API server does not take it, or nobody answers.
        """
        made = (
            []
            if stream["metadata"].get("annotations")
            else [{"op": "add", "path": "/metadata/annotations", "value": {}}]
        )
        path = f"/metadata/annotations/{key.replace('/', '~1')}"
        return self._patch(stream, "resourceVersion", [*made, {"op": "add", "path": path, "value": value}], what)

    def person(self) -> str:
        """Return whom the API server takes this person for; empty where it does not say.

        Raises:
            ReadRefused, ClusterSilent: if it does not tell, or nobody answers.
        """
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        found = answered(
            lambda: asked(self.api, "POST", path, body=body), "ask who you are", "create selfsubjectreviews"
        )
        return str(((found.get("status") or {}).get("userInfo") or {}).get("username") or "")

    def _patch(
        self, stream: Mapping[str, Any], same: str, changes: Sequence[Mapping[str, Any]], what: str
    ) -> dict[str, Any] | None:
        """Change a stream whose uid and field `same` of the metadata are those that were read."""
        metadata = stream["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        tests = [{"op": "test", "path": f"/metadata/{field}", "value": metadata[field]} for field in ("uid", same)]
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}/{name}"
        try:
            return asked(self.api, "PATCH", path, body=[*tests, *changes], content=JSON_PATCH)
        except Answered as answer:
            if answer.status == CONFLICT or (
                answer.blames_manifest and self.stream(namespace, name)["metadata"][same] != metadata[same]
            ):
                return None
            raise _told(
                answer, f"{what} stream {namespace}/{name}", f"patch {PLURAL} in namespace {namespace}"
            ) from None
        except ApiServerUnreachable as problem:
            raise ClusterSilent(f"Cannot {what} stream {namespace}/{name}: {problem} It may have been done.") from None

    def pods(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        """Return the pods of a namespace that have these labels.

        Raises:
            ReadRefused, ClusterSilent: if they cannot be listed.
        """
        what = f"list pods in namespace {namespace}"
        return answered(
            lambda: ApiServer(self.api).list("Pod", namespace, selector), what, f"list pods in namespace {namespace}"
        )

    def log(self, namespace: str, pod: str, query: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield the log of a pod in pieces as they come.

        Raises:
            LogNotYet: if the container has not started.
            ReadRefused, ClusterSilent: if it cannot be read, or not to its end.
        """
        what, right = f"read the log of pod {namespace}/{pod}", f"get pods/log in namespace {namespace}"
        try:
            yield from streamed(self.api, f"/api/v1/namespaces/{namespace}/pods/{pod}/log", query)
        except Answered as answer:
            if answer.blames_manifest and _WAITS in str(answer):
                raise LogNotYet(f"Pod {namespace}/{pod} has no such log yet: {answer}.") from None
            raise _told(answer, what, right) from None
        except ApiServerUnreachable as problem:
            raise ClusterSilent(f"Cannot {what}: {problem}") from None

    def secret(self, namespace: str, name: str, field: str) -> dict[str, str]:
        """Return the keys of a secret that a field of a stream names; those that are not text are left out.

        Raises:
            ReadRefused, ClusterSilent: if it is not there, or this person may not read it.
        """
        what = f"read secret {namespace}/{name}, which {field} names"
        found = answered(
            lambda: asked(self.api, "GET", f"/api/v1/namespaces/{namespace}/secrets/{name}"),
            what,
            f"get secret {name} in namespace {namespace}",
        )
        decoded = {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
        return {key: value.decode() for key, value in decoded.items() if is_text(value)}


def answered(call: Callable[[], _Found], what: str, right: str) -> _Found:
    """Return the answer of a call, or raise ReadRefused or ClusterSilent."""
    try:
        return call()
    except Answered as answer:
        raise _told(answer, what, right) from None
    except ApiServerUnreachable as problem:
        raise ClusterSilent(f"Cannot {what}: {problem}") from None


def _told(answer: Answered, what: str, right: str) -> ReadRefused:
    """Turn an answer of the API server into a sentence that says which right is missing, where one is."""
    if answer.status in (UNAUTHORIZED, FORBIDDEN):
        return ReadRefused(f"You may not {what}; ask for the right to {right}.")
    if answer.status == NOT_FOUND:
        return ReadRefused(f"Cannot {what}: it is not there.")
    return ReadRefused(f"Cannot {what}: the API server says: {answer}.")


def _asked(call: Callable[[], Any], what: str) -> Any:
    try:
        return call()
    except ApiException as problem:
        match problem.status:
            case 404 if "list" in what:
                raise ReadRefused(
                    "This cluster knows no ExactlyOnceStreams; install the operator's chart first."
                ) from None
            case 404:
                raise ReadRefused(
                    f"There is no such stream: cannot {what}. `exactlyonce status -A` shows all."
                ) from None
            case 401 | 403:
                raise ReadRefused(f"You may not {what} ({problem.reason}); ask for get and list of {PLURAL}.") from None
            case _:
                raise ClusterSilent(
                    f"Cannot {what}: the API server answered {problem.status} {problem.reason}."
                ) from None
    except Exception as problem:
        raise ClusterSilent(f"Cannot {what}: the API server does not answer ({type(problem).__name__}).") from None
