"""How long a driver's pod may take to end: as its resource says now, not as it said when the pod was made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from exactlyonce.api.resource import parse_stream
from exactlyonce.control.cluster import Cluster
from exactlyonce.control.stream_assembly import StreamAssembly
from exactlyonce.launch.api_server import ApiServer
from exactlyonce.launch.driver_pod import Manifests, manifests_of
from exactlyonce.launch.kubernetes import KubernetesLauncher
from exactlyonce.launch.pod_settings import resolve
from exactlyonce.positions.ranges import Epoch
from scripts.make_golden_pods import DEFAULTS, OWNER_UID
from tests.resource_documents import document

FIRST = Epoch(1)


@dataclass
class OnePod:
    """An API server with the pod of attempt 1; it writes down the grace with which that is deleted."""

    pod: dict[str, Any]
    graces: list[int | None] = field(default_factory=list)

    def read(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """Return the pod."""
        return self.pod if (kind, name) == ("Pod", self.pod["metadata"]["name"]) else None

    def delete(self, found: dict[str, Any], kind: str, grace_seconds: int | None = None) -> None:
        """Write it down."""
        self.graces.append(grace_seconds)


def made(drain_timeout: str) -> Manifests:
    """Return what attempt 1 of a stream with this drain time-out consists of."""
    stream = parse_stream(document({"spec.drainTimeout": drain_timeout}), "the test")
    return manifests_of(resolve(stream, FIRST, OWNER_UID, DEFAULTS))


@pytest.mark.parametrize(("now", "grace"), [("5m", 330), ("20m", 1230), ("1s", 31), ("1500ms", 32)])
def test_a_driver_is_given_the_time_that_its_resource_gives_it_now(
    now: str, grace: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = OnePod(made("5m").pod)
    resource = document({"spec.drainTimeout": now})
    resource["metadata"]["uid"] = OWNER_UID
    monkeypatch.setattr("exactlyonce.control.stream_assembly.ApiServer", lambda api, before_act: server)
    parts = StreamAssembly(cast(Cluster, type("NoCluster", (), {"api": None})()), DEFAULTS)
    parts.launcher_of(resource).drain(FIRST)
    assert server.graces == [grace]


def test_a_pod_keeps_its_own_grace_period_where_none_is_given() -> None:
    server = OnePod(made("5m").pod)
    launcher = KubernetesLauncher(
        cast(ApiServer, server), "shop", "orders", OWNER_UID, lambda attempt, brief: made("5m")
    )
    launcher.drain(FIRST)
    assert server.graces == [None]
