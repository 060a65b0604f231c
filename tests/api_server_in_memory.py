"""An API server of one namespace over HTTP, as far as a person's command asks it."""

from __future__ import annotations

import base64
import copy
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

Resource = dict[str, Any]


@dataclass
class ApiServerInMemory:
    """What it holds, and what it refuses; a context manager that serves.

    `forbidden` names verbs and kinds such as "get secrets". `before_patch` is what others do just before a patch is made;
    `steps` are changes of the status that the operator makes after one, each seen by one look more. `not_yet` is how often a
    log is not there yet, `on_list` what happens when pods are listed for the nth time. `applied` is what was applied, by its
    path; kinds that are `conflicting` belong to another field manager. `replays` were created, and each look at one shows
    the next of `replay_statuses`; one that `loses_answers` says of none that it was created.
    """

    folder: Path
    streams: dict[str, Resource] = field(default_factory=dict)
    pods: list[Resource] = field(default_factory=list)
    logs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    not_yet: int = 0
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    forbidden: set[str] = field(default_factory=set)
    before_patch: Callable[[Resource], None] = lambda stream: None
    on_list: Callable[[int], object] = lambda looks: None
    looks: int = 0
    steps: list[dict[str, Any]] = field(default_factory=list)
    patched: bool = False
    queries: list[dict[str, list[str]]] = field(default_factory=list)
    namespaces: set[str] = field(default_factory=lambda: {"shop"})
    applied: dict[str, Resource] = field(default_factory=dict)
    conflicting: set[str] = field(default_factory=set)
    replays: dict[str, Resource] = field(default_factory=dict)
    replay_statuses: list[Resource] = field(default_factory=list)
    loses_answers: bool = False

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"held": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig whose context has the namespace shop."""
        file = self.folder / "kubeconfig"
        server = f"http://127.0.0.1:{self._server.server_address[1]}"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": {"server": server}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me", "namespace": "shop"}}],
            "users": [{"name": "me", "user": {"token": "of-a-person"}}],
            "current-context": "it",
        }
        file.write_text(json.dumps(document))
        return file

    def change_spec(self, name: str, **fields: Any) -> None:
        """Change a spec as another person would."""
        stream = self.streams[name]
        stream["spec"] |= fields
        stream["metadata"]["generation"] += 1


class _Answer(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    held: ApiServerInMemory
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answered(self._get)

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Content-Type"] == "application/apply-patch+yaml":
            self._answered(lambda path, query: self._apply(path, query, body))
        else:
            self._answered(lambda path, _query: self._patch(path, body))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answered(lambda path, query: self._create(path, query, body))

    def _create(self, path: list[str], query: dict[str, list[str]], manifest: Resource) -> Any:
        if path[-1] != "streamreplays":
            raise _Answer(404, "the server could not find the requested resource")
        self._allowed("create", "streamreplays")
        self.held.queries.append(query)
        if "dryRun" not in query:
            self.held.replays[manifest["metadata"]["name"]] = manifest
        if self.held.loses_answers:
            raise _Answer(504, "the request did not complete within the allotted timeout")
        return manifest

    def _answered(self, work: Callable[[list[str], dict[str, list[str]]], Any]) -> None:
        parts = urlsplit(self.path)
        try:
            found, status = work(parts.path.strip("/").split("/"), parse_qs(parts.query)), 200
        except _Answer as answer:
            found, status = {"kind": "Status", "message": str(answer)}, answer.status
        content = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _get(self, path: list[str], query: dict[str, list[str]]) -> Any:
        match path:
            case ["apis", _, _, "namespaces", _, "streamreplays", name]:
                self._allowed("get", "streamreplays")
                if self.held.replay_statuses:
                    self.held.replays[name]["status"] = self.held.replay_statuses.pop(0)
                return self.held.replays[name]
            case ["apis", _, _, "namespaces", _, kind, name]:
                self._allowed("get", kind)
                if self.held.patched and self.held.steps:
                    self._stream(name)["status"] |= self.held.steps.pop(0)
                return self._stream(name)
            case ["api", "v1", "namespaces", _, "pods"]:
                self._allowed("list", "pods")
                self.held.looks += 1
                self.held.on_list(self.held.looks)
                wanted = dict(part.split("=") for part in query["labelSelector"][0].split(","))
                pods = [pod for pod in self.held.pods if wanted.items() <= pod["metadata"]["labels"].items()]
                return {"items": pods, "metadata": {}}
            case ["api", "v1", "namespaces", _, "pods", name, "log"]:
                self._allowed("get", "pods/log")
                return self._log(name, query)
            case ["api", "v1", "namespaces", _, "secrets", name]:
                self._allowed("get", "secrets")
                keys = self.held.secrets.get(name)
                if keys is None:
                    raise _Answer(404, f'secrets "{name}" not found')
                return {"data": {key: base64.b64encode(value.encode()).decode() for key, value in keys.items()}}
        raise _Answer(404, "the server could not find the requested resource")

    def _log(self, name: str, query: dict[str, list[str]]) -> bytes:
        self.held.queries.append(query)
        container = query["container"][0]
        if self.held.not_yet > 0:
            self.held.not_yet -= 1
            raise _Answer(400, f'container "{container}" in pod "{name}" is waiting to start: PodInitializing')
        text = self.held.logs[name, container]
        tail = query.get("tailLines")
        return text if tail is None else b"".join(text.splitlines(keepends=True)[-int(tail[0]) :])

    def _apply(self, path: list[str], query: dict[str, list[str]], manifest: Resource) -> Any:
        assert query["fieldManager"]
        *_, namespace, kind, name = path
        assert (manifest["metadata"]["namespace"], manifest["metadata"]["name"]) == (namespace, name)
        self._allowed("patch", kind)
        if namespace not in self.held.namespaces:
            raise _Answer(404, f'namespaces "{namespace}" not found')
        if kind in self.held.conflicting:
            raise _Answer(409, 'Apply failed with 1 conflict: conflict with "kubectl": .rules')
        self.held.applied["/".join(path)] = manifest
        return manifest

    def _patch(self, path: list[str], patch: list[dict[str, Any]]) -> Any:
        assert self.headers["Content-Type"] == "application/json-patch+json"
        name = path[-1]
        self._allowed("patch", path[-2])
        self.held.before_patch(self._stream(name))
        changed = copy.deepcopy(self._stream(name))
        for step in patch:
            *folders, last = step["path"].strip("/").split("/")
            place = changed
            for folder in folders:
                place = place[folder]
            if step["op"] == "test" and place.get(last) != step["value"]:
                raise _Answer(422, "the server rejected our request due to an error in our request")
            if step["op"] == "add":
                place[last] = step["value"]
        if changed["spec"] != self._stream(name)["spec"]:
            changed["metadata"]["generation"] += 1
        self.held.streams[name] = changed
        answer = copy.deepcopy(changed)
        self.held.patched = True
        return answer

    def _stream(self, name: str) -> Resource:
        if name not in self.held.streams:
            raise _Answer(404, f'exactlyoncestreams.exactlyonce.dev "{name}" not found')
        return self.held.streams[name]

    def _allowed(self, verb: str, kind: str) -> None:
        if f"{verb} {kind}" in self.held.forbidden:
            raise _Answer(403, f'{kind} is forbidden: User "me" cannot {verb} resource "{kind}"')


def driver_pod(stream: Mapping[str, Any], attempt: int, phase: str = "Succeeded", uid: str | None = None) -> Resource:
    """Return the pod of an attempt, as far as it is looked at; `uid` is that of its owner, if it is another stream's."""
    from exactlyonce.launch.pod_names import DRIVER, driver_name, labels_of
    from exactlyonce.positions.ranges import Epoch

    name = stream["metadata"]["name"]
    metadata = {
        "name": driver_name(name, Epoch(attempt)),
        "labels": labels_of(name, Epoch(attempt), DRIVER),
        "ownerReferences": [{"uid": uid or stream["metadata"]["uid"]}],
    }
    return {"metadata": metadata, "spec": {"nodeName": "node1"}, "status": {"phase": phase}}
