"""What Kafka has committed last is compared with what the ledger knows, by its label, whatever their numbers are."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from exactlyonce.ledger.decided import Answer
from exactlyonce.ledger.fence import raise_epoch
from exactlyonce.ledger.known_loads import (
    FoundLoad,
    KnownLoads,
    LatestLoads,
    digest_of,
    spans_without,
    told_spans,
)
from exactlyonce.ledger.publish import Adoption, PositionsMoved, Publication, adopt, publish
from exactlyonce.ledger.rows import BatchRow, BatchStatus, LandedPositions
from exactlyonce.ledger.settlement import Settlement
from exactlyonce.ledger.two_phase import record_loads
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Positions, Ranges
from exactlyonce_spark import crash_points
from exactlyonce_spark.connectors.kafka.sink_marker import MOST_CHARACTERS, Marker
from exactlyonce_spark.latest_loads import LedgerBehindSink
from tests.kafka_sink_world import KafkaWorld
from tests.ledgers import IDS, P0, P1, QUERY, STREAM, new_stream
from tests.simulation.server import Tables
from tests.two_phase_stream import READS, Killed, Watch, killed_at, span_of

ALL = Counter({f"{key.key}/{at}": 1 for key, span in READS.items() for at in range(*span_of(span))})
JANE = "jane"


@pytest.fixture(autouse=True)
def unwatched() -> object:
    yield
    crash_points.watch(lambda point: None)


def going_back(world: KafkaWorld, watch: Watch, point: str = "land.before-commit") -> None:
    """Land a batch, and lose what the ledger has committed from `point` on."""
    kept: list[Tables] = []
    watch(lambda reached: kept.append(world.ledger.database.tables) if reached == point and not kept else None)
    world.land()
    watch(lambda reached: None)
    world.ledger.database.restore(kept[0])


def loads(world: KafkaWorld) -> KnownLoads:
    view = world.ledger.view(STREAM)
    assert view is not None
    return view.stream.loads


def found_by_the_next_driver(world: KafkaWorld) -> FoundLoad:
    """Let the next driver look, require that it refuses, and return what it has recorded."""
    with pytest.raises(LedgerBehindSink):
        world.next_driver()
    found = loads(world).found
    assert found is not None
    return found


def raised(world: KafkaWorld) -> Epoch:
    epoch = Epoch(world.permit.epoch + 1)
    raise_epoch(world.ledger, new_stream(world.ledger), epoch, "ticket")
    world.permit = replace(world.permit, epoch=epoch)
    return epoch


def seeded(world: KafkaWorld, after: Positions, settlement: Settlement | None = None, batch: int = 7) -> None:
    """Publish a generation with an empty seed, as every rebuild does."""
    view = world.ledger.view(STREAM)
    assert view is not None
    epoch = raised(world)
    publication = Publication(
        epoch, (view.stream.generation or 0) + 1, f"/checkpoints/{batch}", BatchNumber(batch), view.landed.positions,
        LandedPositions(after, dict(IDS)), "a seed", QUERY, settlement=settlement,
    )  # fmt: skip
    publish(world.ledger, STREAM, publication)


def test_a_load_that_the_ledger_has_lost_is_found_and_named_with_its_records(passed: Watch) -> None:
    world = KafkaWorld()
    going_back(world, passed)
    with pytest.raises(
        LedgerBehindSink, match=r"has committed batch 1 of this stream under \S+ \(8 rows of orders-0 \[0, 5\)"
    ):
        world.next_driver()
    found = loads(world).found
    assert found is not None
    assert (found.batch, found.rows, found.spans) == (1, 8, tuple(READS.items()))
    assert world.brokers.committed == ALL
    assert found_by_the_next_driver(world) == found, "whoever looks next finds the same"


def test_an_empty_seed_with_a_greater_number_hides_no_load_that_the_ledger_has_lost(passed: Watch) -> None:
    world = KafkaWorld()
    going_back(world, passed)
    view = world.ledger.view(STREAM)
    assert view is not None
    seeded(world, view.landed.positions)
    assert found_by_the_next_driver(world).batch == 1


@pytest.mark.parametrize("times", [1, 3])
def test_seeds_leave_a_load_known_that_the_ledger_has(passed: Watch, times: int) -> None:
    world = KafkaWorld()
    world.land()
    for number in range(times):
        seeded(world, READS.ends, batch=7 + number)
        world.next_driver()
    latest = loads(world).latest
    assert latest is not None
    assert latest.batch == 1


def test_a_batch_that_is_decided_and_was_never_committed_is_no_load_that_the_ledger_has_lost(passed: Watch) -> None:
    world = KafkaWorld()
    killed_at("batch.decided", passed)
    with pytest.raises(Killed):
        world.land()
    world.next_driver()
    assert (world.brokers.committed, loads(world).found) == (ALL, None)


def test_a_label_under_which_rows_were_made_again_is_known_and_lost_with_the_ledger(passed: Watch) -> None:
    world = KafkaWorld()
    killed_at("batch.decided", passed)
    with pytest.raises(Killed):
        world.land()
    before = world.ledger.database.tables
    world.next_driver()
    world.next_driver()
    world.ledger.database.restore(before)
    assert found_by_the_next_driver(world).batch == 1, "the ledger has the batch decided, under another label"
    assert world.brokers.committed == ALL


def test_records_that_are_in_the_sink_land_in_the_ledger_once_a_person_has_said_so(passed: Watch) -> None:
    world = KafkaWorld()
    going_back(world, passed)
    found = found_by_the_next_driver(world)
    row = BatchRow(BatchNumber(1), Epoch(9), BatchStatus.LANDED, READS, rows_written=8, note="as jane says")
    seeded(world, found.ends, Settlement(found, Answer.COMMITTED, JANE, row))
    world.next_driver()
    view = world.ledger.view(STREAM)
    assert view is not None
    assert (view.landed.positions, view.stream.loads.found) == (READS.ends, None)
    with world.ledger.transaction() as transaction:
        assert transaction.read_batch(STREAM, BatchNumber(1)) == row
    assert world.brokers.committed == ALL


def test_a_load_of_which_no_row_is_there_is_known_from_then_on(passed: Watch) -> None:
    world = KafkaWorld()
    going_back(world, passed)
    found = found_by_the_next_driver(world)
    for _ in range(2):
        record_loads(world.ledger, STREAM, raised(world), Settlement(found, Answer.ABORTED, JANE))
    world.next_driver()
    world.land()
    assert loads(world).found is None


def test_an_answer_for_another_load_than_the_one_that_was_found_changes_nothing(passed: Watch) -> None:
    world = KafkaWorld()
    going_back(world, passed)
    found = found_by_the_next_driver(world)
    other = Settlement(replace(found, label="another"), Answer.COMMITTED, JANE)
    with pytest.raises(PositionsMoved, match="to settle, not another as observed"):
        seeded(world, found.ends, other)
    assert loads(world).found == found


def test_where_something_knows_more_and_brokers_have_forgotten_the_marker_the_driver_refuses() -> None:
    world = KafkaWorld()
    world.land()
    record_loads(world.ledger, STREAM, raised(world), FoundLoad("", BatchNumber(4)))
    world.brokers.forget_markers()
    with pytest.raises(LedgerBehindSink, match=r"batch 4 had landed, .* has forgotten which load it committed last"):
        world.next_driver()


def test_where_something_knows_more_and_the_marker_names_a_known_load_the_stream_continues() -> None:
    world = KafkaWorld()
    world.land()
    record_loads(world.ledger, STREAM, raised(world), FoundLoad("", BatchNumber(4)))
    world.next_driver()
    assert loads(world).found is None


@pytest.mark.parametrize("starts_over", [False, True], ids=["is adopted", "starts over"])
def test_the_load_of_the_life_before_is_compared_unless_the_stream(passed: Watch, *, starts_over: bool) -> None:
    world = KafkaWorld()
    world.land()
    kept = world.ledger.database.tables
    world.next_driver()
    seeded(world, READS.ends)
    world.next_driver()
    world.brokers.ids[next(iter(world.brokers.ids))].marker = Marker(
        "exactlyonce:a:b:9:9:x", BatchNumber(9)
    ).to_metadata()
    world.ledger.database.restore(kept)
    view = world.ledger.view(STREAM)
    assert view is not None
    row = view.stream
    adopt(world.ledger, STREAM, raised(world), Adoption(row.owner, row.database, "token-2", starts_over=starts_over))
    world.token = "token-2"
    if starts_over:
        world.next_driver()
        assert loads(world) == KnownLoads()
    else:
        assert found_by_the_next_driver(world).label == "exactlyonce:a:b:9:9:x"


def test_another_topic_has_another_latest_load_and_the_first_one_is_still_earlier() -> None:
    latest = LatestLoads(BatchNumber(9), ("nine",), "eight", "here")
    earlier, later = FoundLoad("five", BatchNumber(5)), FoundLoad("ten", BatchNumber(10))
    assert latest.names(earlier, "there")
    assert not latest.names(earlier, "here")
    assert not latest.names(later, "there")
    assert latest.names(FoundLoad("eight", BatchNumber(8)), "here")


@pytest.mark.parametrize(
    ("before", "after", "labels"),
    [
        pytest.param(("a", "b"), ("b",), ("a", "b"), id="one is committed"),
        pytest.param(("a", "b"), ("b", "c"), ("b", "c"), id="one is written again"),
        pytest.param(("b",), (), ("a", "b"), id="all are committed, or have no row any more"),
        pytest.param(("b",), ("c", "d"), ("a", "c", "d"), id="one is written again as two"),
    ],
)
def test_labels_that_were_aborted_are_not_known_any_more(
    before: tuple[str, ...], after: tuple[str, ...], labels: tuple[str, ...]
) -> None:
    known = LatestLoads(BatchNumber(1), ("a", "b")).replaced(before, after)
    assert set(known.labels) == set(labels)


@pytest.mark.parametrize(
    ("gone", "left"),
    [
        pytest.param([], [(0, 5), (0, 3)], id="none"),
        pytest.param([(0, 1)], [(1, 5), (0, 3)], id="the first"),
        pytest.param([(2, 3)], [(0, 2), (3, 5), (0, 3)], id="one in between"),
        pytest.param([(4, 9)], [(0, 4), (0, 3)], id="the last"),
        pytest.param([(0, 5)], [(0, 0), (0, 3)], id="all"),
        pytest.param([(0, 2), (3, 4)], [(2, 3), (4, 5), (0, 3)], id="several"),
    ],
)
def test_a_load_is_of_the_records_that_were_not_left_out(
    gone: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    found = spans_without(READS, [(P0, OffsetRange(*pair)) for pair in gone])
    assert [(span.from_offset, span.until_offset) for _, span in found] == left
    assert {key for key, _ in found} == {P0, P1}, "where a partition was stays known"


MANY = tuple((Partition("orders", number), OffsetRange(10**9, 10**9 + number)) for number in range(500))


@pytest.mark.parametrize(
    "marker",
    [
        Marker(),
        Marker("a replay's"),
        Marker("label", BatchNumber(3), 8, tuple(READS.items())),
        Marker("label", BatchNumber(3), 8, ((P0, OffsetRange(0, 2)), (P0, OffsetRange(3, 5)))),
        Marker("label", BatchNumber(3), 0, ()),
    ],
)
def test_a_marker_is_read_as_it_was_written(marker: Marker) -> None:
    assert Marker.from_metadata(marker.to_metadata()) == marker


def test_a_marker_keeps_a_digest_of_records_that_are_too_many_for_it() -> None:
    text = Marker("label", BatchNumber(3), 8, MANY).to_metadata()
    assert len(text) <= MOST_CHARACTERS
    read = Marker.from_metadata(text)
    assert read == Marker("label", BatchNumber(3), 8, None, digest_of(MANY))
    assert read is not None
    assert read.to_metadata() == text, "it is written again as it is"
    assert read.load is not None
    assert read.load.planned_as(Ranges(dict(MANY))).spans == MANY
    assert read.load.planned_as(Ranges(dict(MANY[:-1]))).spans is None


@pytest.mark.parametrize(
    "text",
    [
        '{"batch":3,"label":"label"}',
        '{"batch":-1,"label":"label","rows":8,"spans":{}}',
        '{"batch":3,"label":"label","rows":true,"spans":{}}',
        '{"batch":3,"label":"label","rows":8,"spans":{"orders":{"0":[[5,3]]}}}',
        '{"batch":3,"label":"label","rows":8,"spans":[1]}',
        '{"batch":9223372036854775807,"label":"label","rows":8,"spans":{}}',
        '{"batch":3,"label":"label","rows":1e99,"spans":{}}',
        '{"batch":3,"label":"label","rows":9223372036854775808,"spans":{}}',
        '{"batch":3,"label":"label","rows":8,"digest":7}',
        '{"batch":3,"label":"label","rows":8,"spans":{},"more":1}',
        "[]",
        "",
    ],
)
def test_what_somebody_else_has_committed_is_no_marker(text: str) -> None:
    assert Marker.from_metadata(text) is None


KNOWN: list[KnownLoads] = [
    KnownLoads(),
    KnownLoads(LatestLoads(BatchNumber(1), ("a", "b"), None, "here")),
    KnownLoads(LatestLoads(BatchNumber(1), (), "before"), FoundLoad("c", BatchNumber(2), 3, tuple(READS.items()))),
    KnownLoads(None, FoundLoad("", BatchNumber(2))),
    KnownLoads(None, FoundLoad("c", BatchNumber(2), 3, None, "digest", "here")),
]


@pytest.mark.parametrize("known", KNOWN)
def test_what_is_known_is_read_as_it_was_written(known: KnownLoads) -> None:
    assert KnownLoads.from_json(known.to_json()) == known


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"latest":{}}',
        '{"found":{"label":"a","batch":-1,"rows":0}}',
        '{"latest":{"batch":1,"labels":[7],"before":null,"place":""}}',
    ],
)
def test_what_is_not_known_loads_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        KnownLoads.from_json(text)


def test_records_are_told_without_those_that_there_are_none_of() -> None:
    assert told_spans(((P0, OffsetRange(0, 5)), (P1, OffsetRange(3, 3)))) == "orders-0 [0, 5)"
    assert told_spans(None) == "records that the sink does not name"
