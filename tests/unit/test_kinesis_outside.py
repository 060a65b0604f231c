"""Records outside of their shard's range of hash keys: what a producer sends again after a split, what Drop loses."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from exactlyonce.connectors.kinesis.aggregation import MAGIC, RawRecord, user_records
from exactlyonce.connectors.kinesis.positions import TRIM_HORIZON, UserRecord, position_after_record
from exactlyonce.connectors.kinesis.shard_map import HashKeyOutside
from exactlyonce.connectors.kinesis.spec import OutsideShardRange
from exactlyonce.positions.ranges import OffsetRange, Partition, Ranges
from exactlyonce_spark.connectors.kinesis.outside import OutsideRecords, RecordOutsideShard
from exactlyonce_spark.connectors.kinesis.records import KinesisRangesReader, Place, ShardRange, _batches
from tests.decoders import BYTES_OPTION
from tests.kinesis_api import GREATEST_HASH_KEY, SHARD, STREAM, KinesisApi, StoredShard, client_of

LOW, HIGH, MIDDLE = "shardId-000000000001", "shardId-000000000002", 1 << 127
KEEP, DROP, FAIL = OutsideShardRange.KEEP, OutsideShardRange.DROP, OutsideShardRange.FAIL
KEYS = [f"key {number}" for number in range(12)]


def half(key: str, explicit: int | None = None) -> str:
    """The child that holds a key, by the test's own reckoning."""
    number = int(hashlib.md5(key.encode()).hexdigest(), 16) if explicit is None else explicit
    return LOW if number < MIDDLE else HIGH


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def aggregated(keys: Sequence[str], explicit: Sequence[int] = ()) -> bytes:
    """An aggregate with a user record for each key, whose data is the key."""
    message = b"".join(field(1, key.encode()) for key in keys)
    message += b"".join(field(2, str(number).encode()) for number in explicit)
    for place, key in enumerate(keys):
        hash_key = bytes([2 << 3, place]) if explicit else b""
        message += field(3, bytes([1 << 3, place]) + hash_key + field(3, key.encode()))
    return MAGIC + message + hashlib.md5(message).digest()


@pytest.fixture
def api() -> KinesisApi:
    """A stream whose only shard has been split in the middle."""
    api = KinesisApi()
    api.close_shard()
    ranges = {SHARD: (0, GREATEST_HASH_KEY), LOW: (0, MIDDLE - 1), HIGH: (MIDDLE, GREATEST_HASH_KEY)}
    api.shards |= {LOW: StoredShard((SHARD,)), HIGH: StoredShard((SHARD,))}
    api.hash_keys = ranges
    return api


@pytest.fixture(autouse=True)
def client(api: KinesisApi, monkeypatch: pytest.MonkeyPatch) -> None:
    made = client_of(api, api.time)
    monkeypatch.setattr(Place, "client", lambda self: made)


def place(outside: OutsideShardRange) -> Place:
    return Place(STREAM, STREAM, "eu-west-1", None, None, BYTES_OPTION, outside)


def read(outside: OutsideShardRange, spans: dict[str, OffsetRange]) -> Counter[str]:
    """What Spark's reader of ranges yields."""
    reader = KinesisRangesReader(place(outside), Ranges({Partition(STREAM, shard): at for shard, at in spans.items()}))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return Counter(text for batch in batches for text in texts_of(batch))


def texts_of(batch: pa.RecordBatch) -> list[str]:
    return [row["value"]["value"].decode() for row in batch.to_pylist() if row["malformed"] is None]


def sent_again_after_a_split(api: KinesisApi) -> dict[str, OffsetRange]:
    """A producer (KPL) that did not know of the split puts all keys into one child, and then each again where it belongs."""
    api.put(aggregated(KEYS), shard=LOW)
    ends = {shard: api.put(aggregated([k for k in KEYS if half(k) == shard]), shard=shard)[-1] for shard in (LOW, HIGH)}
    return {shard: OffsetRange(TRIM_HORIZON, position_after_record(end)) for shard, end in ends.items()}


def test_what_a_producer_sends_again_after_a_split_lands_once_with_drop_and_twice_with_keep(
    api: KinesisApi, caplog: pytest.LogCaptureFixture
) -> None:
    spans = sent_again_after_a_split(api)
    assert read(KEEP, spans) == Counter(KEYS * 2)
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert read(DROP, spans) == Counter(KEYS)
    assert [record.getMessage() for record in caplog.records] == [
        f"Left out of shard {LOW} of stream {STREAM}, TRIM_HORIZON to after {(spans[LOW].until_offset >> 32) - 1}: "
        f"{len(KEYS)} user records of aggregates with a key of another shard (source.kinesis.outsideShardRange: Drop)."
    ]


def test_an_aggregate_is_left_out_whole_also_where_a_batch_ends_inside_of_it(api: KinesisApi) -> None:
    spans = sent_again_after_a_split(api)
    stale = int((api.shards[LOW].records[0] or {})["SequenceNumber"])
    for place_of_cut in range(1, len(KEYS)):
        cut = UserRecord(stale, place_of_cut).position
        parts = [
            {LOW: OffsetRange(TRIM_HORIZON, cut)},
            {LOW: OffsetRange(cut, spans[LOW].until_offset), HIGH: spans[HIGH]},
        ]
        assert sum((read(DROP, part) for part in parts), Counter[str]()) == Counter(KEYS)


def test_what_the_planner_hands_over_and_what_a_task_reads_again_are_the_same(api: KinesisApi) -> None:
    spans = sent_again_after_a_split(api)
    listed = next(shard for shard in client_of(api, api.time).shards(STREAM) if shard.id == LOW)
    fetched = tuple(
        RawRecord(int(record["SequenceNumber"]), record["PartitionKey"], record["Data"], 0)
        for record in api.shards[LOW].records
        if record is not None
    )
    part = ShardRange(LOW, "TRIM_HORIZON", f"after {fetched[-1].sequence_number}", fetched, listed)
    found = [text for batch in _batches(place(DROP), part) for text in texts_of(batch)]
    assert Counter(found) == read(DROP, {LOW: spans[LOW]})


def test_explicit_hash_keys_of_user_records_count_and_not_their_partition_keys(api: KinesisApi) -> None:
    elsewhere = [key for key in KEYS if half(key) == HIGH][:2]
    inside, outside = aggregated(elsewhere, [0, MIDDLE - 1]), aggregated(elsewhere, [0, MIDDLE])
    end = api.put(inside, outside, shard=LOW)[-1]
    assert read(DROP, {LOW: OffsetRange(TRIM_HORIZON, position_after_record(end))}) == Counter(elsewhere)


def test_plain_records_and_malformed_aggregates_are_never_left_out(api: KinesisApi) -> None:
    """A plain record may have had an explicit hash key, which Kinesis does not tell."""
    other = HIGH if half("key") == LOW else LOW  # every record that the stand-in puts has the partition key "key"
    broken = aggregated(KEYS)[:-1] + b"?"
    end = api.put(b"plain", broken, shard=other)[-1]
    partition = Partition(STREAM, other)
    reader = KinesisRangesReader(
        place(DROP), Ranges({partition: OffsetRange(TRIM_HORIZON, position_after_record(end))})
    )
    found = [
        (row["value"] or row["malformed"])["value"]
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]
    assert found == [b"plain", broken]


def test_with_fail_a_record_outside_of_its_shards_range_is_an_error_that_names_it(api: KinesisApi) -> None:
    home, other = half("key"), HIGH if half("key") == LOW else LOW
    listed = {shard.id: shard for shard in client_of(api, api.time).shards(STREAM)}
    plain = RawRecord(7, "key", b"plain", 0)
    assert OutsideRecords(listed[home], FAIL).keeps(plain, user_records(plain))
    with pytest.raises(RecordOutsideShard, match=f"User record 0 of record 7 of shard {other} has a hash key outside"):
        OutsideRecords(listed[other], FAIL).keeps(plain, user_records(plain))
    mixed = RawRecord(8, "key", aggregated(KEYS), 0)
    first = next(number for number, key in enumerate(KEYS) if half(key) == HIGH)
    with pytest.raises(RecordOutsideShard, match=f"User record {first} of record 8 of shard {LOW}"):
        OutsideRecords(listed[LOW], FAIL).keeps(mixed, user_records(mixed))


def test_the_list_of_shards_is_asked_for_only_where_ranges_matter(api: KinesisApi) -> None:
    spans = sent_again_after_a_split(api)
    listed = []
    for outside in (KEEP, DROP):
        read(outside, spans)
        listed.append(api.calls["list_shards"])
    assert listed == [0, 1]


def test_a_record_in_another_shard_than_that_of_its_key_has_both_in_its_row_where_that_is_asked_for(
    api: KinesisApi,
) -> None:
    api.put(aggregated(KEYS), shard=LOW)
    (end,) = api.put(b"plain", shard=LOW)
    spans = Ranges({Partition(STREAM, LOW): OffsetRange(TRIM_HORIZON, position_after_record(end))})
    asked = replace(place(KEEP), compute_shard=True)
    assert Place.of(asked.options()) == asked

    def found(where: Place) -> list[tuple[str, str, str | None]]:
        reader = KinesisRangesReader(where, spans)
        rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
        return [(row["partition_key"], row["shard_id"], row["computed_shard"]) for row in rows]

    assert found(asked) == [(key, LOW, half(key)) for key in [*KEYS, "key"]]
    assert found(place(KEEP)) == [(key, LOW, None) for key in [*KEYS, "key"]]
    api.hash_keys[HIGH] = (GREATEST_HASH_KEY, GREATEST_HASH_KEY)
    del api.shards[SHARD]
    with pytest.raises(
        HashKeyOutside, match=rf"^User record \d+ of record \d+ of shard {LOW} of stream {STREAM}: No shard of"
    ):
        found(asked)
