"""One tenant's stores cannot take the page of metrics from everybody else, whatever they answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from exactlyonce.ledger.connector import TableSize
from exactlyonce.monitor.collector import StreamCollector
from exactlyonce.monitor.monitor import Clients, Monitor
from tests.unit.monitored_stores import NOON, Brokers, Database, target

HALF_A_CHARACTER = "\ud800"
ODD = [-(10**400), 10**400, "1", float("nan"), float("-inf"), None, [1]]


def page_beside(odd: Database, brokers: Brokers) -> str:
    """The whole page of a fleet of two streams, one of which has stores that answer oddly."""
    databases = {"odd": odd, "sound": Database({"shop/b": 1})}
    monitor = Monitor(Clients(lambda key: brokers, lambda key: databases[dict(key.parameters)["dbname"]]))
    monitor.watch(target("a", database="odd"))
    monitor.watch(target("b", database="sound"))
    asyncio.run(monitor.round())
    registry = CollectorRegistry()
    registry.register(StreamCollector(monitor, lambda: True, NOON.timestamp))
    return generate_latest(registry).decode()


@pytest.mark.parametrize("position", ODD, ids=lambda it: repr(it)[:9])
def test_a_position_that_no_page_can_hold_is_left_out_and_the_other_streams_are_there(position: Any) -> None:
    page = page_beside(Database({"shop/a": position}), Brokers({"a": 9, "b": 9}))
    assert 'exactlyonce_stream_lag_records{namespace="shop",stream="b"} 8.0' in page
    assert 'exactlyonce_stream_lag_records{namespace="shop",stream="a"}' not in page


@pytest.mark.parametrize("count", [10**400, "many", float("nan"), HALF_A_CHARACTER], ids=lambda it: ascii(it)[:9])
def test_a_count_that_no_page_can_hold_is_left_out(count: Any) -> None:
    page = page_beside(Database({"shop/a": 1}, more={"failed_records": count}), Brokers({"a": 9, "b": 9}))
    assert 'exactlyonce_stream_lag_records{namespace="shop",stream="b"} 8.0' in page


def test_half_a_character_in_a_name_is_no_reason_for_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Database, "sizes", lambda self, schema: (TableSize(HALF_A_CHARACTER, 1, 10**400),))
    page = page_beside(Database({"shop/a": 1}), Brokers({"a": 9, "b": 9}))
    assert 'table="?"} 1.0' in page
    assert 'exactlyonce_stream_lag_records{namespace="shop",stream="b"} 8.0' in page
