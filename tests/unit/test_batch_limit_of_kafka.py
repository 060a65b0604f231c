"""How many offsets a batch of a Kafka source spans at most: what the reader is told, also where the resource sets no limit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce_spark.connectors.kafka.connector import KafkaReader
from tests.decoders import AS_BYTES


def asked(most: int | None = None, **limits: Any) -> str:
    """Return the limit that the reader is given for the first batch and each later one."""
    spec = KafkaSource.model_validate({"bootstrapServers": "a:9092", "topics": ["orders"], **limits})
    session = mock.MagicMock()
    KafkaReader(spec, AS_BYTES, timedelta(seconds=10)).stream(session, 3, most)
    options = session.readStream.format.return_value.options.call_args.kwargs
    return str(options["most"])


def test_a_first_backlog_is_read_a_million_offsets_at_a_time_where_no_limit_is_set() -> None:
    assert asked() == "1000000"


@pytest.mark.parametrize(
    ("limits", "limit"), [({"maxOffsetsPerTrigger": 5_000_000}, "5000000"), ({"maxRatePerPartition": 7}, "210")]
)
def test_a_limit_of_the_resource_takes_the_place_of_the_default(limits: dict[str, int], limit: str) -> None:
    assert asked(**limits) == limit


def test_a_limit_that_was_halved_holds_where_it_is_the_smaller_one() -> None:
    assert (asked(500_000), asked(2_000_000), asked(30, maxOffsetsPerTrigger=40)) == ("500000", "1000000", "30")
