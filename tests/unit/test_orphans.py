"""Driver pods whose stream is gone are let go; those of a stream that is there are not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from exactlyonce.control.orphans import release_orphans
from exactlyonce.control.wakeups import Key

KEY = Key("shop", "orders")


@dataclass
class Pods:
    """An API server with a driver's pod and an executor's."""

    released: list[str] = field(default_factory=list)

    def list(self, kind: str, namespace: str, selector: str) -> list[dict[str, Any]]:
        """Return both."""
        assert (kind, namespace, selector) == ("Pod", "shop", "exactlyonce.dev/stream=orders")
        roles = ("driver", "executor")
        return [{"metadata": {"name": role, "labels": {"exactlyonce.dev/role": role}}} for role in roles]

    def remove_finalizer(self, pod: dict[str, Any], finalizer: str) -> None:
        """Write it down."""
        self.released.append(f"{pod['metadata']['name']} {finalizer}")


@dataclass
class Streams:
    """A cluster in which there is a stream, or none."""

    found: dict[str, Any] | None
    api: Any = None

    def stream(self, key: Key) -> dict[str, Any] | None:
        """Return it, whatever its labels are."""
        assert key == KEY
        return self.found


@pytest.mark.parametrize(("found", "released"), [(None, ["driver exactlyonce.dev/ending-recorded"]), ({}, [])])
def test_pods_are_let_go_once_their_stream_is_gone(
    found: dict[str, Any] | None, released: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pods, streams = Pods(), Streams(found)
    monkeypatch.setattr("exactlyonce.control.orphans.ApiServer", lambda api, before_act: pods)
    cluster: Any = streams
    release_orphans(cluster, lambda: True, KEY)
    assert pods.released == released
