"""What a pass is put together from: when secrets are read, and that a rotated one gives another login."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from exactlyonce.api.conditions import rendered
from exactlyonce.api.ledger import LedgerInUse
from exactlyonce.api.resource import parse_stream
from exactlyonce.api.status import StreamStatus
from exactlyonce.checkpoint.store import SizedStore
from exactlyonce.connectors.object_log.spec import ObjectLogLedger
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.control.guarded_stores import GuardedLedger, Opened
from exactlyonce.control.incomplete import StreamIncomplete
from exactlyonce.control.pass_ports import PassPorts
from exactlyonce.control.resource_status import ResourceStatus
from exactlyonce.control.stream_assembly import StreamAssembly
from exactlyonce.control.wakeups import Key
from exactlyonce.errors import StoreUnreachable
from exactlyonce.launch.driver_document import Image
from exactlyonce.launch.pod_settings import PodDefaults
from exactlyonce.monitor.targets import Target
from exactlyonce.source.counted_files import FileCounter
from tests.resource_documents import changed, document

KEY = Key("shop", "orders")
RESOURCE = changed(
    document(),
    {
        "metadata.uid": "u-1",
        "metadata.generation": 1,
        "metadata.resourceVersion": "1",
        "spec.checkpoint.s3.secretRef": {"name": "lake"},
    },
)

LOGIN = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hidden"}


@dataclass
class Secrets:
    """An API server that has secrets and counts how often they are read."""

    kept: dict[str, dict[str, str]]
    reads: list[str] = field(default_factory=list)
    api: Any = None
    cluster_id: str = "cluster-1"

    def secret(self, namespace: str, name: str) -> dict[str, str] | None:
        """Return a secret."""
        self.reads.append(name)
        return self.kept.get(name)


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def secrets() -> Secrets:
    warehouse = {"host": "127.0.0.1", "port": "1", "dbname": "shop", "user": "lands", "password": "old"}
    return Secrets({"warehouse": warehouse, "lake": dict(LOGIN)})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watched() -> list[Target]:
    return []


@pytest.fixture
def sized() -> list[SizedStore | None]:
    return []


@pytest.fixture
def put_together(
    secrets: Secrets, clock: Clock, watched: list[Target], sized: list[SizedStore | None]
) -> Callable[..., PassPorts]:
    """Puts the parts of one pass together."""
    cluster: Any = secrets

    def watch(target: Target, checkpoint: SizedStore | None, files: FileCounter | None) -> None:
        watched.append(target)
        sized.append(checkpoint)

    parts = StreamAssembly(cluster, PodDefaults("driver", Image("spark")), watch=watch, clock=clock)

    def made(resource: dict[str, Any] = RESOURCE) -> PassPorts:
        render = lambda status, given: rendered(status, given, NOW)  # noqa: E731 - a word for the line below
        with_status = {**resource, "status": StreamStatus().to_document()}
        statuses = ResourceStatus(cluster, with_status, render, lambda: True)
        return parts.of(parse_stream(resource, "the test"), resource, statuses, lambda kind, words: None)

    return made


@pytest.fixture
def introduced(put_together: Callable[..., PassPorts]) -> Callable[..., PassPorts]:
    """As `put_together`, to the end of the pass."""

    def made(resource: dict[str, Any] = RESOURCE) -> PassPorts:
        parts = put_together(resource)
        parts.introduce()
        return parts

    return made


NOW: Any = None


def opened(parts: PassPorts) -> Opened:
    """Return the stores of a pass, as the first question to one of them opens them."""
    ledger = parts.context.stores.ledger
    assert isinstance(ledger, GuardedLedger)
    return ledger.opening.opened


def password(parts: PassPorts) -> str:
    """Return the password that a pass would log in with."""
    ledger = opened(parts).ledger
    assert isinstance(ledger, PostgresLedger)
    return ledger.address.parameters["password"]


def test_a_pass_that_asks_no_store_reads_no_secret_but_the_first_one_over_a_resource_does(
    introduced: Callable[..., PassPorts], secrets: Secrets, watched: list[Target]
) -> None:
    introduced()
    assert (sorted(secrets.reads), len(watched)) == (["lake", "warehouse"], 1)
    secrets.reads.clear()
    for _ in range(10):
        introduced()
    assert (secrets.reads, len(watched)) == ([], 1)
    introduced(changed(RESOURCE, {"metadata.generation": 2}))
    assert (sorted(secrets.reads), len(watched)) == (["lake", "warehouse"], 2)


def test_a_pass_that_asks_a_store_reads_the_secrets_as_they_are_then(
    put_together: Callable[..., PassPorts], secrets: Secrets
) -> None:
    assert password(put_together()) == "old"
    parts = put_together()
    secrets.kept["warehouse"]["password"] = "new"
    assert password(parts) == "new", "they are read at the first question, not when the pass begins"
    secrets.reads.clear()
    assert password(parts) == "new"
    assert secrets.reads == [], "and once in a pass"


def test_passes_with_the_same_secrets_share_one_ledger_and_another_password_is_another(
    put_together: Callable[..., PassPorts], secrets: Secrets
) -> None:
    first, second = opened(put_together()).ledger, opened(put_together()).ledger
    assert first is second
    secrets.kept["warehouse"]["password"] = "new"
    assert opened(put_together()).ledger is not first


def test_the_monitor_is_told_of_a_rotated_secret_after_a_while(
    introduced: Callable[..., PassPorts], secrets: Secrets, clock: Clock, watched: list[Target]
) -> None:
    introduced()
    secrets.kept["warehouse"]["password"] = "new"
    clock.now += 3600
    introduced()
    assert [dict(target.ledger.parameters)["password"] for target in watched] == ["old", "new"]


def test_a_missing_secret_is_told_before_any_store_is_asked(
    introduced: Callable[..., PassPorts], secrets: Secrets
) -> None:
    del secrets.kept["lake"]
    with pytest.raises(StreamIncomplete, match="Secret shop/lake is not there; create it"):
        introduced()
    secrets.kept["lake"] = dict(LOGIN)
    introduced()
    parts = introduced()
    del secrets.kept["lake"]
    with pytest.raises(StreamIncomplete, match="Secret shop/lake is not there"):
        parts.context.stores.ledger.prepare()


def test_a_checkpoint_on_a_claim_is_reconciled_in_the_pod_and_never_looked_at_from_here(
    put_together: Callable[..., PassPorts],
) -> None:
    claim = {"volume": {"claimName": "lake", "path": "/checkpoints/orders"}}
    parts = put_together(changed(RESOURCE, {"spec.checkpoint": claim}))
    assert parts.context.place.in_pod()
    with pytest.raises(StoreUnreachable, match="reached by the stream's own pods only: it is on a volume"):
        parts.context.stores.checkpoints.list("")
    assert not put_together().context.place.in_pod()


def test_the_monitor_measures_a_checkpoint_with_the_store_that_passes_have_and_none_that_is_on_a_claim(
    introduced: Callable[..., PassPorts], sized: list[SizedStore | None]
) -> None:
    parts = introduced()
    assert [None if store is None else store.location for store in sized] == ["s3a://lake/checkpoints/orders"]
    of_a_pass = opened(parts).checkpoints
    assert isinstance(of_a_pass, SizedStore)
    assert sized[0] is of_a_pass
    claim = {"volume": {"claimName": "lake", "path": "/checkpoints/orders"}}
    introduced(changed(RESOURCE, {"spec.checkpoint": claim, "metadata.generation": 2}))
    assert sized[1:] == [None]


def test_a_ledger_that_the_operator_may_not_reach_is_not_opened(
    introduced: Callable[..., PassPorts], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No stream of a sink that holds its ledger has one in a folder, so that one is put in its place."""
    log = ObjectLogLedger(location="s3a://lake/ledger")
    in_use = LedgerInUse("object_log", log, "spec.ledger.objectLog", log.folder)
    monkeypatch.setattr("exactlyonce.control.stream_assembly.ledger_of", lambda spec: in_use)
    with pytest.raises(
        StreamIncomplete, match=r"may not read the ledger at s3a://lake/ledger: spec\.ledger\.objectLog names no"
    ):
        introduced()


def test_a_path_without_a_claim_is_refused_with_what_to_do(introduced: Callable[..., PassPorts]) -> None:
    with pytest.raises(StreamIncomplete, match=r"give checkpoint\.s3, or checkpoint\.volume with the claim"):
        introduced(changed(RESOURCE, {"spec.checkpoint": {"local": {"path": "/checkpoints/orders"}}}))
