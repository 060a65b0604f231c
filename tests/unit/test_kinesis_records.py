"""Records of Kinesis as Spark is given them: the same rows from both ways, in Arrow batches that fit into memory."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from itertools import count, pairwise

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from exactlyonce.connectors.kinesis.aggregation import UserRecordData
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, UserRecord, to_text
from exactlyonce.connectors.kinesis.reading import ShardReader
from exactlyonce.connectors.kinesis.shards import GREATEST_HASH_KEY, hash_key_of
from exactlyonce_spark.connectors.kinesis import records
from exactlyonce_spark.connectors.kinesis.planner import BatchLimit
from exactlyonce_spark.connectors.kinesis.records import KinesisStreamReader, Offsets, Place, ShardRange
from exactlyonce_spark.connectors.kinesis.rows import SequenceNumberTooLong, arrow_batches
from tests.decoders import BYTES, BYTES_OPTION, NOTHING
from tests.kinesis_api import SHARD, STREAM, KinesisApi, ManualTime, StoredShard, client_of
from tests.kinesis_in_memory import aggregated

MEBIBYTE = 1 << 20


def user_records_of(sizes: Iterable[int]) -> list[UserRecordData]:
    return [
        UserRecordData(UserRecord(number + 1), "key", None, b"x" * size, 1_700_000_000_000)
        for number, size in enumerate(sizes)
    ]


def test_an_arrow_batch_of_large_records_is_bounded_and_one_of_small_records_has_many() -> None:
    large = list(arrow_batches(user_records_of([MEBIBYTE] * 40 + [20 * MEBIBYTE]), STREAM, SHARD, BYTES, NOTHING))
    assert max(batch.nbytes for batch in large[:-1]) < 10 * MEBIBYTE, "a batch of one is as large as its record"
    assert sum(batch.num_rows for batch in large) == 41
    assert [batch.num_rows for batch in arrow_batches(user_records_of([10] * 5000), STREAM, SHARD, BYTES, NOTHING)] == [
        2000,
        2000,
        1000,
    ]


def test_the_greatest_text_of_a_rows_number_and_position_is_that_of_the_last_row() -> None:
    """Whoever looks for the last row compares texts: footers of Parquet, and max() of SQL."""
    last = UserRecord(10**55, 2)
    places = [UserRecord(9), UserRecord(10), UserRecord(2**186 - 1), last, UserRecord(last.sequence_number, 10)]
    users = [UserRecordData(place, "key", None, b"", 0) for place in places]
    (rows,) = (batch.to_pylist() for batch in arrow_batches(users, STREAM, SHARD, BYTES, NOTHING))
    for column in ("sequence_number", "position"):
        texts = [row[column] for row in rows]
        assert sorted(range(5), key=lambda place: texts[place]) == sorted(range(5), key=lambda place: places[place])
        assert max(texts) == texts[2], "the greatest number that a stream can have"
    assert [int(row["position"]) for row in rows] == [place.position for place in places]
    with pytest.raises(SequenceNumberTooLong, match="has more than 56 digits"):
        list(arrow_batches([UserRecordData(UserRecord(10**56), "key", None, b"", 0)], STREAM, SHARD, BYTES, NOTHING))


def test_rows_are_the_same_from_what_the_planner_hands_over_and_from_the_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api, time = KinesisApi(page_records=4), ManualTime()
    numbers = api.put(b"a", aggregated(["b", "c", "d"]), b"", b"\xf3\x89\x9a\xc2 damaged", aggregated(["e", "f"]), b"g")
    api.close_shard()
    monkeypatch.setattr(Place, "client", lambda _: client_of(api, time))
    reader = ShardReader(client_of(api, time), STREAM, SHARD, TRIM_HORIZON)
    fetched = (*reader.fetch().records, *reader.fetch().records)
    ends = [TRIM_HORIZON, UserRecord(numbers[1], 2).position, UserRecord(numbers[4], 1).position, SHARD_END]
    place = Place(STREAM, STREAM, "eu-west-1", None, None, BYTES_OPTION)
    rows = []
    for start, end in pairwise(ends):
        handed, read = (
            [
                row
                for batch in records._batches(place, ShardRange(SHARD, to_text(start), to_text(end), held))
                for row in batch.to_pylist()
            ]
            for held in (fetched, None)
        )
        assert handed == read
        rows += [
            ((row["value"] or row["malformed"])["value"], row["sub_sequence_number"], row["malformed"] is None)
            for row in handed
        ]
    assert [row[0] for row in rows] == [b"a", b"b", b"c", b"d", b"", b"\xf3\x89\x9a\xc2 damaged", b"e", b"f", b"g"]
    assert [number for _, number, _ in rows] == [0, 0, 1, 2, 0, 0, 0, 1, 0]
    assert [well for _, _, well in rows].index(False) == 5


def test_tasks_are_handed_what_the_planner_has_fetched_and_ask_kinesis_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api, time = KinesisApi(page_records=4), ManualTime()
    api.put(b"a", aggregated(["b", "c", "d"]), b"e")
    monkeypatch.setattr(Place, "lasting_client", lambda _: client_of(api, time))
    monkeypatch.setattr(Place, "client", lambda _: pytest.fail("a task asks Kinesis"))
    reader = KinesisStreamReader(Place(STREAM, STREAM, "eu-west-1", None, None, BYTES_OPTION), BatchLimit(2, MEBIBYTE))
    stands, batches = {STREAM: {SHARD: to_text(TRIM_HORIZON)}}, []
    for _ in range(4):
        ends = reader.latestOffset(stands, ReadAllAvailable())
        (part,) = reader.partitions(stands, ends)
        of_a_task, its_part = pickle.loads(pickle.dumps((reader, part)))
        batches.append(
            [data["value"] for rows in of_a_task.read(its_part) for data in rows.column("value").to_pylist()]
        )
        stands = ends
    reader.stop()
    assert batches == [[], [b"a", b"b"], [b"c", b"d"], [b"e"]]
    assert api.calls["get_records"] == 1, (
        "each record was fetched once, also those of an aggregate that two batches share"
    )


def key_within(api: KinesisApi, shard: str) -> str:
    """Return a partition key whose records belong to a shard."""
    first, last = api.hash_keys[shard]
    return next(key for key in map(str, count()) if first <= hash_key_of(key, None) <= last)


def test_a_key_belongs_to_the_child_that_was_opened_before_its_record_though_the_parent_was_known_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records of a shard with a key of another one come with an explicit hash key, or in an aggregate that mixes keys."""
    api = KinesisApi()
    time = api.time
    other, low, high = (f"shardId-{number:012}" for number in (1, 2, 3))
    middle = GREATEST_HASH_KEY // 2
    api.shards[other] = StoredShard()
    api.hash_keys |= {SHARD: (0, middle), other: (middle + 1, GREATEST_HASH_KEY)}
    monkeypatch.setattr(Place, "lasting_client", lambda _: client_of(api, time))
    monkeypatch.setattr(Place, "client", lambda _: client_of(api, time))
    place = Place(STREAM, STREAM, "eu-west-1", None, None, BYTES_OPTION, compute_shard=True)
    reader = KinesisStreamReader(place, BatchLimit(100, MEBIBYTE))
    stands = {STREAM: {SHARD: to_text(TRIM_HORIZON)}}
    computed: list[tuple[str, str, str]] = []

    def read(stands: Offsets, *, expires: bool = False) -> Offsets:
        while (ends := reader.latestOffset(stands, ReadAllAvailable())) == stands:
            assert api.time.seconds < 1000, "a shard in which everything was read rests for a moment only"
        api.calls["list_shards"] = 0
        if expires:
            del api.shards[SHARD]
        parts = pickle.loads(pickle.dumps(reader.partitions(stands, ends)))
        assert api.calls["list_shards"] == 1, "once a batch, however many shards it reads"
        rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        computed.extend((row["value"]["value"].decode(), row["shard_id"], row["computed_shard"]) for row in rows)
        return ends

    api.put(aggregated(["own"], key_within(api, SHARD)), aggregated(["before"], key_within(api, other)))
    for _ in ("it names the oldest record", "it reads"):
        stands = read(stands)
    api.put(aggregated(["of the parent"], key_within(api, other)))
    api.halve(other, low, high)
    api.put(*(aggregated([f"of {child}"], key_within(api, child)) for child in (low, high)))
    stands = read(stands)
    api.put(aggregated(["fetched"], key_within(api, SHARD)), aggregated(["and gone"], key_within(api, high)))
    read(stands, expires=True)
    reader.stop()
    assert computed == [
        ("own", SHARD, SHARD),
        ("before", SHARD, other),
        ("of the parent", SHARD, other),
        (f"of {low}", SHARD, low),
        (f"of {high}", SHARD, high),
        ("fetched", SHARD, SHARD),
        ("and gone", SHARD, high),
    ]


def test_a_reader_that_is_sent_to_tasks_takes_nothing_of_the_planner_with_it() -> None:
    place = Place(STREAM, STREAM, "eu-west-1", None, "login", BYTES_OPTION)
    reader = KinesisStreamReader(place, BatchLimit(1, 1))
    reader._planner = object()  # type: ignore[assignment] # whatever it holds
    sent = reader.__getstate__()
    assert sent["_planner"] is None
    assert (sent["_place"], sent["_limit"]) == (place, BatchLimit(1, 1))
