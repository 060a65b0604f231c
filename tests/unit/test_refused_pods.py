"""A pod that the API server refuses leaves nothing behind that looks like a driver that got lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from exactlyonce.launch.api_server import CONFLICT, FORBIDDEN, Answered, ApiServer
from exactlyonce.launch.kubernetes import KubernetesLauncher, ManifestRefused
from exactlyonce.launch.port import Gone, LaunchFailed, NeverStarted
from exactlyonce.offsets import Epoch
from scripts.make_golden_pods import OWNER_UID
from tests.unit.test_draining_pods import made

FIRST = Epoch(1)
INVALID = 422


@dataclass
class Server:
    """An API server that answers to the creation of a pod with `status`."""

    status: int
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def read(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """Return an object."""
        return self.objects.get((kind, name))

    def create(self, manifest: dict[str, Any]) -> None:
        """Create all but pods."""
        if manifest["kind"] == "Pod":
            raise Answered(self.status, "no service account, no pod")
        self.objects[manifest["kind"], manifest["metadata"]["name"]] = manifest

    def delete(self, found: dict[str, Any], kind: str, grace_seconds: int | None = None) -> None:
        """Delete an object."""
        del self.objects[kind, found["metadata"]["name"]]


def launcher(server: Server) -> KubernetesLauncher:
    return KubernetesLauncher(cast(ApiServer, server), "shop", "orders", OWNER_UID, lambda attempt, brief: made("5m"))


@pytest.mark.parametrize(("status", "error"), [(FORBIDDEN, LaunchFailed), (INVALID, ManifestRefused)])
def test_a_pod_that_is_refused_has_never_been_started(status: int, error: type[Exception]) -> None:
    server = Server(status)
    with pytest.raises(error, match="no service account, no pod"):
        launcher(server).start(FIRST)
    assert isinstance(launcher(server).look(FIRST), NeverStarted)
    assert server.objects == {}


def test_a_pod_that_was_there_a_moment_ago_may_have_run() -> None:
    server = Server(CONFLICT)
    with pytest.raises(LaunchFailed, match="was there and is gone"):
        launcher(server).start(FIRST)
    assert isinstance(launcher(server).look(FIRST), Gone)
