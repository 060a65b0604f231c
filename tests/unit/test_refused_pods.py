"""A pod that the API server refuses leaves nothing behind that looks like a driver that got lost."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import pytest

from exactlyonce.control.incomplete import StreamIncomplete, rehearsing
from exactlyonce.launch.api_server import CONFLICT, FORBIDDEN, Answered, ApiServer
from exactlyonce.launch.kubernetes import KubernetesLauncher
from exactlyonce.launch.port import Gone, LaunchFailed, ManifestRefused, NeverStarted, NotCreated
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.loop import Watching
from scripts.make_golden_pods import OWNER_UID
from tests.unit.passes import STREAM, Machine
from tests.unit.test_draining_pods import made

FIRST = Epoch(1)
INVALID, BAD_REQUEST = 422, 400


@dataclass
class Server:
    """An API server that answers to the creation of a pod with `status`, and creates it where that is None."""

    status: int | None
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def read(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """Return an object."""
        return self.objects.get((kind, name))

    def create(self, manifest: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """Create all but pods; a dry run is answered in the same way and creates nothing."""
        if manifest["kind"] == "Pod" and self.status is not None:
            raise Answered(self.status, "no service account, no pod")
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        found = {**manifest, "metadata": {**manifest["metadata"], "uid": f"uid-of-{kind}"}}
        if not dry_run:
            self.objects[kind, name] = found
        return found

    def list(self, kind: str, namespace: str, selector: str) -> list[dict[str, Any]]:
        """Return the objects of a kind."""
        return [found for (kept, _), found in self.objects.items() if kept == kind]

    def delete(self, found: dict[str, Any], kind: str, grace_seconds: int | None = None) -> None:
        """Delete an object, and the Secret with its owner, as the garbage collector does."""
        del self.objects[kind, found["metadata"]["name"]]
        if kind == "ConfigMap":
            self.objects = {key: value for key, value in self.objects.items() if key[0] != "Secret"}


def launcher(server: Server) -> KubernetesLauncher:
    return KubernetesLauncher(cast(ApiServer, server), "shop", "orders", OWNER_UID, lambda attempt, brief: made("5m"))


@pytest.mark.parametrize(("status", "error"), [(FORBIDDEN, LaunchFailed), (INVALID, ManifestRefused)])
def test_a_pod_that_is_refused_has_never_been_started(status: int, error: type[Exception]) -> None:
    server = Server(status)
    with pytest.raises(error, match="no service account, no pod"):
        launcher(server).start(FIRST)
    assert isinstance(launcher(server).state_of(FIRST), NeverStarted)
    assert server.objects == {}


def test_a_pod_that_was_there_a_moment_ago_may_have_run() -> None:
    server = Server(CONFLICT)
    with pytest.raises(LaunchFailed, match="was there and is gone"):
        launcher(server).start(FIRST)
    assert isinstance(launcher(server).state_of(FIRST), Gone)


def test_a_refused_rehearsal_creates_nothing_and_says_what_the_api_server_said() -> None:
    server = Server(FORBIDDEN)
    with pytest.raises(NotCreated, match=r"Pod shop/orders-driver-1 cannot be created: no service account, no pod\."):
        launcher(server).rehearse(FIRST)
    assert server.objects == {}


@pytest.mark.parametrize("status", [INVALID, BAD_REQUEST, CONFLICT, None])
def test_a_rehearsal_leaves_to_the_attempt_what_is_no_refusal_of_the_moment(status: int | None) -> None:
    """A manifest at fault halts the stream, an admission webhook may not know dry runs, and a name may be taken."""
    server = Server(status)
    launcher(server).rehearse(FIRST)
    assert server.objects == {}


def test_a_pod_that_is_refused_again_and_again_uses_up_no_attempt_and_no_patience() -> None:
    machine, server = Machine(), Server(FORBIDDEN)
    refused: Any = launcher(server)
    machine.drivers, machine.rehearse = refused, rehearsing(lambda: refused.rehearse(FIRST))
    for _ in range(5):
        with suppress(StreamIncomplete):
            machine.run_pass()
        machine.now += timedelta(hours=1)
    status = machine.statuses.status
    assert (status.attempt, status.consecutive_failures.endings, machine.ledger.view(STREAM)) == (0, 0, None)
    server.status = None
    assert machine.run_pass() == Watching(FIRST)
    assert ("Pod", "orders-driver-1") in server.objects
