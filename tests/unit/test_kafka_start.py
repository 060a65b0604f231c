"""Where a stream starts that takes over from a consumer group, and what is refused, in one sentence each."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from exactlyonce.connectors.kafka.admin import KafkaAdmin
from exactlyonce.connectors.kafka.bounds import KafkaBounds
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.connectors.kafka.start import Group, where_group_stands
from exactlyonce.errors import GroupUnfit, SourceRefused
from exactlyonce.positions.ranges import Partition, Positions
from exactlyonce.source.port import Bounds, SourceView

ZERO, ONE, TWO = (Partition("orders", number) for number in range(3))


def start(committed: dict[Partition, int], bounds: dict[Partition, Bounds], *members: str) -> Positions:
    return where_group_stands(Group("billing", members, Positions(committed)), bounds, "kafka:9092")


def refusal(committed: dict[Partition, int], bounds: dict[Partition, Bounds], *members: str) -> str:
    with pytest.raises(GroupUnfit) as caught:
        start(committed, bounds, *members)
    return str(caught.value)


def test_a_stream_starts_where_the_group_has_committed_up_to_the_very_end_of_a_partition() -> None:
    bounds = {ZERO: Bounds(2, 9), ONE: Bounds(0, 4), TWO: Bounds(3, 8)}
    assert start({ZERO: 5, ONE: 4, TWO: 3}, bounds) == Positions({ZERO: 5, ONE: 4, TWO: 3})


def test_offsets_of_partitions_that_the_stream_does_not_read_are_not_looked_at() -> None:
    assert start({ZERO: 5, ONE: 99}, {ZERO: Bounds(0, 9)}) == Positions({ZERO: 5})


def test_a_partition_without_a_committed_offset_starts_at_its_end_if_it_is_empty() -> None:
    bounds = {ZERO: Bounds(0, 9), ONE: Bounds(0, 0), TWO: Bounds(7, 7)}
    assert start({ZERO: 5}, bounds) == Positions({ZERO: 5, ONE: 0, TWO: 7})


def test_a_partition_with_records_of_which_the_group_has_committed_no_offset_is_named() -> None:
    bounds = {ZERO: Bounds(0, 9), ONE: Bounds(0, 1), TWO: Bounds(7, 7)}
    assert refusal({ZERO: 5}, bounds) == (
        "Consumer group billing of Kafka at kafka:9092 has committed no offset of orders-1, which holds records; commit one "
        "with kafka-consumer-groups --reset-offsets, or start from Offsets."
    )


def test_a_group_that_has_committed_nothing_of_what_is_read_is_refused_even_if_all_is_empty() -> None:
    assert refusal({Partition("other", 0): 5}, {ZERO: Bounds(0, 0), ONE: Bounds(0, 0)}) == (
        "Consumer group billing of Kafka at kafka:9092 has committed no offset of orders; correct source.kafka.start.group, or "
        "start from Earliest, Latest, Timestamp or Offsets."
    )


@pytest.mark.parametrize("offset", [1, 10])
def test_an_offset_that_the_partition_does_not_hold_is_told_with_what_it_holds(offset: int) -> None:
    assert refusal({ZERO: offset}, {ZERO: Bounds(2, 9)}) == (
        f"Consumer group billing of Kafka at kafka:9092 stands at {offset} in orders-0, and the source holds 2 to 9; commit an "
        "offset within by kafka-consumer-groups --reset-offsets, or start from Offsets."
    )


def test_a_group_with_members_is_refused_and_they_are_named() -> None:
    assert refusal({ZERO: 5}, {ZERO: Bounds(0, 9)}, "app at /10.0.0.7", "app at /10.0.0.8") == (
        "Consumer group billing of Kafka at kafka:9092 has 2 members (app at /10.0.0.7, app at /10.0.0.8): the stream would "
        "process the same records as they do. Stop them, and it starts."
    )


def test_of_many_names_the_first_five_are_shown() -> None:
    bounds = {Partition("orders", number): Bounds(0, 1) for number in range(8)}
    assert "of orders-1, orders-2, orders-3, orders-4, orders-5 and 2 more, which hold records" in refusal(
        {ZERO: 0}, bounds
    )


def test_a_login_that_may_not_see_the_group_is_told_which_right_is_missing() -> None:
    def refused() -> None:
        raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))

    admin = KafkaAdmin("kafka:9092", {"bootstrap.servers": "127.0.0.1:1"}, 1.0)
    with pytest.raises(
        SourceRefused, match=r"Kafka at kafka:9092 refuses: .*grant it DESCRIBE on the consumer group\."
    ):
        admin.named(refused)


def test_a_changed_resource_that_adds_no_partition_needs_the_group_no_more() -> None:
    brokers: Any = object()  # nothing is asked
    document = {
        "bootstrapServers": "kafka:9092",
        "topics": ["orders"],
        "start": {"from": "ConsumerGroup", "group": "billing"},
    }
    source = KafkaBounds(KafkaSource.model_validate(document), {}, admin=brokers)
    view = SourceView({ZERO: Bounds(0, 9)}, {"orders": "id"}, frozenset({ZERO}))
    assert source.start(view, frozenset()) == Positions()
