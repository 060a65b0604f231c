"""Which attempts' ConfigMaps a launcher keeps, and that the spec of one that is kept can be read again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from exactlyonce.api.resource import parse_stream
from exactlyonce.launch.api_server import ApiServer
from exactlyonce.launch.driver_pod import Manifests, manifests_of
from exactlyonce.launch.kubernetes import KubernetesLauncher
from exactlyonce.launch.pod_settings import resolve
from exactlyonce.launch.port import Orders
from exactlyonce.positions.ranges import Epoch
from scripts.make_golden_pods import DEFAULTS, OWNER_UID
from tests.resource_documents import document

Stored = dict[tuple[str, str], dict[str, Any]]


@dataclass
class Server:
    """An API server that keeps what is created, but for pods: theirs are gone."""

    objects: Stored = field(default_factory=dict)

    def create(self, manifest: dict[str, Any], *, dry_run: bool = False) -> None:
        """Create an object."""
        self.objects[manifest["kind"], manifest["metadata"]["name"]] = manifest

    def read(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """Return an object."""
        return self.objects.get((kind, name))

    def list(self, kind: str, namespace: str, selector: str) -> list[dict[str, Any]]:
        """Return the objects of a kind."""
        return [it for (of_kind, _), it in self.objects.items() if of_kind == kind and kind != "Pod"]

    def delete(self, found: dict[str, Any], kind: str, grace_seconds: int | None = None) -> None:
        """Delete an object."""
        del self.objects[kind, found["metadata"]["name"]]


def manifests(attempt: Epoch, orders: Orders) -> Manifests:
    stream = parse_stream(document({"spec.image": f"registry.example/spark:{attempt}"}), "the test")
    return manifests_of(resolve(stream, attempt, OWNER_UID, DEFAULTS, orders))


@pytest.mark.parametrize("keep", [0, 3])
def test_the_spec_that_a_bad_update_is_rolled_back_to_is_kept_whatever_history_says(keep: int) -> None:
    server = Server()
    launcher = KubernetesLauncher(cast(ApiServer, server), "shop", "orders", OWNER_UID, manifests)
    for attempt in range(1, 6):
        launcher.start(Epoch(attempt))
    launcher.clean_up(Epoch(5), keep, good=Epoch(2))
    images = {at: (launcher.spec_of(Epoch(at)) or {}).get("image") for at in range(1, 6)}
    newest = "registry.example/spark:5" if keep else None
    assert images == {1: None, 2: "registry.example/spark:2", 3: None, 4: None, 5: newest}


def test_the_spec_of_another_streams_attempt_is_not_read() -> None:
    server = Server()
    KubernetesLauncher(cast(ApiServer, server), "shop", "orders", OWNER_UID, manifests).start(Epoch(1))
    another = KubernetesLauncher(cast(ApiServer, server), "shop", "orders", "another-uid", manifests)
    assert another.spec_of(Epoch(1)) is None
