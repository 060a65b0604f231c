"""A ledger in DynamoDB as a resource names it: whose part of the table it is, with which login, and what is shown of that."""

from __future__ import annotations

from typing import Any

import pytest

from exactlyonce.api.ledger import ledger_of
from exactlyonce.api.resource import Stream, parse_stream
from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import ledger_address, ledger_key
from exactlyonce.control.checkpoint_stores import LocationOutOfReach, require_ledger_in_reach
from exactlyonce.control.operator_locations import NO_LOCATIONS, parse_locations
from exactlyonce.errors import SecretMissing
from tests.resource_documents import document

LOGIN = {"AWS_ACCESS_KEY_ID": "of-shop", "AWS_SECRET_ACCESS_KEY": "hidden"}
ALLOWED = parse_locations('[{"namespaces": ["*"], "prefixes": ["dynamodb://eu-central-1/ledgers/{namespace}"]}]')


def stream_with(name: str = "orders", stream_id: str | None = None, **given: Any) -> Stream:
    ledger = {"dynamoDb": {"table": "ledgers", "region": "eu-central-1", **given}}
    changes: dict[str, Any] = {"spec.sink": {"files": {"path": "/out"}}, "spec.ledger": ledger}
    if stream_id is not None:
        changes["spec.streamId"] = stream_id
    return parse_stream(document(changes, name=name), "the test")


def shown(stream: Stream) -> str:
    return ledger_address(stream.spec, lambda reference: LOGIN).shown


def test_streams_that_share_a_table_have_a_part_each_by_their_ids() -> None:
    assert shown(stream_with()) == "dynamodb://eu-central-1/ledgers/shop/orders"
    assert shown(stream_with("refunds")) == "dynamodb://eu-central-1/ledgers/shop/refunds"
    assert shown(stream_with(stream_id="Orders.1")) == "dynamodb://eu-central-1/ledgers/Orders.1"
    assert shown(stream_with(partitionKey="own/part")) == "dynamodb://eu-central-1/ledgers/own/part"


def test_a_driver_finds_the_part_that_its_operator_has_found() -> None:
    """It is told the spec alone, without the resource's name."""
    stream = stream_with()
    at_driver = StreamSpec.model_validate(stream.spec.differences())
    assert ledger_address(at_driver, lambda reference: LOGIN).shown == shown(stream)


def test_a_ledger_is_known_by_its_part_and_login_and_shows_no_secret() -> None:
    spec = stream_with().spec
    first = ledger_address(spec, lambda reference: LOGIN)
    second = ledger_address(spec, lambda reference: {**LOGIN, "AWS_SECRET_ACCESS_KEY": "new"})
    assert first.key != second.key
    assert first.open()._log is ledger_address(spec, lambda reference: LOGIN).open()._log  # type: ignore[attr-defined]
    assert first.store_name("shop") == "Ledgers at DynamoDB in eu-central-1 table ledgers of namespace shop"
    for text in (repr(first), str(ledger_key(spec, first)), first.space):
        assert "hidden" not in text
        assert "of-shop" not in text


def test_half_a_login_is_refused_and_so_is_a_secret_without_one() -> None:
    """Otherwise a driver whose secret was emptied would use the login of its process."""
    with pytest.raises(
        SecretMissing, match=r"secret ledgers that spec\.ledger\.dynamoDb\.secretRef names holds no login"
    ):
        ledger_address(stream_with(secretRef={"name": "ledgers"}).spec, lambda reference: {"ca.crt": "PEM"})
    half = {"AWS_ACCESS_KEY_ID": "me"}
    told = r"that spec\.ledger\.dynamoDb\.secretRef names holds AWS_ACCESS_KEY_ID alone, which is half a login"
    with pytest.raises(SecretMissing, match=told):
        ledger_address(stream_with().spec, lambda reference: half)
    with pytest.raises(SecretMissing, match=told):
        require_ledger_in_reach(ledger_of(stream_with().spec), "shop", half, ALLOWED)


def test_the_operators_own_login_is_for_the_parts_of_a_table_that_an_administrator_allowed() -> None:
    own, others = stream_with(), stream_with(partitionKey="billing/orders")
    for secret in ({}, {"ca.crt": "PEM"}):
        require_ledger_in_reach(ledger_of(own.spec), "shop", secret, ALLOWED)
        for stream, allowed in ((others, ALLOWED), (own, NO_LOCATIONS)):
            with pytest.raises(
                LocationOutOfReach,
                match=r"may not read the ledger at dynamodb://eu-central-1/ledgers/.*spec\.ledger\.dynamoDb names no login",
            ):
                require_ledger_in_reach(ledger_of(stream.spec), "shop", secret, allowed)
    require_ledger_in_reach(ledger_of(others.spec), "shop", LOGIN, NO_LOCATIONS)
