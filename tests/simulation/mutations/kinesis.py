"""Mutations of what keeps a Kinesis stream whole: lineage, ends of shards, positions inside records, gaps, another life."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from exactlyonce.connectors.kinesis import bounds, start
from exactlyonce.connectors.kinesis.bounds import KinesisBounds
from exactlyonce.connectors.kinesis.look_back import tip_of
from exactlyonce.connectors.kinesis.positions import (
    SHARD_END,
    TRIM_HORIZON,
    InsideRecord,
    UserRecord,
    position_after_record,
    read_from,
)
from exactlyonce.connectors.kinesis.shard_reader import Fetched, ShardReader
from exactlyonce_spark.connectors.kinesis import lineage, records
from exactlyonce_spark.connectors.kinesis.lineage import Lineage
from exactlyonce_spark.connectors.kinesis.read_ahead import Cut, ReadAhead


@contextmanager
def children_are_read_before_their_parents_end() -> Iterator[None]:
    """Kinesis: a shard that two were merged into is read once one of the two has been read to its end."""

    def appearing(it: Lineage) -> tuple[str, ...]:
        return tuple(
            shard.id
            for shard in it.listed
            if shard.id not in it.starts and any(it.starts.get(parent) == SHARD_END for parent in shard.parents)
        )

    with mock.patch.object(Lineage, "appearing", property(appearing)):
        yield


@contextmanager
def a_batch_inside_an_aggregate_continues_behind_it() -> Iterator[None]:
    """Kinesis: where a batch ended inside an aggregate, the next one continues at the next record."""
    users = records._users

    def behind(place: Any, part: Any, start: int, end: int, keeps: Any) -> Any:
        inside = read_from(start)
        first = position_after_record(inside.sequence_number) if isinstance(inside, InsideRecord) else start
        return (user for user in users(place, part, start, end, keeps) if user.record.position >= first)

    with mock.patch.object(records, "_users", behind):
        yield


@contextmanager
def the_end_of_a_shard_is_not_recorded() -> Iterator[None]:
    """Kinesis: a shard that was read to its end stands behind its last record, as an open one does."""
    accept = ShardReader._accept

    def open_for_ever(reader: ShardReader, page: Any) -> Fetched:
        before = reader._position
        fetched = accept(reader, page)
        if not fetched.at_end:
            return fetched
        last = position_after_record(fetched.records[-1].sequence_number) if fetched.records else before
        reader._position = last
        return replace(fetched, position=last)

    with mock.patch.object(ShardReader, "_accept", open_for_ever):
        yield


@contextmanager
def a_parent_that_is_listed_again_is_read_again() -> Iterator[None]:
    """Kinesis: a shard that was read, and was not listed for a while, counts as one that follows when it is listed again."""
    with mock.patch.object(lineage, "ancestors_of", lambda shards, names: frozenset()):
        yield


@contextmanager
def a_shard_appears_before_its_descendants_are_listed() -> Iterator[None]:
    """Kinesis: a shard that was read, and is listed again before what was made of it is, counts as one that follows."""
    with mock.patch.object(Lineage, "_whole", property(lambda it: frozenset(shard.id for shard in it.listed))):
        yield


@contextmanager
def a_gap_of_retention_is_not_noticed() -> Iterator[None]:
    """Kinesis: a read behind a record that has expired continues with the oldest one that is left."""
    with (
        mock.patch.object(ShardReader, "_was_at_tip", lambda self: True),
        mock.patch.object(bounds, "is_whole_behind", lambda *arguments: True),
    ):
        yield


@contextmanager
def the_oldest_record_of_a_shard_is_read_before_it_is_named() -> Iterator[None]:
    """Kinesis: the first batch of a shard has records, and nothing says which was the first one when it was planned."""
    cut = ReadAhead.cut

    def with_records(ahead: ReadAhead, records: int, size_bytes: int) -> Cut:
        start = ahead.start
        ahead.start = start or 1
        try:
            found = cut(ahead, records, size_bytes)
            return replace(found, position=start) if found.position == 1 else found
        finally:
            ahead.start = start

    with mock.patch.object(ReadAhead, "cut", with_records):
        yield


@contextmanager
def a_stream_that_was_recreated_is_taken_for_the_same() -> Iterator[None]:
    """Kinesis: a stream is known by its name, whenever it was created."""
    with mock.patch.object(KinesisBounds, "_created", lambda self: "at some time"):
        yield


@contextmanager
def a_start_at_the_latest_skips() -> Iterator[None]:
    """Kinesis: a start at Latest is somewhat behind the newest record, as a number made from the time would be."""

    def later(*arguments: Any) -> int:
        tip = tip_of(*arguments)
        return tip if tip in (TRIM_HORIZON, SHARD_END) else tip + UserRecord(1 << 42).position

    with mock.patch.object(start, "tip_of", later):
        yield
