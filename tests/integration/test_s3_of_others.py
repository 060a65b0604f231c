"""One namespace names the S3 location of another: nothing of it is read, shown, taken over or erased with the operator's login.

The parts are the operator's own, over moto's server. The operator has a login of its own in its environment; ledgers,
sources and drivers are in memory, one set for each namespace.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from exactlyonce.api.conditions import rendered
from exactlyonce.api.resource import ADOPT, FRESH, parse_stream
from exactlyonce.assembly import checkpoint_store
from exactlyonce.checkpoint.generation import read_marker
from exactlyonce.checkpoint.s3 import S3LogStore
from exactlyonce.checkpoint.s3_clients import S3Service
from exactlyonce.checkpoint.store import SizedStore
from exactlyonce.control.deletion import StillErasing
from exactlyonce.control.erase import erase
from exactlyonce.control.operator_locations import NO_LOCATIONS, OperatorLocations, parse_locations
from exactlyonce.control.shared import Shared
from exactlyonce.control.stream_assembly import StreamAssembly
from exactlyonce.launch.driver_document import Image
from exactlyonce.launch.pod_settings import PodDefaults
from exactlyonce.launch.pod_verdict import Outcome, PodVerdict
from exactlyonce.ledger.rows import Owner
from exactlyonce.reconcile.in_pod import Brief, reconcile_in_pod
from exactlyonce.reconcile.loop import Halted, PassResult, StreamLoop, Watching
from exactlyonce.reconcile.observe import Stores
from exactlyonce.reconcile.pass_context import Attempts
from testbed.s3 import S3
from tests.resource_documents import changed, document
from tests.simulation.database import Hooks, MemoryDatabase, MemoryLedger
from tests.simulation.source import MemoryTopic
from tests.unit.passes import KEYS, Drivers, Statuses

BUCKET = "lake"
TOKEN = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with S3(tmp_path_factory.mktemp("s3")) as service:
        service.create_bucket(BUCKET)
        yield service


@pytest.fixture(autouse=True)
def operators_own_login(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the operator's process is given, by its service account or its environment: good for the whole bucket."""
    for key, value in s3.secret().items():
        monkeypatch.setenv(key, value)


class Ledger(MemoryLedger):
    """A ledger in memory that notes which stream it was told to forget."""

    forgotten: tuple[str, ...] = ()

    def forget(self, stream_id: str, owner: Owner) -> None:
        """Note it."""
        self.forgotten = (*self.forgotten, stream_id)


@dataclass
class Clients:
    """Stands for the operator's shared clients: each namespace has a database and a topic of its own."""

    of_ledger: Ledger
    of_source: MemoryTopic

    def ledger(self, *_: Any) -> Ledger:
        """Return the namespace's ledger."""
        return self.of_ledger

    def source(self, *_: Any) -> MemoryTopic:
        """Return the namespace's topic."""
        return self.of_source


@dataclass
class Tenant:
    """One namespace with one stream, and the operator's passes over it."""

    namespace: str
    checkpoint: dict[str, Any]
    secrets: Mapping[str, dict[str, str]]
    locations: OperatorLocations = NO_LOCATIONS
    annotations: dict[str, str] = field(default_factory=dict)
    told: list[tuple[str, str]] = field(default_factory=list)
    sized: list[SizedStore] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ledger = Ledger(MemoryDatabase(Hooks(lambda name: None)))
        self.topic = MemoryTopic(dict.fromkeys(KEYS, 100))
        self.drivers, self.statuses = Drivers(lambda name: None), Statuses(lambda name: None)

    @property
    def resource(self) -> dict[str, Any]:
        """The resource as it is now."""
        changes = {
            "metadata.namespace": self.namespace,
            "metadata.uid": f"uid-of-{self.namespace}",
            "metadata.generation": 1,
            "metadata.resourceVersion": "1",
            "metadata.annotations": self.annotations,
            "spec.checkpoint.s3": self.checkpoint,
            "spec.deletionPolicy": "Delete",
        }
        return changed(document(), changes)

    @property
    def parts(self) -> StreamAssembly:
        """The operator's parts, recreated as by a new operator."""
        warehouse = {"host": "127.0.0.1", "port": "1", "dbname": "shop", "user": "lands", "password": "hidden"}
        known = {"warehouse": warehouse, **self.secrets}
        cluster: Any = SimpleNamespace(
            cluster_id="cluster-1", api=None, secret=lambda namespace, name: known.get(name), stream=lambda key: None
        )
        clients: Any = Clients(self.ledger, self.topic)
        return StreamAssembly(
            cluster,
            PodDefaults("driver", Image("spark")),
            watch=lambda target, checkpoint, _files: self.sized.append(checkpoint) if checkpoint is not None else None,
            shared=Shared(clients=clients),
            locations=self.locations,
        )

    def run_pass(self) -> PassResult:
        """Let the operator do one pass."""
        resource, stream, unused = self.resource, parse_stream(self.resource, "the test"), SimpleNamespace()
        statuses: Any = SimpleNamespace(read=self.statuses.read, document=resource, cluster=unused)
        made = self.parts.of(stream, resource, statuses, self._report)
        made.introduce()
        world = replace(
            made.context, attempts=Attempts(self.drivers, made.context.attempts.check), statuses=self.statuses
        )
        return StreamLoop(stream, world).run_pass()

    def _report(self, kind: str, words: str) -> None:
        self.told.append((kind, words))

    def asks(self, annotation: str, token: str) -> PassResult:
        """Annotate the resource, as a person does, and let the operator try again."""
        self.annotations = {annotation: token}
        self.statuses.status = self.statuses.status.model_copy(update={"phase": "Pending"})
        return self.run_pass()

    def reconciles_in_its_pod(self) -> PodVerdict:
        """Be the init container of the latest attempt, with its brief and the login that this process is given."""
        attempt = max(self.drivers.orders)
        text = self.drivers.orders[attempt].brief
        assert text is not None
        brief = Brief.parse(text)
        stores = Stores(self.ledger, checkpoint_store(brief.stream.spec.checkpoint, lambda reference: {}), self.topic)
        return reconcile_in_pod(stores, brief, attempt)

    def is_deleted(self) -> str | None:
        """Delete the resource with all that it has, and return what the operator says of what it left."""
        while True:
            with suppress(StillErasing):  # a pass does as much as it can in two seconds
                return erase(self.parts, self.resource)

    def shown(self) -> str:
        """All that a person of this namespace is shown: the status with its verdict, and the events."""
        status = rendered(self.statuses.status, self.resource, datetime.now(UTC))
        return json.dumps([status, self.told])


def tenant(s3: S3, namespace: str, location: str, *, login: bool, **options: Any) -> Tenant:
    checkpoint: dict[str, Any] = {"location": location, "endpoint": s3.endpoint, "pathStyle": True}
    if login:
        checkpoint["secretRef"] = {"name": "lake"}
    return Tenant(namespace, checkpoint, {"lake": s3.secret()}, **options)


@pytest.fixture
def location(name: str) -> str:
    return f"s3a://{BUCKET}/checkpoints/shop/{name}"


@pytest.fixture
def owner(s3: S3, location: str) -> Tenant:
    """The namespace whose location it is; its stream has started there, with a login of its own."""
    made = tenant(s3, "shop", location, login=True)
    assert isinstance(made.run_pass(), Watching)
    return made


def objects(s3: S3) -> dict[str, bytes]:
    """Everything in the bucket."""
    client = s3.client()
    listed = client.list_objects_v2(Bucket=BUCKET).get("Contents", ())
    return {entry["Key"]: client.get_object(Bucket=BUCKET, Key=entry["Key"])["Body"].read() for entry in listed}


def token_of(s3: S3, location: str) -> str:
    """Return the token at a location, as only somebody can who may read there."""
    store = S3LogStore(location, S3Service.of(s3.endpoint, None, path_style=True, secret=s3.secret()))
    marker = read_marker(store)
    assert marker is not None
    return marker.token


def allowed(s3: S3, namespaces: str, prefix: str) -> OperatorLocations:
    entry = {"namespaces": [namespaces], "prefixes": [prefix], "endpoint": s3.endpoint}
    return parse_locations(json.dumps([entry]))


@pytest.fixture
def shared(s3: S3) -> OperatorLocations:
    """What a careless administrator allows: every folder of checkpoints to every namespace."""
    return allowed(s3, "*", f"s3a://{BUCKET}/checkpoints")


WITHOUT_A_LOGIN = {"the resource names no secret": None, "its secret holds no login": {"ca.crt": ""}, "it is empty": {}}


@pytest.mark.parametrize("secret", WITHOUT_A_LOGIN.values(), ids=WITHOUT_A_LOGIN.keys())
def test_the_operators_login_reads_and_writes_nothing_that_no_administrator_allowed(
    s3: S3, owner: Tenant, location: str, secret: dict[str, str] | None
) -> None:
    """Not even for somebody who knows the token, and the size of it is not measured either."""
    thief = tenant(s3, "thief", location, login=False)
    if secret is not None:
        thief.secrets = {"own": secret}
        thief.checkpoint["secretRef"] = {"name": "own"}
    before, token = objects(s3), token_of(s3, location)
    assert isinstance(thief.run_pass(), Watching), thief.told
    for annotation in (ADOPT, FRESH):
        thief.drivers.states.clear()
        assert isinstance(thief.asks(annotation, token), Watching), thief.told
    assert all(orders.brief is not None for orders in thief.drivers.orders.values()), "its own pods reconcile"
    assert token not in thief.shown()
    assert thief.sized == []
    left = thief.is_deleted()
    assert objects(s3) == before
    assert left is not None
    assert f"The checkpoint stays in {location}" in left
    assert "checkpoints.locations" in left, "it says what an administrator can change"
    assert thief.ledger.forgotten == ("thief/orders",), "what is its own goes"


def test_what_is_shown_of_a_location_that_another_stream_holds_does_not_help_to_take_it(
    s3: S3, owner: Tenant, location: str, shared: OperatorLocations
) -> None:
    """Both namespaces are allowed the folder, so the marker is all that keeps them apart."""
    thief = tenant(s3, "thief", location, login=False, locations=shared)
    before, token = objects(s3), token_of(s3, location)
    assert isinstance(thief.run_pass(), Halted), thief.told
    assert token not in thief.shown()
    for shown in sorted(set(TOKEN.findall(thief.shown()))) or ["nothing"]:
        for annotation in (ADOPT, FRESH):
            assert isinstance(thief.asks(annotation, shown), Halted), "a token that is shown settles nothing"
    left = thief.is_deleted()
    assert objects(s3) == before
    assert left is not None
    assert "is marked as that of another stream" in left
    assert isinstance(owner.run_pass(), Watching)


def test_a_pod_reconciles_on_s3_with_the_login_that_it_has_and_is_told_no_token_of_another_stream(
    s3: S3, owner: Tenant, location: str, name: str
) -> None:
    own = f"s3a://{BUCKET}/checkpoints/other/{name}"
    alone = tenant(s3, "other", own, login=False)
    alone.run_pass()
    word = alone.reconciles_in_its_pod()
    assert (word.outcome, word.kind) == (Outcome.LAUNCHES, "FirstStart"), word.message
    view = alone.ledger.view("other/orders")
    assert view is not None
    assert token_of(s3, own) == view.stream.token
    thief = tenant(s3, "thief", location, login=False)
    before, token = objects(s3), token_of(s3, location)
    thief.run_pass()
    word = thief.reconciles_in_its_pod()
    assert (word.outcome, word.reason) == (Outcome.HALTS, "LocationTaken"), word.message
    assert token not in word.render()
    assert objects(s3) == before


def test_the_owner_of_a_location_reads_its_token_as_the_halt_says_and_adopts_it(
    s3: S3, owner: Tenant, location: str, shared: OperatorLocations
) -> None:
    """The same resource in a namespace of another name, with a ledger that was lost: the location is its own."""
    moved = tenant(s3, "moved", location, login=True)
    assert isinstance(moved.run_pass(), Halted)
    ((_, words),) = moved.told
    bucket_and_key = location.removeprefix("s3a://") + "/stream.json"
    assert f"aws s3 cp s3://{bucket_and_key} -" in words
    bucket, _, key = bucket_and_key.partition("/")
    read = json.loads(s3.client().get_object(Bucket=bucket, Key=key)["Body"].read())["token"]
    assert isinstance(moved.asks(FRESH, read), Watching), moved.told
    assert token_of(s3, location) != read, "the token is used up"
    assert isinstance(moved.asks(FRESH, read), Watching)


def test_a_location_that_an_administrator_allowed_is_reconciled_measured_and_erased_by_the_operator(
    s3: S3, name: str
) -> None:
    locations = allowed(s3, "team-*", f"s3a://{BUCKET}/checkpoints/{{namespace}}")
    own = f"s3a://{BUCKET}/checkpoints/team-a/{name}"
    made = tenant(s3, "team-a", own, login=False, locations=locations)
    before = objects(s3)
    assert isinstance(made.run_pass(), Watching), made.told
    assert [orders.brief for orders in made.drivers.orders.values()] == [None]
    assert [store.location for store in made.sized] == [own]
    assert set(objects(s3)) > set(before)
    assert made.is_deleted() is None
    assert objects(s3) == before
