"""What a person's command asks of a cluster about StreamReplays, with that person's rights: create one, and look at it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exactlyonce.api.stream_replay import REPLAY_PLURAL
from exactlyonce.control.cluster import GROUP, VERSION
from exactlyonce.control.cluster_reader import ClusterReader, ClusterSilent, answered
from exactlyonce.launch.api_server import asked


def create_replay(cluster: ClusterReader, document: Mapping[str, Any], *, dry_run: bool) -> dict[str, Any]:
    """Create a StreamReplay and return it; a dry run has the API server check it and stops short of storing it.

    Raises:
        ReadRefused, ClusterSilent: if it is not taken, this person may not, or nobody answers.
    """
    namespace, name = (document["metadata"][key] for key in ("namespace", "name"))
    query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
    try:
        return answered(
            lambda: asked(cluster.api, "POST", _path(namespace), query, document),
            f"create StreamReplay {namespace}/{name}",
            f"create {REPLAY_PLURAL} in namespace {namespace}",
        )
    except ClusterSilent as problem:
        if dry_run:
            raise
        raise ClusterSilent(
            f"{problem} It may have been created: look with `kubectl get streamreplay {name} -n {namespace}` before you repeat "
            "the command."
        ) from None


def read_replay(cluster: ClusterReader, namespace: str, name: str) -> dict[str, Any]:
    """Return a StreamReplay as it is now.

    Raises:
        ReadRefused, ClusterSilent: if it is gone, this person may not look, or nobody answers.
    """
    return answered(
        lambda: asked(cluster.api, "GET", f"{_path(namespace)}/{name}"),
        f"read StreamReplay {namespace}/{name}",
        f"get {REPLAY_PLURAL} in namespace {namespace}",
    )


def _path(namespace: str) -> str:
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{REPLAY_PLURAL}"
