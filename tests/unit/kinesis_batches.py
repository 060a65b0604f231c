"""Batches of a stream of Kinesis in memory as a planner makes them, and what is read of them; for tests of the planner."""

from __future__ import annotations

from collections.abc import Mapping

from exactlyonce.connectors.kinesis.positions import TRIM_HORIZON
from exactlyonce_spark.connectors.kinesis.planner import BatchLimit, Planner
from tests.kinesis_in_memory import KinesisInMemory, ManualClock, texts_of

MEBIBYTE = 1024 * 1024


def stream(shards: int = 2, page_records: int = 5) -> KinesisInMemory:
    kinesis = KinesisInMemory(page_records)
    for number in range(shards):
        kinesis.open_shard(f"shard-{number}")
    return kinesis


def starts_of(kinesis: KinesisInMemory) -> dict[str, int]:
    return dict.fromkeys(kinesis.shards, TRIM_HORIZON)


def planner_of(
    kinesis: KinesisInMemory, records: int = 1000, size_bytes: int = MEBIBYTE, clock: ManualClock | None = None
) -> Planner:
    clock = clock or ManualClock()
    return Planner(kinesis.reader, kinesis.listed, BatchLimit(records, size_bytes), clock.clock())


def named(planner: Planner, starts: Mapping[str, int]) -> dict[str, int]:
    """Where the oldest record of each shard begins, as the first batch of a query says it."""
    ends = planner.ends(starts)
    assert all(
        starts[shard] == TRIM_HORIZON and not planner.fetched(shard, TRIM_HORIZON, ends[shard]) for shard in starts
    )
    return ends


def taken(kinesis: KinesisInMemory, planner: Planner, starts: Mapping[str, int], ends: Mapping[str, int]) -> list[str]:
    """What the tasks of a batch yield: from what was handed to them, or, where it was not, from the range."""
    found = []
    for shard, end in ends.items():
        start = starts.get(shard, TRIM_HORIZON)
        if start == end:
            continue
        handed = planner.fetched(shard, start, end)
        if handed is None:
            found += [user.data.decode() for user in kinesis.range(shard, start, end)]
        else:
            found += texts_of(handed, start, end)
    return found


def run(
    kinesis: KinesisInMemory, planner: Planner, starts: Mapping[str, int], batches: int = 100
) -> tuple[dict[str, int], list[list[str]]]:
    """Plan batches as Spark does, until nothing more is there."""
    stands, landed = dict(starts), []
    for _ in range(batches):
        ends = planner.ends(stands)
        if ends == stands:
            break
        landed.append(taken(kinesis, planner, stands, ends))
        stands = ends
    return stands, landed
