"""A request ends by its deadline, whatever a server does: one that sends or takes a byte now and then stops nobody."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import pytest

from exactlyonce.aws.calls import Patience
from exactlyonce.aws.deadlines import SLOWEST_BYTES_PER_SECOND, Budget, budget_of, each_within
from exactlyonce.checkpoint import s3_clients
from exactlyonce.checkpoint.s3_clients import S3Service
from exactlyonce.checkpoint.s3_versions import S3Versions
from exactlyonce.connectors.kinesis import clients as kinesis_clients
from exactlyonce.connectors.kinesis import dynamo_db
from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.lease_table import LeaseTable
from exactlyonce.connectors.kinesis.login import KinesisAddress
from exactlyonce.errors import SourceUnreachable, StoreUnreachable
from exactlyonce.schema.aws_login import AwsLogin
from tests.dripping_server import LENGTH, Drips, dripping

SECONDS = 0.3
LOGIN = AwsLogin("of-a-tenant", "of-a-tenant")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests may take less than a second, and to wait for anything to come much longer."""
    monkeypatch.setattr(s3_clients, "_ANSWER_SECONDS", SECONDS)
    monkeypatch.setattr(s3_clients, "_SLOW", {})
    for module in (kinesis_clients, dynamo_db):
        monkeypatch.setattr(module, "_LIMITS", replace(module._LIMITS, answer_seconds=SECONDS))
    monkeypatch.setattr("exactlyonce.connectors.kinesis.client._PATIENCE", Patience(SECONDS))
    monkeypatch.setattr(dynamo_db, "PATIENCE", Patience(SECONDS))


def folder_at(endpoint: str) -> S3Versions:
    return S3Versions("s3a://lake/x", S3Service.of(endpoint, None, path_style=True, secret=LOGIN.as_secret()))


def read_piece_by_piece(store: S3Versions) -> None:
    with store.reading("a", "1") as file:
        while file.read(1000):
            pass


def fetch(store: S3Versions) -> None:
    with store.fetched("a"):
        pass


S3_CALLS: dict[str, Callable[[S3Versions], object]] = {
    "read": lambda store: store.read("a"),
    "read in pieces": read_piece_by_piece,
    "read by seeking": lambda store: store.seekable("a", "1", LENGTH).read(),
    "fetched": fetch,
    "listed": lambda store: store.list(""),
    "listed with versions": lambda store: list(store.versions(recursive=True)),
    "written": lambda store: store._put("a", b"x" * 1000),
    "removed": lambda store: store.delete(["a"]),
    "measured": lambda store: list(store.sizes()),
}


@pytest.mark.parametrize("what", [Drips.HEADER, Drips.BODY, Drips.FAILURE], ids=lambda it: it.name)
@pytest.mark.parametrize("call", S3_CALLS)
def test_a_bucket_that_drips_bytes_is_given_up(call: str, what: Drips) -> None:
    with dripping(what) as endpoint, pytest.raises(StoreUnreachable, match="there is no answer in time"):
        S3_CALLS[call](folder_at(endpoint))


def test_a_bucket_that_takes_what_is_written_byte_by_byte_is_given_up() -> None:
    with dripping(Drips.REQUEST) as endpoint, pytest.raises(StoreUnreachable, match="there is no answer in time"):
        folder_at(endpoint)._put("a", bytes(16 << 20))


@pytest.mark.parametrize("what", [Drips.HEADER, Drips.BODY, Drips.FAILURE], ids=lambda it: it.name)
def test_a_data_stream_and_a_lease_table_that_drip_bytes_are_given_up(what: Drips) -> None:
    with dripping(what) as endpoint:
        address = KinesisAddress("eu-west-1", endpoint, LOGIN)
        stream = KinesisClient(address, lambda: kinesis_clients._connect(address))
        with pytest.raises(SourceUnreachable, match="there is no answer in time"):
            stream.describe("orders")
        at = dynamo_db.DynamoDbAddress("eu-west-1", endpoint, LOGIN)
        table = LeaseTable(dynamo_db.DynamoDbClient(at, lambda: dynamo_db.connect_to(at)), "app")
        with pytest.raises(StoreUnreachable, match="there is no answer in time"):
            table.leases()


class Now:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_what_a_reader_does_between_two_reads_takes_none_of_the_time() -> None:
    now = Now()
    budget = Budget(10.0, now)
    for _ in range(3):
        with budget.running():
            now.seconds += 3.0
        now.seconds += 1000.0
    with budget.running():
        assert budget.left_seconds() == pytest.approx(1.0)
        now.seconds += 1.0
        assert budget.is_used_up
        with pytest.raises(TimeoutError):
            budget.left_seconds()


def test_each_byte_that_is_moved_adds_what_it_takes_at_the_slowest_rate_and_no_more() -> None:
    now = Now()
    budget = Budget(10.0, now)
    with budget.running():
        for _ in range(100):
            now.seconds += 1.0
            budget.moved(SLOWEST_BYTES_PER_SECOND)
        assert budget.left_seconds() == pytest.approx(10.0)
        now.seconds += 5.0
        budget.moved(1)
        assert budget.left_seconds() == pytest.approx(5.0, abs=0.001)


def test_a_request_has_the_least_of_what_it_may_take_and_what_the_call_has_left() -> None:
    def left() -> float:
        with (budget := budget_of(30.0, Now())).running():
            return budget.left_seconds()

    assert left() == 30.0
    with ExitStack() as stack:
        for most, expected in ((None, 30.0), (10.0, 10.0), (20.0, 10.0), (None, 10.0), (0.0, None)):
            stack.enter_context(each_within(most))
            if expected is None:
                with pytest.raises(TimeoutError):
                    left()
            else:
                assert left() == expected
    assert left() == 30.0
