"""A stream may come to have several sources: the key of each will be the beginning of its origins, so none of today has one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from exactlyonce.connectors.registry import SOURCES

OF_A_NAMED_SOURCE = re.compile(r"[a-z0-9-]+/")
"""How the origins of a source with a name will begin: docs/adr/0027."""

SPECS: dict[str, list[dict[str, Any]]] = {
    "kafka": [
        {"bootstrapServers": "kafka:9092", "topics": ["orders", "a-b.c_D"]},
        {"bootstrapServers": "kafka:9092", "assign": [{"topic": "orders", "partitions": [0]}]},
    ],
    "kinesis": [
        {"streamName": "orders", "region": "eu-central-1"},
        {"streamArn": "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"},
    ],
    "files": [{"path": "/data/orders"}, {"path": "file:///data/orders"}, {"path": "s3a://lake/data/orders"}],
}
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("kafka", {"bootstrapServers": "kafka:9092", "topics": ["payments/orders"]}),
    ("kafka", {"bootstrapServers": "kafka:9092", "assign": [{"topic": "payments/orders", "partitions": [0]}]}),
    ("kinesis", {"streamName": "payments/orders", "region": "eu-central-1"}),
    ("kinesis", {"streamArn": "arn:aws:kinesis:eu-central-1:123456789012:stream/payments/orders"}),
    ("files", {"path": "payments/orders"}),
]
"""What would have such an origin if the resource let it."""


@pytest.mark.parametrize("source", SOURCES)
def test_no_origin_of_a_source_is_one_of_a_source_with_a_name(source: str) -> None:
    for fields in SPECS[source]:
        selection = SOURCES[source].model_validate(fields).selection()
        origins = {*selection.origins, *(partition.origin for partition in selection.partitions)}
        assert origins
        assert not [origin for origin in origins if OF_A_NAMED_SOURCE.match(origin)]


@pytest.mark.parametrize(("source", "fields"), REFUSED)
def test_what_would_have_such_an_origin_is_refused(source: str, fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SOURCES[source].model_validate(fields)
