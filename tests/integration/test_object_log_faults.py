"""An object log whose service answers with errors, late, twice or not at all: nothing is lost and nothing doubles.

A proxy stands between the ledger and moto's S3. What counts is read past the proxy: each record once, in one entry.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from exactlyonce.checkpoint.s3 import S3LogStore
from exactlyonce.checkpoint.s3_clients import S3Service
from exactlyonce.checkpoint.store import ObjectStore
from exactlyonce.connectors.object_log.ledger import ObjectLogLedger
from exactlyonce.connectors.object_log.log import CREATE_TRIES, ObjectLog
from exactlyonce.errors import CommitOutcomeUnknown, LedgerUnreachable
from exactlyonce.ledger.fence import Fenced, raise_epoch
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.races import UNKNOWN_TRIES
from exactlyonce.positions.ranges import Epoch
from testbed.faulty_service import Fate, FaultyService, Request
from testbed.s3 import S3
from tests.ledgers import STREAM, new_stream, started
from tests.object_logs import go_on, land, records, visible
from tests.s3_stores import BUCKET

CLIENT_TRIES = 6
"""How often a client sends a request at most whose answer says that the service has trouble."""


class Service:
    """Logs in folders of a bucket."""

    def __init__(self, s3: S3) -> None:
        self.server = s3

    def store(self, endpoint: str, name: str) -> ObjectStore:
        service = S3Service.of(endpoint, None, path_style=True, secret=self.server.secret())
        return S3LogStore(f"s3a://{BUCKET}/{name}", service)

    @staticmethod
    def is_create(request: Request) -> bool:
        return request.method == "PUT" and request.path.endswith(".entry")

    def entries(self, name: str) -> list[bytes]:
        client = self.server.client()
        found = client.list_objects_v2(Bucket=BUCKET, Prefix=f"{name}/").get("Contents", ())
        keys = [item["Key"] for item in found if item["Key"].endswith(".entry")]
        return [client.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys]


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients pause before they send a request again; nothing here depends on how long."""
    monkeypatch.setattr("exactlyonce.aws.calls._FIRST_PAUSE_SECONDS", 0.0)


@pytest.fixture
def service(s3: S3) -> Service:
    return Service(s3)


@pytest.fixture
def proxy(service: Service) -> Iterator[FaultyService]:
    with FaultyService(service.server.port) as made:
        yield made


def ledger_at(endpoint: str, service: Service, name: str, every: int = 4) -> ObjectLogLedger:
    store = service.store(endpoint, name)
    made = ObjectLogLedger(ObjectLog(store, snapshot_every=every, archived_from_bytes=1))
    made.prepare()
    return made


def texts_of(service: Service, name: str) -> Counter[str]:
    """How often each record was written into an entry that is still there."""
    found: Counter[str] = Counter()
    for entry in service.entries(name):
        content = json.loads(entry)["content"]
        groups = [items for table, _, _, items in content["changes"]["groups"] if table == "committable"]
        found.update(text for items in groups for _, text in items)
    return found


def creates_of(proxy: FaultyService, service: Service) -> int:
    return len([request for request in proxy.seen if service.is_create(request)])


def cycling(fates: list[Fate], when: Callable[[Request], bool]) -> Callable[[Request], Fate]:
    """Give these fates in turn to the requests that fit, and answer all others."""
    turn = itertools.cycle(fates)
    return lambda request: next(turn) if when(request) else Fate.ANSWERED


@pytest.mark.parametrize(
    "fate",
    [Fate.REFUSED_500, Fate.THROTTLED, Fate.TAKEN_500, Fate.TAKEN_503, Fate.CUT, Fate.TWICE],
    ids=lambda fate: fate.name,
)
def test_creates_that_are_answered_badly_land_each_batch_in_one_entry(
    proxy: FaultyService, service: Service, name: str, fate: Fate
) -> None:
    """Two of three creates are struck: more than the client itself sends again, so that the log has to."""
    driver = ledger_at(proxy.endpoint, service, name, every=100)
    permit = started(driver)
    proxy.fate = cycling([fate, fate, Fate.ANSWERED], service.is_create)
    for number in range(1, 8):
        land(driver, permit, number)
    assert creates_of(proxy, service) > 7
    assert visible(ledger_at(service.server.endpoint, service, name)) == records(7)
    assert texts_of(service, name) == Counter(records(7))


def test_a_service_that_is_slow_for_every_kind_of_request_costs_time_and_nothing_else(
    proxy: FaultyService, service: Service, name: str
) -> None:
    """Reads, lists, snapshots, archives and deletions are struck as well; whoever is told of an outage tries again."""
    driver = ledger_at(proxy.endpoint, service, name)
    permit = started(driver)
    proxy.fate = cycling(
        [
            Fate.ANSWERED,
            Fate.REFUSED_503,
            Fate.ANSWERED,
            Fate.TAKEN_500,
            Fate.REFUSED_500,
            Fate.THROTTLED,
            Fate.ANSWERED,
        ],
        lambda request: True,
    )
    for number in range(1, 13):
        _until_answered(driver, partial(land, driver, permit, number), number)
    assert visible(ledger_at(service.server.endpoint, service, name)) == records(12)


def _until_answered(ledger: Ledger, act: Callable[[], None], number: int) -> None:
    """Do what a driver and its successors do: look what has landed, and land what has not."""
    for _ in range(20):
        try:
            view = ledger.view(STREAM)
            assert view is not None
            if view.stream.landed_batch == number:
                return
            act()
        except (LedgerUnreachable, CommitOutcomeUnknown):
            continue
        return
    raise AssertionError("the service answers two requests of seven, and nobody came through")


@pytest.mark.parametrize("fate", [Fate.TAKEN_503, Fate.REFUSED_503], ids=lambda fate: fate.name)
def test_a_driver_that_never_gets_an_answer_does_not_know_and_its_successor_does(
    proxy: FaultyService, service: Service, name: str, fate: Fate
) -> None:
    driver = ledger_at(proxy.endpoint, service, name, every=100)
    permit = started(driver)
    land(driver, permit, 1)
    proxy.fate = cycling([fate], service.is_create)
    before = creates_of(proxy, service)
    with pytest.raises(CommitOutcomeUnknown, match=r"no answer came to its create .*SlowDown"):
        land(driver, permit, 2)
    assert creates_of(proxy, service) - before <= CLIENT_TRIES * CREATE_TRIES * 2 * UNKNOWN_TRIES, "it ends by itself"
    successor = ledger_at(service.server.endpoint, service, name, every=100)
    raised = raise_epoch(successor, new_stream(successor), Epoch(2), "ticket")
    assert raised.before is not None
    assert raised.before.landed_batch == (2 if fate is Fate.TAKEN_503 else 1)
    permit = go_on(successor, 3)
    for number in range(raised.before.landed_batch + 1, 5):
        land(successor, permit, number)
    assert visible(successor) == records(4)
    assert texts_of(service, name) == Counter(records(4))


@pytest.mark.parametrize("arrives_first", [False, True], ids=["after its successor", "before its successor"])
def test_a_create_that_arrives_late_lands_once_or_never(
    proxy: FaultyService, service: Service, name: str, arrives_first: bool
) -> None:
    """The driver dies without an answer; its requests are still under way while the next epoch is raised."""
    driver = ledger_at(proxy.endpoint, service, name, every=100)
    old = started(driver)
    land(driver, old, 1)
    proxy.fate = cycling([Fate.LATE], service.is_create)
    with pytest.raises(CommitOutcomeUnknown):
        land(driver, old, 2)
    proxy.fate = lambda request: Fate.ANSWERED
    assert len(proxy.late) > CREATE_TRIES
    if arrives_first:
        assert 200 in proxy.deliver()
    successor = ledger_at(service.server.endpoint, service, name, every=100)
    raised = raise_epoch(successor, new_stream(successor), Epoch(2), "ticket")
    assert raised.before is not None
    assert raised.before.landed_batch == (2 if arrives_first else 1)
    assert not [status for status in proxy.deliver() if status < 400], "every name is taken"
    permit = go_on(successor, 3)
    for number in range(raised.before.landed_batch + 1, 5):
        land(successor, permit, number)
    assert visible(successor) == records(4)
    assert texts_of(service, name) == Counter(records(4))
    with pytest.raises(Fenced):
        land(driver, old, 5)
