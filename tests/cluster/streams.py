"""ExactlyOnceStreams on a real API server, as kubectl sends them, and the definition that they need."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kubernetes import client
from kubernetes.client import ApiException

from exactlyonce.api.resource import KIND
from scripts import generate_crd
from tests.rig import eventually

SECONDS = 30
DEFINITIONS = ("apiextensions.k8s.io", "v1", "customresourcedefinitions")
NOT_FOUND, CONFLICT = 404, 409


class ServerRefused(Exception):
    """The API server refused a resource; the message is its own."""

    def __init__(self, problem: ApiException) -> None:
        answer = json.loads(problem.body or "{}")
        super().__init__(answer["message"])
        self.status = int(problem.status)
        self.reason = str(answer["reason"])


@dataclass(frozen=True)
class Streams:
    """The streams of one namespace; sent with the strict validation of fields that kubectl asks for."""

    api: client.ApiClient
    namespace: str

    def create(self, resource: Mapping[str, Any], *, dry: bool = False) -> dict[str, Any]:
        """Create a stream, or only ask whether it could be."""
        return self._sent("create_namespaced_custom_object", body=resource, **_options(dry))

    def replace(self, resource: Mapping[str, Any], *, dry: bool = False) -> dict[str, Any]:
        """Replace a stream, of a version where the resource names one."""
        name = resource["metadata"]["name"]
        return self._sent("replace_namespaced_custom_object", name=name, body=resource, **_options(dry))

    def replace_status(self, resource: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the status of a stream."""
        name = resource["metadata"]["name"]
        return self._sent("replace_namespaced_custom_object_status", name=name, body=resource, **_options(False))

    def patch(self, name: str, changes: Mapping[str, Any], *, dry: bool = False) -> dict[str, Any]:
        """Merge changes into a stream."""
        return self._sent("patch_namespaced_custom_object", name=name, body=changes, **_options(dry))

    def get(self, name: str) -> dict[str, Any]:
        """Return a stream."""
        return self._sent("get_namespaced_custom_object", name=name)

    def delete(self, name: str) -> None:
        """Delete a stream."""
        self._sent("delete_namespaced_custom_object", name=name)

    def shown(self, name: str) -> dict[str, str]:
        """Return what `kubectl get` shows of a stream; it is the server that makes the table."""
        headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        table = self._sent("get_namespaced_custom_object", name=name, _headers=headers)
        cells = table["rows"][0]["cells"]
        return {column["name"]: str(cell) for column, cell in zip(table["columnDefinitions"], cells, strict=True)}

    def _sent(self, method: str, **arguments: Any) -> dict[str, Any]:
        custom: Any = client.CustomObjectsApi(self.api)
        where = (generate_crd.GROUP, generate_crd.VERSION, self.namespace, generate_crd.PLURAL)
        return _asked(lambda: getattr(custom, method)(*where, _request_timeout=SECONDS, **arguments))


def install(api: client.ApiClient, definition: dict[str, Any]) -> None:
    """Create or replace the definition, and wait until it is served; what replaces an earlier one takes a moment more."""
    custom: Any = client.CustomObjectsApi(api)
    name = definition["metadata"]["name"]
    try:
        before = _asked(lambda: custom.get_cluster_custom_object(*DEFINITIONS, name, _request_timeout=SECONDS))
        metadata = {**definition["metadata"], "resourceVersion": before["metadata"]["resourceVersion"]}
        changed = {**definition, "metadata": metadata}
        _asked(lambda: custom.replace_cluster_custom_object(*DEFINITIONS, name, changed, _request_timeout=SECONDS))
    except ServerRefused as problem:
        if problem.status != NOT_FOUND:
            raise
        _asked(lambda: custom.create_cluster_custom_object(*DEFINITIONS, definition, _request_timeout=SECONDS))
    plural = definition["spec"]["names"]["plural"]
    eventually(lambda: _is_served(api, plural), f"{name} is served")


def make_namespace(api: client.ApiClient, name: str) -> None:
    """Make a namespace unless it is there. The same name may be on its way out: wait until it is gone."""
    core: Any = client.CoreV1Api(api)
    eventually(lambda: not _is_terminating(core, name), f"namespace {name} is gone", 120)
    try:
        core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)), _request_timeout=SECONDS)
    except ApiException as problem:
        if problem.status != CONFLICT:
            raise


def _is_terminating(core: Any, name: str) -> bool:
    try:
        return bool(core.read_namespace(name, _request_timeout=SECONDS).status.phase == "Terminating")
    except ApiException as problem:
        if problem.status != NOT_FOUND:
            raise
        return False


def published_schema(api: client.ApiClient) -> dict[str, Any]:
    """Return the schema of a stream as the server tells it to `kubectl explain`; empty while it does not."""
    path = f"/openapi/v3/apis/{generate_crd.GROUP}/{generate_crd.VERSION}"
    headers = {"Accept": "application/json"}
    request: Any = api.param_serialize("GET", path, header_params=headers, auth_settings=["BearerToken"])
    answer: Any = api.call_api(*request)
    schemas = json.loads(answer.read()).get("components", {}).get("schemas", {})
    return next((dict(found) for name, found in schemas.items() if name.endswith(f".{KIND}")), {})


def _is_served(api: client.ApiClient, plural: str) -> bool:
    custom: Any = client.CustomObjectsApi(api)
    where = (generate_crd.GROUP, generate_crd.VERSION, plural)
    try:
        custom.list_cluster_custom_object(*where, _request_timeout=SECONDS)
    except ApiException as problem:
        if problem.status != NOT_FOUND:
            raise
        return False
    return True


def _options(dry: bool) -> dict[str, str]:
    return {"field_validation": "Strict", **({"dry_run": "All"} if dry else {})}


def _asked(ask: Callable[[], Any]) -> dict[str, Any]:
    try:
        return dict(ask())
    except ApiException as problem:
        raise ServerRefused(problem) from problem
