"""What one tenant's stores can cost the operator: a bounded time of one worker, and never another tenant's place."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, cast

import pytest

from exactlyonce.api.resource import parse_stream
from exactlyonce.connectors.kafka.connector import KafkaAddress
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.connectors.postgres.connection import Limits, PostgresAddress
from exactlyonce.connectors.postgres.connector import PostgresLedgerAddress
from exactlyonce.connectors.postgres.spec import PostgresSink
from exactlyonce.control import health
from exactlyonce.control.bulkheads import Bulkheads
from exactlyonce.control.guarded_stores import PASS_SECONDS, GuardedLedger, GuardedSource, Opening
from exactlyonce.control.wakeups import Key
from exactlyonce.errors import PassTooLong, StoreBusy
from tests.resource_documents import document
from tests.unit.moved_clock import Clock

KEYS = {"host": "db.example", "port": "5432", "dbname": "shop", "user": "lands", "password": "p"}


KAFKA = KafkaAddress(KafkaSource(bootstrap_servers="kafka:9092", topics=("orders",)), {})


def name_of(namespace: str = "shop", **changes: str) -> str:
    address = PostgresAddress.from_secret("warehouse", {**KEYS, **changes})
    return PostgresLedgerAddress(address, "exactlyonce").store_name(namespace)


def test_no_transaction_of_the_operator_may_take_as_long_as_what_the_liveness_probe_condemns() -> None:
    limits = Limits()
    assert limits.transaction_seconds <= 60
    assert limits.lock_seconds < limits.transaction_seconds, "who waits for a lock is told of the lock"
    assert PASS_SECONDS + limits.longest_seconds < health._STUCK_PASS_SECONDS


def test_a_batch_has_the_time_that_its_resource_gives() -> None:
    stream = parse_stream(document({"spec.sink.postgres.transactionTimeout": "30m"}), "the test")
    limits = Limits.of_batches(cast("PostgresSink", stream.spec.sink.spec))
    assert limits.transaction_seconds == 1800
    assert "Raise sink.postgres.transactionTimeout" in limits.advice
    assert "transactionTimeout" not in Limits().advice, "the operator's own limit is not the resource's to raise"


def test_a_pass_whose_stores_are_slow_all_the_time_is_given_up_between_two_questions() -> None:
    clock = Clock()
    asked: list[str] = []

    class Slow:
        """A ledger that takes nearly as long as it may for each answer, and a source."""

        def view(self, stream_id: str) -> None:
            asked.append(stream_id)
            clock.now += 60

    bulkheads = Bulkheads(4, clock)
    opened: Any = type(
        "Opened", (), {"ledger": Slow(), "at_ledger": bulkheads.store("one"), "at_source": bulkheads.store("two")}
    )
    opening = Opening.for_a_pass(lambda: opened, clock)
    ledger = GuardedLedger(opening)
    begun = clock.now

    def ask_for_ever() -> None:
        while True:
            ledger.view("shop/orders")

    with pytest.raises(PassTooLong, match="answered too slowly for one pass; it will be retried"):
        ask_for_ever()
    assert clock.now - begun <= PASS_SECONDS + 60
    with pytest.raises(PassTooLong):
        GuardedSource("kafka:9092", opening, bulkheads.shown("shop")).view()
    next_pass = GuardedLedger(Opening.for_a_pass(lambda: opened, clock))
    asked.clear()
    next_pass.view("shop/orders")
    assert asked == ["shop/orders"]


def test_a_place_is_named_by_the_server_that_is_connected_to_and_by_whom() -> None:
    assert name_of() == "Postgres lands@db.example:5432 of namespace shop"
    uri = "postgresql://lands:other@DB.example./another"
    assert name_of(uri=uri) == name_of(), "however the secret says it, whatever the database"
    assert name_of(uri="postgresql://lands@b:2,a:1/shop") == name_of(uri="postgresql://lands@a:1,b:2/shop")
    assert (
        len({name_of(), name_of(namespace="web"), name_of(user="reads"), name_of(port="5433"), name_of(host="b")}) == 5
    )


@pytest.mark.parametrize("victim", [name_of("shop"), KAFKA.store_name("shop")])
def test_a_tenant_who_names_anothers_server_takes_none_of_its_places(victim: str) -> None:
    """With the same user and a wrong password, say, at a server that lets wrong logins wait."""
    clock = Clock()
    bulkheads = Bulkheads(4, clock)
    attacker = victim.replace("namespace shop", "namespace evil")
    orders, evil = Key("shop", "orders"), Key("evil", "stream")
    bulkheads.belongs(orders, victim)
    bulkheads.belongs(evil, attacker)
    with ExitStack() as held:
        for _ in range(bulkheads.share):
            held.enter_context(bulkheads.store(attacker).entered())
        clock.now += 10
        assert not bulkheads.may_run(evil, ())
        assert bulkheads.may_run(orders, ())
        with bulkheads.store(victim).entered():
            pass
        with pytest.raises(StoreBusy), bulkheads.store(attacker).entered():
            pass
