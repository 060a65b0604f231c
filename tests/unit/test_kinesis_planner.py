"""Where the batches of a Kinesis stream end: shares, aggregates, reshards, and what is read how often."""

from __future__ import annotations

import random
import time
from collections import Counter
from datetime import timedelta
from unittest import mock

import pytest

from exactlyonce.aws.calls import Clock
from exactlyonce.connectors.kinesis.positions import TRIM_HORIZON, UserRecord
from exactlyonce.connectors.kinesis.reading import PositionExpired, ShardReader, read_range
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce_spark.connectors.kinesis import planner as planning
from exactlyonce_spark.connectors.kinesis import read_ahead
from exactlyonce_spark.connectors.kinesis.connector import KinesisRecords
from exactlyonce_spark.connectors.kinesis.planner import BatchLimit, Planner, shared
from tests.decoders import AS_BYTES
from tests.kinesis_api import STREAM, KinesisApi, ManualTime, StoredShard, client_of
from tests.kinesis_in_memory import ManualClock, aggregated, position_of, texts_of
from tests.unit.kinesis_batches import MEBIBYTE, named, planner_of, run, starts_of, stream, taken


def test_every_record_is_planned_once_and_read_from_kinesis_once() -> None:
    kinesis, clock = stream(3), ManualClock()
    planner = planner_of(kinesis, records=7, clock=clock)
    put, stands = Counter[str](), starts_of(kinesis)
    landed: Counter[str] = Counter()
    for turn in range(20):
        for number in range(turn):
            name = f"{turn}/{number}"
            kinesis.put(f"shard-{number % 3}", name if number % 4 else aggregated([f"{name}a", f"{name}b", f"{name}c"]))
            put.update([name] if number % 4 else [f"{name}a", f"{name}b", f"{name}c"])
        clock.wait(2)
        stands, batches = run(kinesis, planner, stands)
        landed.update(text for batch in batches for text in batch)
        assert all(len(batch) <= 7 for batch in batches)
    planner.close()
    assert sorted(landed.elements()) == sorted(put.elements())
    assert set(kinesis.read.values()) == {1}, "no record was read from Kinesis a second time"


def test_the_first_batch_of_a_shard_names_its_oldest_record_and_a_later_read_that_does_not_find_it_says_so() -> None:
    api, api_time = KinesisApi(), ManualTime()
    shard = next(iter(api.shards))
    first, second, _ = api.put(b"a", b"b", b"c")
    client = client_of(api, api_time)
    planner = Planner(lambda name, start: ShardReader(client, STREAM, name, start), lambda: (), BatchLimit(10, 10_000))
    begins = planner.ends({shard: TRIM_HORIZON})
    assert begins == {shard: UserRecord(first).position}
    assert planner.fetched(shard, TRIM_HORIZON, begins[shard]) == ()
    ends = planner.ends(begins)
    planner.close()
    assert [user.data for user in read_range(client, STREAM, shard, begins[shard], ends[shard])] == [b"a", b"b", b"c"]
    api.expire(1)
    assert list(read_range(client, STREAM, shard, TRIM_HORIZON, begins[shard])) == [], "it may land, and holds nothing"
    with pytest.raises(PositionExpired, match=str(second)):
        list(read_range(client, STREAM, shard, begins[shard], ends[shard]))


def test_a_limit_is_shared_between_shards_and_what_one_leaves_the_others_get() -> None:
    assert shared(12, {"a": 1, "b": None, "c": 20}) == {"a": 1, "b": 5, "c": 6}
    assert sum(shared(2, dict.fromkeys("abcd", None)).values()) == 2
    kinesis = stream(3)
    kinesis.put("shard-0", "only one")
    for shard in ("shard-1", "shard-2"):
        kinesis.put(shard, *(f"{shard}/{number}" for number in range(50)))
    planner = planner_of(kinesis, records=21)
    starts = named(planner, starts_of(kinesis))
    found = Counter(text.split("/")[0] for text in taken(kinesis, planner, starts, planner.ends(starts)))
    assert found == {"only one": 1, "shard-1": 10, "shard-2": 10}


def test_a_limit_below_the_number_of_shards_serves_every_shard_in_turn() -> None:
    kinesis = stream(4)
    for shard in kinesis.shards:
        kinesis.put(shard, *(f"{shard}/{number}" for number in range(3)))
    planner = planner_of(kinesis, records=1)
    _, batches = run(kinesis, planner, named(planner, starts_of(kinesis)))
    assert [len(batch) for batch in batches] == [1] * 12
    assert len({text.split("/")[0] for batch in batches[:4] for text in batch}) == 4


def test_a_batch_that_ends_inside_an_aggregate_is_followed_by_one_that_goes_on_inside_it() -> None:
    kinesis = stream(1)
    texts = [f"user record {number}" for number in range(10)]
    kinesis.put("shard-0", "before", aggregated(texts), "behind")
    planner = planner_of(kinesis, records=4)
    _, batches = run(kinesis, planner, named(planner, starts_of(kinesis)))
    assert batches == [["before", *texts[:3]], texts[3:7], [*texts[7:], "behind"]]
    assert set(kinesis.read.values()) == {1}


def test_a_query_that_starts_inside_an_aggregate_takes_what_is_left_of_it() -> None:
    kinesis = stream(1)
    kinesis.put("shard-0", "before", aggregated(["a", "b", "c"]), "behind")
    starts = {"shard-0": position_of(kinesis.records["shard-0"][1], 2)}
    planner = planner_of(kinesis)
    ends = planner.ends(starts)
    assert taken(kinesis, planner, starts, ends) == ["c", "behind"]
    assert ends["shard-0"] > position_of(kinesis.records["shard-0"][2])


def test_a_limit_in_bytes_ends_a_batch_and_a_record_beyond_it_is_taken_alone() -> None:
    kinesis = stream(1)
    kinesis.put("shard-0", "x" * 300, "y" * 300, "z" * 5000, "w" * 10)
    planner = planner_of(kinesis, size_bytes=700)
    _, batches = run(kinesis, planner, named(planner, starts_of(kinesis)))
    assert [[len(text) for text in batch] for batch in batches] == [[300, 300], [5000], [10]]


def test_a_shard_that_was_read_to_its_tip_rests_so_that_other_consumers_can_read_it() -> None:
    kinesis, clock = stream(1), ManualClock()
    kinesis.put("shard-0", "a")
    planner = planner_of(kinesis, clock=clock)
    stands, _ = run(kinesis, planner, starts_of(kinesis))
    began = clock.seconds
    while clock.seconds < began + 10 * planning.IDLE_SECONDS:
        assert planner.ends(stands) == stands
    assert kinesis.fetches["shard-0"] <= 12


def test_shards_rest_by_a_clock_that_nobody_sets_back() -> None:
    before = time.monotonic()
    assert before <= Clock().elapsed_seconds() <= time.monotonic()


def test_a_query_for_what_is_there_now_reads_all_of_that_with_children_and_then_nothing_more() -> None:
    kinesis, clock = stream(2), ManualClock()
    before = [f"before/{number}" for number in range(12)]
    kinesis.put("shard-0", *before[:6])
    kinesis.split("shard-0", "shard-2", "shard-3")
    kinesis.put("shard-1", *before[6:9])
    kinesis.put("shard-2", *before[9:])
    planner = planner_of(kinesis, records=2, clock=clock)
    planner.read_until_now()
    stands, landed = dict.fromkeys(("shard-0", "shard-1"), TRIM_HORIZON), []
    for turn in range(1000):
        ends = planner.ends(stands)
        if ends == stands:
            break
        landed += taken(kinesis, planner, stands, ends)
        stands = ends
        clock.wait(5)
        kinesis.put(f"shard-{1 + turn % 3}", *(f"after/{turn}/{number}" for number in range(4)))
    assert turn < 900, "a query for what is there now ends though records keep coming"
    assert Counter(text for text in landed if text.startswith("before")) == Counter(before)


def test_what_is_not_held_is_read_by_the_task_and_the_batches_hold_the_same_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_ahead, "RECORD_OVERHEAD_BYTES", 0)
    monkeypatch.setattr(planning, "PARTITION_HELD_BYTES", 60)
    monkeypatch.setattr(planning, "HELD_BYTES", 100)
    kinesis = stream(3)
    for shard in kinesis.shards:
        kinesis.put(shard, *(f"{shard}/{number:03}" for number in range(40)))
    planner = planner_of(kinesis, records=80)
    stands = named(planner, starts_of(kinesis))
    ends = planner.ends(stands)
    assert planner.fetched("shard-0", stands["shard-0"], ends["shard-0"]) is None
    assert planner._held_bytes() <= 200
    stands, batches = run(kinesis, planner, stands)
    assert all(len(batch) <= 80 for batch in batches)
    assert Counter(text for batch in batches for text in batch) == Counter(
        f"{shard}/{number:03}" for shard in kinesis.shards for number in range(40)
    )


def test_what_a_small_limit_in_bytes_leaves_of_a_page_is_counted_as_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "RECORD_OVERHEAD_BYTES", 0)
    monkeypatch.setattr(planning, "HELD_BYTES", 5000)
    api, api_time, clock = KinesisApi(page_records=10), ManualTime(), ManualClock()
    shards = [f"shardId-{number:012}" for number in range(20)]
    api.shards = {shard: StoredShard() for shard in shards}
    for shard in shards:
        api.put(*(b"x" * 100 for _ in range(10)), shard=shard)
    client = client_of(api, api_time)
    readers = {shard: ShardReader(client, STREAM, shard, TRIM_HORIZON) for shard in shards}
    planner = Planner(lambda shard, _: readers[shard], lambda: (), BatchLimit(1000, 200), clock.clock())
    planner.ends(dict.fromkeys(shards, TRIM_HORIZON))
    planner.close()
    assert planner._held_bytes() <= 5000 + 8 * 10 * 103, "what comes in at that moment is a page for each thread"


def test_many_tiny_records_are_held_by_the_memory_that_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "HELD_BYTES", 10_000)
    kinesis = stream(4, page_records=2)
    for shard in kinesis.shards:
        kinesis.put(shard, *(f"{number}" for number in range(40)))
    planner, stands = planner_of(kinesis), starts_of(kinesis)
    planner.ends(stands)
    held = sum(len(ahead.ahead._held) for ahead in planner._shards.values())
    assert 0 < held <= 10_000 // 300 + 8 * 2, "what comes in at that moment is a page for each thread"
    _, batches = run(kinesis, planner, stands)
    assert sum(len(batch) for batch in batches) == 4 * 40


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_put_split_and_limited_each_user_record_is_planned_once_and_alike_from_both_ways(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(read_ahead, "RECORD_OVERHEAD_BYTES", chance.choice([0, 30]))
    monkeypatch.setattr(planning, "PARTITION_HELD_BYTES", chance.choice([40, 300, MEBIBYTE]))
    monkeypatch.setattr(planning, "HELD_BYTES", chance.choice([80, 600, MEBIBYTE]))
    kinesis, clock = stream(chance.randint(1, 4), chance.randint(1, 6)), ManualClock()
    limits = {"records": chance.choice([1, 3, 10, 1000]), "size_bytes": chance.choice([1, 60, 500, MEBIBYTE])}
    planner, stands = planner_of(kinesis, **limits, clock=clock), starts_of(kinesis)
    put: Counter[str] = Counter()
    landed: Counter[str] = Counter()

    def plan() -> bool:
        nonlocal stands
        ends = planner.ends(stands)
        for shard, end in ends.items():
            start = stands.get(shard, TRIM_HORIZON)
            texts = [user.data.decode() for user in kinesis.range(shard, start, end)]
            handed = planner.fetched(shard, start, end) if start < end else ()
            assert handed is None or texts_of(handed, start, end) == texts, "the payload and the range are the same"
            landed.update(texts)
        moved, stands = ends != stands, ends
        return moved

    for turn in range(25):
        open_shards = [shard.id for shard in kinesis.shards.values() if shard.is_open]
        shard, texts = chance.choice(open_shards), [f"{turn}/{number}" for number in range(chance.randint(1, 8))]
        put.update(texts)
        kinesis.put(shard, *([aggregated(texts)] if chance.random() < 0.4 else texts))
        if chance.random() < 0.1:
            kinesis.split(shard, f"shard-{len(kinesis.shards)}", f"shard-{len(kinesis.shards) + 1}")
        if chance.random() < 0.2:  # another driver
            planner.close()
            planner = planner_of(kinesis, **limits, clock=clock)
        clock.wait(chance.choice([0.0, 2.0]))
        if chance.random() < 0.5:
            plan()
    clock.wait(400)
    for _ in range(500):
        clock.wait(2)
        if not plan():
            break
    planner.close()
    assert sorted(landed.elements()) == sorted(put.elements())


@pytest.mark.parametrize(
    ("limits", "most", "records", "size"),
    [
        ({}, None, 1_000_000, 256 * 1024 * 1024),
        ({"maxRecordsPerTrigger": 400, "maxBytesPerTrigger": 1000}, None, 400, 1000),
        ({}, 50, 50, 256 * 1024 * 1024),
    ],
)
def test_the_backlog_of_a_stream_that_names_no_limit_is_read_in_batches_that_have_one(
    limits: dict[str, int], most: int | None, records: int, size: int
) -> None:
    """A first batch from TrimHorizon would else be all that the retention holds, and never fit into its transaction."""
    given = {"streamName": "orders", "region": "eu-west-1", "start": {"from": "TrimHorizon"}, **limits}
    session = mock.MagicMock()
    KinesisRecords(KinesisSource.model_validate(given), AS_BYTES, timedelta(seconds=30)).stream(session, 1, most)
    options = session.readStream.format.return_value.options.call_args.kwargs
    assert (int(options["records"]), int(options["bytes"])) == (records, size)
