"""The operator's own login reads the data streams that an administrator allowed a namespace, and nothing like them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from exactlyonce.api.resource import parse_stream
from exactlyonce.connectors.kinesis.connector import SOURCE
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.control.checkpoint_stores import LocationOutOfReach, source_in_reach
from exactlyonce.control.namespace_lists import ListUnusable
from exactlyonce.control.operator_sources import NO_SOURCES, OperatorSources, parse_sources
from exactlyonce.control.settings import read_settings
from exactlyonce.schema.places import NamedPlace
from tests.resource_documents import GONE, document

STREAMS = "arn:aws:kinesis:eu-central-1:123456789012:stream/"
TABLES = "dynamodb://eu-central-1/"
LOGIN = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key"}


def allowing(*names: str, namespaces: tuple[str, ...] = ("*",), **also: str) -> OperatorSources:
    """Return what is allowed, from the text that the operator is started with."""
    return parse_sources(json.dumps([{"namespaces": namespaces, "names": names, **also}]))


def test_nothing_is_allowed_by_default() -> None:
    for sources in (NO_SOURCES, parse_sources(""), parse_sources("[]")):
        assert not sources.allow("shop", NamedPlace(f"{STREAMS}orders"))


@pytest.mark.parametrize(
    ("pattern", "namespace", "name", "allowed"),
    [
        (f"{STREAMS}orders", "shop", f"{STREAMS}orders", True),
        (f"{STREAMS}orders", "shop", f"{STREAMS}orders2", False),
        (f"{STREAMS}orders", "shop", f"{STREAMS}Orders", False),
        (f"{STREAMS}orders", "shop", f"{STREAMS}order", False),
        (f"{STREAMS}orders", "shop", f"{STREAMS.replace('central', 'west')}orders", False),
        (f"{STREAMS}orders", "shop", f"{STREAMS.replace('12:', '13:')}orders", False),
        (f"{STREAMS}orders", "shop", "orders", False),
        (f"{STREAMS}orders-*", "shop", f"{STREAMS}orders-eu", True),
        (f"{STREAMS}orders-*", "shop", f"{STREAMS}orders", False),
        (f"{STREAMS}*", "shop", f"{STREAMS}anything", True),
        (f"{STREAMS}*", "shop", STREAMS, False),
        (f"{STREAMS}*", "shop", f"{STREAMS}orders/consumer/app:1", False),
        (f"{STREAMS}*", "shop", f"{STREAMS}orders\n", False),
        (f"{STREAMS}*", "shop", f"{TABLES}anything", False),
        (f"{STREAMS}{{namespace}}.*", "shop", f"{STREAMS}shop.orders", True),
        (f"{STREAMS}{{namespace}}.*", "shop", f"{STREAMS}shop-b.orders", False),
        (f"{STREAMS}{{namespace}}.*", "shop", f"{STREAMS}billing.orders", False),
        (f"{STREAMS}{{namespace}}.*", "shop.b", f"{STREAMS}shop.b.orders", False),
        (f"{STREAMS}{{namespace}}.*", "*", f"{STREAMS}shop.orders", False),
        (f"{STREAMS}orders-{{namespace}}", "shop", f"{STREAMS}orders-shop", True),
        (f"{STREAMS}orders-{{namespace}}", "shop", f"{STREAMS}orders-shop-b", False),
        (f"{STREAMS}{{namespace}}-orders", "shop", f"{STREAMS}shop-orders", True),
        (f"{TABLES}{{namespace}}_leases", "shop", f"{TABLES}shop_leases", True),
        (f"{TABLES}{{namespace}}_leases", "shop", f"{TABLES}billing_leases", False),
        (f"{TABLES}leases", "shop", f"{TABLES}leases/shop", False),
        (f"{TABLES}leases", "shop", f"{STREAMS}leases", False),
    ],
)
def test_a_name_is_allowed_as_it_is_written_and_no_other(
    pattern: str, namespace: str, name: str, allowed: bool
) -> None:
    assert allowing(pattern).allow(namespace, NamedPlace(name)) is allowed


def test_each_entry_is_for_its_own_namespaces_and_its_own_service() -> None:
    sources = allowing(f"{STREAMS}orders", namespaces=("team-*",), endpoint="https://Kinesis:4567/")
    place = NamedPlace(f"{STREAMS}orders", "https://kinesis:4567")
    assert sources.allow("team-a", place)
    assert not sources.allow("shop", place)
    assert not sources.allow("team-a", NamedPlace(place.name))
    assert not sources.allow("team-a", NamedPlace(place.name, "https://kinesis:4567.thief.example"))


@pytest.mark.parametrize(
    "name",
    [
        "orders",
        STREAMS,
        f"{STREAMS}a*b",
        f"{STREAMS}**",
        f"{STREAMS.replace('eu-central-1', '*')}orders",
        f"{STREAMS.replace('123456789012', '')}orders",
        f"{STREAMS}{{namespace}}*",
        f"{STREAMS}{{namespace}}-*",
        f"{STREAMS}{{namespace}}{{namespace}}",
        f"{STREAMS}orders/consumer/app:1",
        "arn:aws:dynamodb:eu-central-1:123456789012:table/leases",
        "dynamodb://{namespace}/leases",
        f"{TABLES}leases/shop",
    ],
)
def test_what_an_administrator_wrote_wrong_is_refused_with_the_field_and_what_to_write(name: str) -> None:
    with pytest.raises(ListUnusable) as refused:
        allowing(name)
    told = str(refused.value)
    assert told.startswith("sources.locations (an administrator sets it): 0.names.0: ")
    assert "write arn:aws:kinesis:region:account:stream/name" in told
    assert "\n" not in told


def test_the_operator_is_started_with_them_and_does_not_start_with_wrong_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variable = "EXACTLYONCE_OPERATOR_SOURCE_LOCATIONS"
    monkeypatch.setenv(variable, json.dumps([{"namespaces": ["shop"], "names": [f"{STREAMS}orders"]}]))
    assert read_settings([]).sources.allow("shop", NamedPlace(f"{STREAMS}orders"))
    monkeypatch.setenv(variable, json.dumps([{"namespaces": ["shop"]}]))
    with pytest.raises(SystemExit):
        read_settings([])
    assert "sources.locations (an administrator sets it): 0.names: " in capsys.readouterr().err
    monkeypatch.delenv(variable)
    assert read_settings([]).sources == NO_SOURCES


@pytest.mark.parametrize(
    ("kinesis", "refused"),
    [
        ({}, None),
        ({"leaseTable": {"tableName": "orders.leases"}}, None),
        ({"leaseTable": {"tableName": "others"}}, f"{TABLES}others"),
        ({"leaseTable": {"tableName": "orders.leases", "region": "eu-west-1"}}, "dynamodb://eu-west-1/orders.leases"),
        ({"leaseTable": {"tableName": "orders.leases", "endpoint": "http://thief"}}, f"{TABLES}orders.leases"),
        ({"endpoint": "http://thief"}, f"{STREAMS}orders"),
        ({"streamArn": f"{STREAMS}others"}, f"{STREAMS}others"),
        ({"streamArn": GONE, "streamName": "orders", "region": "eu-central-1"}, "orders"),
    ],
)
def test_the_operators_own_login_reaches_neither_stream_nor_lease_table_that_nobody_allowed(
    kinesis: dict[str, Any], refused: str | None
) -> None:
    allowed = allowing(f"{STREAMS}orders", f"{TABLES}orders.leases", namespaces=("shop",))
    given = {key: value for key, value in {"streamArn": f"{STREAMS}orders", **kinesis}.items() if value is not GONE}
    changes = {"spec.source.kafka": GONE, "spec.source.kinesis": given}
    source = parse_stream(document(changes), "the test").spec.source
    if refused is None:
        assert source_in_reach(source, "shop", lambda _: {}, allowed).shown == "Kinesis in eu-central-1"
        with pytest.raises(LocationOutOfReach):
            source_in_reach(source, "billing", lambda _: {}, allowed)
    else:
        told = f"The operator may not reach {refused} of Kinesis in eu-central-1"
        with pytest.raises(LocationOutOfReach, match=f"^{re.escape(told)}.*does not allow namespace shop that name"):
            source_in_reach(source, "shop", lambda _: {}, allowed)


def test_a_refusal_names_the_service_that_the_allowed_name_is_not_at() -> None:
    given = {"streamArn": f"{STREAMS}orders", "leaseTable": {"tableName": "leases", "endpoint": "http://tables:8000"}}
    source = parse_stream(document({"spec.source.kafka": GONE, "spec.source.kinesis": given}), "the test").spec.source
    with pytest.raises(
        LocationOutOfReach, match=r"does not allow namespace shop that name at http://tables:8000\. Name"
    ):
        source_in_reach(source, "shop", lambda _: {}, allowing(f"{STREAMS}orders", f"{TABLES}leases"))


def test_what_a_stream_reads_with_a_login_of_its_own_needs_nobodys_leave() -> None:
    spec = KinesisSource.model_validate(
        {
            "streamName": "orders",
            "region": "eu-west-1",
            "secretRef": {"name": "kinesis"},
            "leaseTable": {"tableName": "own"},
        }
    )
    assert SOURCE.address(spec, LOGIN).reached_by_process == ()
