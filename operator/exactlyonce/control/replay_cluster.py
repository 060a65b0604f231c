"""What the passes over StreamReplays ask of the API server. Blocking; each call has a time limit."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exactlyonce.api.resource import API_VERSION
from exactlyonce.api.stream_replay import REPLAY_KIND, REPLAY_PLURAL
from exactlyonce.control.cluster import GROUP, VERSION, Cluster, ClusterRefused, ClusterUnreachable, told_by
from exactlyonce.control.replay_keys import replays_of
from exactlyonce.control.replay_resource import is_finished, stream_named_by
from exactlyonce.control.wakeups import Key
from exactlyonce.launch.api_server import CONFLICT, NOT_FOUND, Answered, ApiServerUnreachable, asked
from exactlyonce.reconcile.loop import StatusConflict

log = logging.getLogger("exactlyonce.operator")

_PAGE = 10  # each may have 1.4 MB, of which no more than a page is in memory
_KEPT_OF_ENDED = ("phase", "message", "attempt", "startedAt", "endedAt", "records")
_WHAT = "all StreamReplays"


@dataclass(frozen=True)
class ReplayCluster:
    """StreamReplays of one cluster; safe to use from several threads."""

    cluster: Cluster

    def stream(self, key: Key, selector: str = "") -> dict[str, Any] | None:
        """Return a stream as it is now, or None where there is none, or none with the labels of `selector`."""
        return self.cluster.stream(key, selector)

    def replays(self, stream: Key) -> list[dict[str, Any]]:
        """Return every StreamReplay that names a stream, with its kind; of a finished one, no more than is asked of it."""
        found = self._listed(f"/namespaces/{stream.namespace}")
        return [_ended(it) if is_finished(it) else it for it in found if stream_named_by(it) == stream.name]

    def keys(self, namespaces: Sequence[str]) -> list[Key]:
        """Return the keys of the streams that have a replay which is not finished; of all namespaces where none is named.

        Where they cannot be listed there are none: streams are found by the same sweep and are run all the same. An API server
        without the definition answers with a text that is no JSON.
        """
        try:
            keys = {
                replays_of(Key(document["metadata"]["namespace"], stream_named_by(document)))
                for place in _places(namespaces)
                for document in self._listed(place)
                if not is_finished(document)
            }
        except (ClusterRefused, ClusterUnreachable) as problem:
            log.warning("StreamReplays cannot be listed, and streams are run all the same: %s", problem)
            return []
        return sorted(keys)

    def can_be_watched(self, namespaces: Sequence[str]) -> bool:
        """Whether the definition is installed and the role has the right to list; where not, a watch would end the operator.

        Whoever has made the operator's role or installs the definitions by hand may not have either yet.
        """
        try:
            for place in _places(namespaces):
                asked(self.cluster.api, "GET", _path(place), {"limit": 1})
        except (Answered, ApiServerUnreachable) as problem:
            log.warning(
                "StreamReplays are not watched, but looked for each minute: they cannot be listed (%s).", problem
            )
            return False
        return True

    def put_status(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the status of the very version that `document` names and return the resource.

        Raises:
            StatusConflict: if the resource has changed since, or is gone.
        """
        metadata = document["metadata"]
        place = f"/namespaces/{metadata['namespace']}"
        what = f"StreamReplay {metadata['namespace']}/{metadata['name']}"
        try:
            return asked(self.cluster.api, "PUT", f"{_path(place)}/{metadata['name']}/status", body=document)
        except (Answered, ApiServerUnreachable) as problem:
            if isinstance(problem, Answered) and problem.status in (CONFLICT, NOT_FOUND):
                raise StatusConflict(f"{what} has changed since it was read; looking again.") from problem
            raise told_by(problem, what) from problem

    def put_stream_status(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the status of the very version of a stream that `document` names and return the stream."""
        return self.cluster.put_status(document)

    def create(self, document: Mapping[str, Any]) -> bool:
        """Create a replay; False where there is one of that name already, which is left as it is."""
        metadata = document["metadata"]
        try:
            asked(self.cluster.api, "POST", _path(f"/namespaces/{metadata['namespace']}"), body=document)
        except (Answered, ApiServerUnreachable) as problem:
            if not isinstance(problem, Answered) or problem.status != CONFLICT:
                raise told_by(problem, f"StreamReplay {metadata['namespace']}/{metadata['name']}") from problem
            return False
        return True

    def delete(self, document: Mapping[str, Any]) -> None:
        """Remove the very replay that was read; one that is gone by now, or is another, is left as it is."""
        metadata = document["metadata"]
        path = f"{_path('/namespaces/' + metadata['namespace'])}/{metadata['name']}"
        options = {"preconditions": {"uid": metadata["uid"]}, "propagationPolicy": "Background"}
        try:
            asked(self.cluster.api, "DELETE", path, body=options)
        except (Answered, ApiServerUnreachable) as problem:
            if not isinstance(problem, Answered) or problem.status not in (CONFLICT, NOT_FOUND):
                raise told_by(problem, f"StreamReplay {metadata['namespace']}/{metadata['name']}") from problem

    def tell(self, document: Mapping[str, Any], reason: str, message: str, *, warning: bool) -> None:
        """Record an event of a replay. Events are told, never relied on."""
        self.cluster.tell(document, reason, message, warning=warning)

    def _listed(self, place: str) -> Iterator[dict[str, Any]]:
        query: dict[str, Any] = {"limit": _PAGE}
        while True:
            try:
                page = asked(self.cluster.api, "GET", _path(place), query)
            except Answered as answer:
                if answer.status == NOT_FOUND:  # the definition is not installed: there are none
                    return
                raise told_by(answer, _WHAT) from answer
            except ApiServerUnreachable as problem:
                raise told_by(problem, _WHAT) from problem
            for item in page["items"] or ():
                yield {**item, "apiVersion": API_VERSION, "kind": REPLAY_KIND}
            query["continue"] = page["metadata"].get("continue") or ""
            if not query["continue"]:
                return


def _ended(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a finished replay without its SQL, its ids and what it has shown: there may be many of a stream."""
    status = document.get("status") or {}
    return {
        **{key: document[key] for key in ("apiVersion", "kind")},
        "metadata": {key: value for key, value in document["metadata"].items() if key != "managedFields"},
        "spec": {"stream": stream_named_by(document)},
        "status": {key: status[key] for key in _KEPT_OF_ENDED if key in status},
    }


def _places(namespaces: Sequence[str]) -> list[str]:
    return [f"/namespaces/{namespace}" for namespace in namespaces] or [""]


def _path(place: str) -> str:
    return f"/apis/{GROUP}/{VERSION}{place}/{REPLAY_PLURAL}"
