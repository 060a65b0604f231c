"""Tokens for Amazon MSK, held against what Amazon's own signer makes of the same login at the same moment."""

from __future__ import annotations

from datetime import datetime

import botocore.auth
import pytest

from exactlyonce.aws.signed_addresses import Signer
from exactlyonce.connectors.kafka.connector import KafkaAddress
from exactlyonce.connectors.kafka.properties import MSK_REGION, librdkafka_properties
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.connectors.kafka.tokens import token, with_tokens
from exactlyonce.control.operator_sources import parse_sources
from exactlyonce.errors import SecretMissing
from exactlyonce.schema.aws_login import AwsLogin
from exactlyonce.schema.places import NamedPlace

OF_AMAZONS_SIGNER = (
    "aHR0cHM6Ly9rYWZrYS5ldS1jZW50cmFsLTEuYW1hem9uYXdzLmNvbS8_QWN0aW9uPWthZmthLWNsdXN0ZXIlM0FDb25uZWN0JlgtQW16LUFsZ29yaXRobT1BV1M0"
    "LUhNQUMtU0hBMjU2JlgtQW16LUNyZWRlbnRpYWw9QUtJREVYQU1QTEUlMkYyMDI2MTEyNyUyRmV1LWNlbnRyYWwtMSUyRmthZmthLWNsdXN0ZXIlMkZhd3M0X3Jl"
    "cXVlc3QmWC1BbXotRGF0ZT0yMDI2MTEyN1QxMjAwMDBaJlgtQW16LUV4cGlyZXM9OTAwJlgtQW16LVNpZ25lZEhlYWRlcnM9aG9zdCZYLUFtei1TZWN1cml0eS1U"
    "b2tlbj1zZXNzaW9uJlgtQW16LVNpZ25hdHVyZT03ZWY0MDJiOGQ1OTdlNTEwNDkyMWJkZmFkYjAwZTBiOTBhYmJiN2IxN2Q5ZmQ2OTFhZTg1MTM3Mjk5ZTcxZjJi"
    "JlVzZXItQWdlbnQ9ZXhhY3RseW9uY2U"
)
"""Made by aws-msk-iam-sasl-signer-python 1.0.2 with the name of this product as its user agent."""
_CLUSTER = "orders.abc123.c2.kafka.eu-central-1.amazonaws.com"
SERVERS = f"b-1.{_CLUSTER}:9098,b-2.{_CLUSTER}:9098"
LOGIN = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret\n", "AWS_SESSION_TOKEN": "session"}
MSK = {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}


def spec(servers: str = SERVERS, *, secret: bool = True) -> KafkaSource:
    given = {"bootstrapServers": servers, "topics": ["orders"], "properties": MSK}
    return KafkaSource.model_validate({**given, **({"secretRef": {"name": "msk"}} if secret else {})})


@pytest.fixture
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sign at one moment."""
    moment = datetime(2026, 11, 27, 12)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: moment)


@pytest.mark.usefixtures("noon")
def test_a_token_is_what_amazons_own_signer_makes_and_says_when_it_ends() -> None:
    signer = Signer(AwsLogin("AKIDEXAMPLE", "secret", "session"))
    assert token("eu-central-1", signer) == (OF_AMAZONS_SIGNER, 1795781700.0)


@pytest.mark.usefixtures("noon")
def test_a_client_is_given_tokens_and_no_key() -> None:
    properties = with_tokens(librdkafka_properties(spec(), LOGIN))
    make = properties.pop("oauth_cb")
    assert make("") == (OF_AMAZONS_SIGNER, 1795781700.0)
    assert properties["sasl.mechanism"] == "OAUTHBEARER"
    assert "secret" not in str(properties)
    assert with_tokens({"sasl.mechanism": "PLAIN"}) == {"sasl.mechanism": "PLAIN"}


def test_without_a_secret_the_login_is_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {**LOGIN, "AWS_ACCESS_KEY_ID": "OFTHEPROCESS"}.items():
        monkeypatch.setenv(key, value.strip())
    shared = librdkafka_properties(spec(secret=False), {})
    assert shared[MSK_REGION] == "eu-central-1"
    text, _ = with_tokens(shared)["oauth_cb"]("")
    assert text != OF_AMAZONS_SIGNER


def test_a_secret_without_a_login_is_not_passed_over_for_that_of_the_process() -> None:
    with pytest.raises(SecretMissing, match="Secret msk lacks AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        librdkafka_properties(spec(), {"ca.crt": "…"})
    with pytest.raises(SecretMissing, match="half a login"):
        librdkafka_properties(spec(), {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE"})


@pytest.mark.parametrize(
    ("servers", "region"),
    [
        ("boot-abc123.c1.kafka-serverless.us-east-1.amazonaws.com:9098", "us-east-1"),
        ("b-1.orders.abc123.c2.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
    ],
)
def test_the_region_is_the_one_that_brokers_name(servers: str, region: str) -> None:
    assert librdkafka_properties(spec(servers), LOGIN)[MSK_REGION] == region


def test_brokers_of_two_regions_are_refused() -> None:
    """Brokers that name no region are refused in the resource: tests/resource_cases.py."""
    two = f"{SERVERS},b-1.orders.abc123.c2.kafka.us-east-1.amazonaws.com:9098"
    with pytest.raises(
        SecretMissing, match="does not name the region of one MSK cluster; write its bootstrap servers as"
    ):
        librdkafka_properties(spec(two), LOGIN)


def test_what_the_operator_reaches_with_its_own_login_is_named_for_who_allows_it() -> None:
    assert KafkaAddress(spec(secret=False), {}).reached_by_process == (
        NamedPlace("msk://orders.abc123.c2.kafka.eu-central-1.amazonaws.com"),
    )
    assert KafkaAddress(spec(), LOGIN).reached_by_process == ()
    allowed = parse_sources(
        '[{"namespaces": ["shop"], "names": ["msk://orders.abc123.c2.kafka.eu-central-1.amazonaws.com"]}]'
    )
    (place,) = KafkaAddress(spec(secret=False), {}).reached_by_process
    assert allowed.allow("shop", place)
    assert not allowed.allow("other", place)
    (of_another,) = KafkaAddress(spec(SERVERS.replace("orders", "bills"), secret=False), {}).reached_by_process
    assert not allowed.allow("shop", of_another)
