"""What would let a backfill land twice, land other records or end too early is refused by a sentence, or told."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from exactlyonce.api.resource import ResourceInvalid, parse_stream
from exactlyonce.api.stream_replay import parse_replay
from exactlyonce.api.stream_replay_status import Counts, ReplayPhase, ReplayStatus
from exactlyonce.control.replay_watch import COUNT_AGAIN
from exactlyonce.launch.asked_ranges import Amount, AskedRange, parse_asked, render_asked, tally_backfill
from exactlyonce.launch.backfill import BackfillRefused, order_of, planned, require_past, rows_of
from exactlyonce.launch.replay_document import ReplayDocument, ReplayReport
from exactlyonce.ledger.backfills import Backfill
from exactlyonce.ledger.other_tables import IntoOwnTable, OtherTable
from exactlyonce.ledger.planned_backfills import BackfillDiffers, known_backfill
from exactlyonce.ledger.replay import RangeNotHeld, require_held
from exactlyonce.ledger.replay_rules import Piece
from exactlyonce.ledger.rows import FailureStatus
from exactlyonce.positions.ranges import OffsetRange, Ranges
from exactlyonce.reconcile.stream_replay import AttemptEnd, after
from tests.ledgers import P0, STREAM, started
from tests.resource_documents import changed, document
from tests.simulation.database import MemoryDatabase, MemoryLedger
from tests.unit.replay_documents import replay
from tests.unit.test_backfills import (
    GIVEN,
    ORDER,
    ROWS,
    SPANS,
    V2,
    BackfillWorld,
    asked_between,
    backfill_world,
    part,
    source,
)
from tests.unit.test_replay_asked import given
from tests.unit.test_replay_pod import made as manifests_of
from tests.unit.test_replay_pod import read

NOW = datetime(2026, 3, 1, tzinfo=UTC)
INTO = {"table": "public.orders_v2", "backfill": "january"}


def rows(changes: dict[str, Any]) -> str:
    return rows_of(parse_stream(document(changes), "the test").spec)


def test_a_backfill_without_a_name_is_refused() -> None:
    with pytest.raises(ResourceInvalid, match=r"into\.backfill"):
        parse_replay(replay(**given((0, 0, 1)), into={"table": "t"}), "the file")


@pytest.mark.parametrize(
    "changes",
    [
        {"spec.transform": {"sql": "select id + 1 as id from source"}},
        {"spec.source.format.schema": "id BIGINT, customer STRING, amount STRING, ts TIMESTAMP"},
        {"spec.sink.postgres.write": "Upsert", "spec.sink.postgres.keys": ["id"], "spec.sink.postgres.version": "ts"},
        {"spec.sparkConf": {"spark.sql.caseSensitive": "true"}},
    ],
)
def test_other_rows_under_the_name_of_a_backfill_are_refused_by_a_sentence(changes: dict[str, Any]) -> None:
    ledger = MemoryLedger(MemoryDatabase())
    started(ledger)
    planned(ledger, source(), STREAM, ORDER, V2, GIVEN)
    other = order_of("january", "public.orders_v2", SPANS, rows(changes))
    with pytest.raises(BackfillDiffers, match="whose rows are made by another transform, format or way to write"):
        known_backfill(ledger, STREAM, other.name, other.definition)


def test_what_makes_no_other_rows_is_no_other_backfill() -> None:
    same = {
        "spec.source.format.onMalformed": "DeadLetter",
        "spec.sink.postgres.secretRef": {"name": "another"},
        "spec.driver": {"cores": 3},
        "spec.suspend": True,
    }
    assert rows(same) == ROWS


def test_a_streamreplay_says_by_the_transform_that_it_uses_what_rows_it_means() -> None:
    mended = {"sql": "select id from source"}
    plain, other = (read(manifests_of({**given((0, 0, 30)), "into": INTO, **it})) for it in ({}, {"transform": mended}))
    assert plain.backfill is not None
    assert other.backfill is not None
    assert plain.backfill.definition != other.backfill.definition


def test_records_until_a_moment_that_is_yet_to_come_are_refused() -> None:
    require_past(NOW, NOW)
    moments = {"from": "2026-02-01T00:00:00Z", "until": "2026-03-01T12:00:01Z"}
    made = BackfillWorld([], {"mend": replay(**asked_between(moments, "orders_v2"))})
    made.between = Ranges({P0: OffsetRange(10, 40)})
    made.run_pass()
    assert made.status().phase is ReplayPhase.REFUSED
    assert made.status().message.startswith(
        "The backfill is of records until 2026-03-01T12:00:01+00:00, which is yet to come"
    )
    assert made.pods == {}


def test_a_topic_that_is_another_one_when_the_parts_are_recorded_is_refused() -> None:
    ledger = MemoryLedger(MemoryDatabase())
    started(ledger)
    with pytest.raises(BackfillRefused, match="orders was deleted and created again since the ranges"):
        planned(ledger, source(), STREAM, ORDER, V2, dict.fromkeys(SPANS, "id-0"))
    assert known_backfill(ledger, STREAM, ORDER.name, ORDER.definition) is None
    assert planned(ledger, source(), STREAM, ORDER, V2, dict.fromkeys(SPANS, "id-1")).parts


def test_a_topic_that_is_another_one_when_positions_become_parts_is_refused_before_an_attempt() -> None:
    moments = {"from": "2026-02-01T00:00:00Z", "until": "2026-03-01T00:00:00Z"}
    made = BackfillWorld([], {"mend": replay(**asked_between(moments, "orders_v2"))})
    made.between, made.looked_up_in = Ranges({P0: OffsetRange(10, 40)}), "t-0"
    made.run_pass()
    assert "orders was deleted and created again" in made.status().message
    assert made.pods == {}


def test_ids_of_topics_reach_the_process_and_ranges_without_one_are_written_as_before() -> None:
    asked = (AskedRange.given(P0, OffsetRange(0, 9), "id-1"), AskedRange.given(P0, OffsetRange(9, 12)))
    assert parse_asked(render_asked(asked)) == asked
    assert json.loads(render_asked(asked))[1] == [0, "orders", 0, 9, 12]
    found = ReplayDocument(STREAM, {}, "local[1]", (), take_up=asked, backfill=ORDER)
    assert ReplayDocument.parse(found.render()) == found


def test_the_own_table_that_the_resource_names_is_refused_though_no_driver_has_recorded_it() -> None:
    ledger = MemoryLedger(MemoryDatabase())
    started(ledger)
    with pytest.raises(IntoOwnTable):
        planned(ledger, source(), STREAM, ORDER, OtherTable("table orders", "table public.orders"), GIVEN)


@pytest.mark.parametrize(
    "asked",
    [
        {"find": {}},
        {"take_up": (AskedRange.given(P0, OffsetRange(0, 9)),)},
        {"take_up": (AskedRange.given(P0, OffsetRange(0, 9)),), "backfill": ORDER},
        {"backfill": ORDER},
    ],
)
def test_a_release_that_would_ignore_what_is_asked_for_cannot_read_the_document(asked: dict[str, Any]) -> None:
    found = ReplayDocument(STREAM, {}, "local[1]", (), **asked)
    assert "ranges" not in json.loads(found.render()), "which every release has required"
    assert ReplayDocument.parse(found.render()) == found
    assert "ranges" in json.loads(ReplayDocument(STREAM, {}, "local[1]", ()).render())


def test_an_attempt_that_reports_its_end_and_has_recorded_nothing_has_not_succeeded() -> None:
    running = ReplayStatus(phase=ReplayPhase.RUNNING, attempt=1)
    counted = tally_backfill([AskedRange.given(*it) for it in SPANS], None)
    status = after(running, AttemptEnd(ReplayReport(), "It ended."), counted, NOW)
    assert (status.phase, status.message) == (ReplayPhase.FAILED, "0 of 34 records have landed; 34 are not begun.")


@pytest.mark.parametrize(
    ("report", "phase", "message"),
    [
        (ReplayReport(landed=34), ReplayPhase.SUCCEEDED, "34 of 34 records have landed."),
        (None, ReplayPhase.REFUSED, "it asks for something else."),
    ],
)
def test_a_transform_that_is_mended_while_an_attempt_runs_counts_from_the_next_attempt_on(
    report: ReplayReport | None, phase: ReplayPhase, message: str
) -> None:
    made = backfill_world()
    made.run_pass()
    made.land(made.pod(), 34 if report else 7)
    made.end(made.pod(), report)
    assert made.stream is not None
    made.stream = changed(made.stream, {"spec.transform": {"sql": "select id from source"}})
    made.run_pass()
    assert (made.status().phase, made.status().message) == (phase, message)


def test_a_transform_that_is_mended_while_an_attempt_runs_neither_ends_its_pod_nor_keeps_it_from_being_counted() -> (
    None
):
    made = backfill_world()
    made.run_pass()
    made.land(made.pod(), 7)
    assert made.stream is not None
    made.stream = changed(made.stream, {"spec.transform": {"sql": "select id from source"}})
    made.now += COUNT_AGAIN
    made.run_pass()
    assert "drain pod" not in made.effects
    assert made.status().records == Counts(asked=34, replayed=7, put_back=27)
    made.land(made.pod())
    made.end(made.pod(), ReplayReport(landed=34))
    made.run_pass()
    assert (made.status().phase, made.status().message) == (ReplayPhase.SUCCEEDED, "34 of 34 records have landed.")


def test_a_backfill_says_in_how_many_of_the_ranges_that_were_asked_for_the_records_are_that_have_not_landed() -> None:
    made = backfill_world()
    for landed, message, ranges in [
        (0, "What was asked for is being looked for and replayed.", Counts(asked=2)),
        (12, "22 records of 2 ranges are being replayed.", Counts(asked=2, put_back=2)),
        (19, "3 records of 1 range are being replayed.", Counts(asked=2, replayed=1, put_back=1)),
        (2, "1 record of 1 range is being replayed.", Counts(asked=2, replayed=1, put_back=1)),
    ]:
        made.run_pass()
        if landed:
            made.land(made.pod(), landed)
            made.now += COUNT_AGAIN
            made.run_pass()
        assert (made.status().message, made.status().ranges) == (message, ranges)
    parts = [
        part(0, 10, FailureStatus.LOST),
        part(10, 20, FailureStatus.REPLAYED),
        part(30, 40, FailureStatus.REPLAYED),
    ]
    asked = [AskedRange.of(it) for it in parts]
    assert tally_backfill(asked, None).ranges == Amount(2)
    assert tally_backfill(asked, parts).ranges == Amount(2, replayed=1, lost=1)


def test_a_part_that_another_process_has_taken_is_told_as_a_part_of_a_backfill() -> None:
    with pytest.raises(
        RangeNotHeld, match=r"The part 0/orders-0/0 of the backfill .* in the ledger's table backfills tells"
    ):
        require_held(None, (), [Piece(part(0, 30), 30)], of_backfill=True)
    with pytest.raises(RangeNotHeld, match=r"`exactlyonce failures --all` shows"):
        require_held(None, (), [Piece(part(0, 30), 30)])


def test_a_definition_of_another_form_is_one_that_differs() -> None:
    ledger = MemoryLedger(MemoryDatabase())
    started(ledger)
    made = Backfill("january", V2.into, "something else", (part(0, 30),))
    with ledger.transaction() as transaction:
        transaction.write_backfill(STREAM, made)
    with pytest.raises(BackfillDiffers, match=r"which was asked for something else\. To continue it"):
        planned(ledger, source(), STREAM, replace(ORDER), V2, GIVEN)
