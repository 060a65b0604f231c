"""What a stream commits for the consumer group that shows where it has landed, and what it leaves alone."""

from __future__ import annotations

import pytest

from exactlyonce.connectors.kafka.groups import Committed
from exactlyonce.connectors.kafka.mirror import to_commit
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.errors import GroupUnfit
from exactlyonce.positions.ranges import Partition, Positions

ZERO, ONE = Partition("orders", 0), Partition("orders", 1)
LANDED = Positions({ZERO: 7, ONE: 3})
OURS = "exactlyonce shop/orders"


def committed(found: dict[Partition, Committed], *, takes_over: bool = False) -> dict[Partition, int]:
    return to_commit("shop/orders", LANDED, found, takes_over=takes_over)


def test_a_group_that_shows_nothing_is_given_every_landed_position() -> None:
    assert committed({}) == {ZERO: 7, ONE: 3}


def test_only_what_has_moved_is_committed_and_a_sink_that_was_restored_moves_it_back() -> None:
    assert committed({ZERO: Committed(7, OURS), ONE: Committed(2, OURS)}) == {ONE: 3}
    assert committed({ZERO: Committed(7, OURS), ONE: Committed(9, OURS)}) == {ONE: 3}
    assert committed({ZERO: Committed(7, OURS), ONE: Committed(3, OURS)}) == {}


@pytest.mark.parametrize("takes_over", [False, True])
def test_the_group_of_another_stream_is_left_alone(takes_over: bool) -> None:
    with pytest.raises(GroupUnfit, match="another stream has landed in orders-1: name a group of this stream alone"):
        committed({ZERO: Committed(7, OURS), ONE: Committed(3, "exactlyonce shop/orders-2")}, takes_over=takes_over)


def test_the_offsets_of_a_consumer_are_left_alone_unless_the_stream_has_taken_over_from_it() -> None:
    found = {ZERO: Committed(5, ""), ONE: Committed(3, "")}
    with pytest.raises(
        GroupUnfit, match="a consumer has committed 5 for orders-0: name a group that nothing else uses"
    ):
        committed(found)
    assert committed(found, takes_over=True) == {ZERO: 7, ONE: 3}


def test_a_group_is_taken_over_at_the_brokers_at_which_the_stream_has_started_from_it() -> None:
    def source(brokers: str, start: str) -> KafkaSource:
        given = {"from": "ConsumerGroup", "group": start}
        fields = {"bootstrapServers": brokers, "topics": ["orders"], "start": given, "mirrorOffsets": {"group": "app"}}
        return KafkaSource.model_validate(fields)

    assert source("b1:9092", "app").takes_over == source("b1:9092", "app").shown_in == "group app at b1:9092"
    assert source("b2:9092", "app").takes_over == "group app at b2:9092"
    assert source("b1:9092", "another").takes_over is None
