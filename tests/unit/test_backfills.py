"""Backfills into another table: what is recorded of one, what is refused with one sentence, and passes over a StreamReplay."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
from click.testing import CliRunner

from exactlyonce.api.resource import ResourceInvalid, parse_stream
from exactlyonce.api.stream_replay import parse_replay
from exactlyonce.api.stream_replay_status import ReplayPhase
from exactlyonce.cli import backfill
from exactlyonce.cli.main import main
from exactlyonce.launch.asked_ranges import AskedRange
from exactlyonce.launch.backfill import (
    BackfillRefused,
    into_table,
    landing_place_of,
    order_between,
    order_of,
    parts_of,
    planned,
    rows_of,
)
from exactlyonce.launch.replay_document import ReplayDocument, ReplayReport
from exactlyonce.launch.replay_pod import backfill_of
from exactlyonce.ledger.backfills import OF_NO_BATCH, Backfill, parts_from_json
from exactlyonce.ledger.fence import claim_epoch, raise_epoch
from exactlyonce.ledger.other_tables import IntoOwnTable, OtherTable
from exactlyonce.ledger.planned_backfills import BackfillDiffers
from exactlyonce.ledger.replay import ReplayClaim, claim_ranges, land_pieces
from exactlyonce.ledger.replay_rules import Piece, parted
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import Epoch, OffsetRange, Ranges
from exactlyonce.reconcile.replay_choice import NOTHING_BETWEEN
from exactlyonce.source.port import Bounds, Source, SourceView
from tests.ledgers import P0, P1, STREAM, new_stream, started
from tests.resource_documents import document
from tests.simulation.database import MemoryDatabase, MemoryLedger
from tests.unit.replay_documents import WHOLE, replay
from tests.unit.replays_in_memory import Pod, World
from tests.unit.test_replay_asked import AskedWorld, given
from tests.unit.test_replay_pod import made as manifests_of
from tests.unit.test_replay_pod import read

SPANS = [(P0, OffsetRange(0, 30)), (P1, OffsetRange(5, 9))]
ROWS = rows_of(parse_stream(document(), "the test").spec)
ORDER = order_of("january", "public.orders_v2", SPANS, ROWS)
GIVEN = dict.fromkeys(SPANS, "")
V2 = OtherTable("table public.orders_v2", "table public.orders")
LAST = Fingerprint(29, "digest", 1, 2)


def part(
    begin: int, until: int, status: FailureStatus = FailureStatus.QUARANTINED, mark: Fingerprint | None = None
) -> FailureRow:
    return FailureRow(OF_NO_BATCH, P0, begin, until, status, "brokers", "", origin_id="id-1", fingerprint=mark)


def asked_between(moments: dict[str, str], table: str) -> dict[str, Any]:
    return {"from": {"ranges": {"byTimestamp": moments}}, "into": {"table": table, "backfill": "mend"}}


def source(earliest: int = 0, latest: int = 50) -> Source:
    """A source of two partitions with these bounds."""

    def view(asked: frozenset[Any], offsets: Any) -> SourceView:
        held = {key: Bounds(earliest, latest) for key in asked if key in (P0, P1)}
        marks = {key: replace(LAST, offset=at) for key, at in offsets.items()}
        return SourceView(held, {"orders": "id-1"}, frozenset(held), records=marks)

    return cast("Source", SimpleNamespace(view=view, address="brokers"))


def test_neighbours_that_have_landed_become_one_and_a_record_comes_back_as_it_was_written() -> None:
    backfill = Backfill("january", "table t", "", (part(0, 30, mark=LAST),))
    for begin, until in ((0, 10), (20, 30), (10, 20)):
        rest = [part(until, 20)] if until == 10 else []
        backfill = backfill.changed([part(begin, until, FailureStatus.REPLAYED, LAST if until == 30 else None), *rest])
    assert [(it.from_offset, it.until_offset, str(it.status)) for it in backfill.parts] == [(0, 30, "Replayed")]
    assert parts_from_json(backfill.to_json()) == backfill.parts
    assert backfill.parts[0].fingerprint == LAST
    assert backfill.has_landed(part(3, 30))
    assert not backfill.has_landed(part(3, 31))
    apart = backfill.changed([part(40, 50, FailureStatus.LOST)])
    assert len(apart.parts) == 2


def test_no_two_parts_of_a_backfill_hold_the_same_record() -> None:
    with pytest.raises(ValueError, match="two parts of the backfill january hold"):
        Backfill("january", "table t", "", (part(0, 30),)).changed([part(29, 40)])


def test_what_the_source_does_not_hold_is_refused_by_a_sentence_for_each_range() -> None:
    with pytest.raises(BackfillRefused) as caught:
        parts_of(source(10, 20), [*SPANS, (replace(P0, key=9), OffsetRange(0, 5))])
    assert str(caught.value) == (
        "orders-0 [0, 30) begins before 10, the first record that the source holds; begin there; orders-1 [5, 9) begins before "
        "10, the first record that the source holds; begin there; orders-9 is not a partition that the source has now; name "
        "one that it has"
    )
    with pytest.raises(
        BackfillRefused, match=r"orders-0 \[0, 30\) ends behind 20, where the source ends now; end there"
    ):
        parts_of(source(0, 20), SPANS)
    found = parts_of(source(), SPANS)
    assert [(it.fingerprint.offset, it.origin_id, it.life) for it in found if it.fingerprint] == [
        (29, "id-1", ""),
        (8, "id-1", ""),
    ]


def test_the_streams_own_table_and_what_is_no_table_are_refused_with_the_way() -> None:
    spec = parse_stream(document({"spec.source.format.onMalformed": "DeadLetter"}), "the test").spec
    other = into_table(spec, "public.orders_v2")
    assert (landing_place_of(other), landing_place_of(spec)) == ("table public.orders_v2", "table public.orders")
    assert str(other.source.format.on_malformed) == "Fail", "dead letters are the stream's own"
    assert other.sink.spec.secret_ref == spec.sink.spec.secret_ref
    with pytest.raises(BackfillRefused, match="replay it without naming a table"):
        into_table(spec, "public.orders")
    with pytest.raises(BackfillRefused, match="is not a table to backfill into"):
        into_table(spec, "a.b.c.d")
    files = parse_stream(document({"spec.sink": {"files": {"path": "/lake"}}}), "the test").spec
    with pytest.raises(BackfillRefused, match="takes no backfill into another table"):
        into_table(files, "public.orders_v2")


def test_a_backfill_is_recorded_once_and_one_of_its_name_that_asks_for_something_else_is_refused() -> None:
    ledger = MemoryLedger(MemoryDatabase())
    started(ledger)
    first = planned(ledger, source(), STREAM, ORDER, V2, GIVEN)
    assert planned(ledger, source(40, 50), STREAM, ORDER, V2, {}) == first, "and not looked up again"
    with pytest.raises(BackfillDiffers, match="has a backfill 'january' already, which was asked for"):
        planned(ledger, source(), STREAM, order_of("january", "public.orders_v2", SPANS[:1], ROWS), V2, {SPANS[0]: ""})
    raise_epoch(ledger, new_stream(ledger), Epoch(2), "ticket")
    claim_epoch(ledger, STREAM, Epoch(2), "claim-2", "ticket", sink="table public.orders_v2")
    with pytest.raises(IntoOwnTable, match=r"itself lands into table public\.orders_v2"):
        planned(ledger, source(), STREAM, replace(ORDER, name="february"), V2, GIVEN)


def test_a_backfill_lands_nothing_more_once_the_stream_itself_lands_there() -> None:
    ledger = MemoryLedger(MemoryDatabase())
    started(ledger)
    planned(ledger, source(), STREAM, ORDER, V2, GIVEN)
    claim = ReplayClaim(STREAM, "mine", "table public.orders_v2", "january")
    first, second = claim_ranges(ledger, claim, ()).rows
    assert land_pieces(ledger, claim, [Piece(first, 12)], lambda _: 12) == 12
    raise_epoch(ledger, new_stream(ledger, "another-life"), Epoch(2), "ticket")
    assert land_pieces(ledger, claim, [Piece(second, 9)], lambda _: 4) == 4
    claim_epoch(ledger, STREAM, Epoch(2), "claim-2", "ticket", sink="table public.orders_v2")
    written = mock.Mock(return_value=18)
    with pytest.raises(IntoOwnTable):
        land_pieces(ledger, claim, [Piece(replace(first, from_offset=12), 30)], written)
    assert written.called, "whose table it is was asked once its rows were there, and it could not change any more"


def test_a_streamreplay_and_a_command_that_ask_for_the_same_mean_one_backfill() -> None:
    asked = given((1, 5, 9), (0, 0, 30))
    into = {"table": "public.orders_v2", "backfill": "january"}
    assert backfill_of(parse_replay(replay(**asked, into=into), "the test"), ROWS) == ORDER
    moments = {"from": "2026-01-01T01:00:00+01:00", "until": "2026-01-02T00:00:00Z"}
    by_time = parse_replay(replay(**asked_between(moments, "t")), "the test")
    begin, until = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    assert backfill_of(by_time, ROWS) == order_between("mend", "t", begin, until, ROWS)
    read_back = read(manifests_of({**asked, "into": into}))
    assert (read_back.backfill, len(read_back.take_up)) == (ORDER, 2)
    assert ReplayDocument.parse(read_back.render()) == read_back


def test_the_error_of_a_part_that_is_left_does_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    parts = [replace(part(0, 30), error="the server\x1b[2J says no"), part(30, 40, FailureStatus.REPLAYED)]
    assert backfill._show(ORDER, parts, str) == 30
    first, last = capsys.readouterr().out.splitlines()
    assert first == "orders-0 [0, 30), which failed: the server [2J says no"
    assert last == "Of the backfill january into public.orders_v2, 10 records have landed, 30 are left."


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"into": {"table": "t", "backfill": "b"}},
            "into needs from.ranges: a backfill lands ranges that are given by hand",
        ),
        ({**given((0, 0, 1)), "into": {"table": "t", "backfill": "One"}}, "write lowercase letters, digits"),
    ],
)
def test_an_invalid_backfill_is_refused_with_a_sentence(spec: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ResourceInvalid) as caught:
        parse_replay(replay(**spec), "the file")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [["--into", "t"], ["--from", "ranges", "--ranges", "{}", "--backfill", "b"], ["--into", "t", "--backfill", "b"]],
)
def test_a_command_wants_table_name_and_ranges_together(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["replay", "examples/orders.yaml", *arguments])
    assert result.exit_code == 2
    assert "Give --into and --backfill together, and with --from ranges." in result.stderr


@dataclass
class BackfillWorld(AskedWorld):
    """A world whose process lands a backfill; its table is that of the oracle."""

    def land(self, pod: Pod, most: int = WHOLE, fails: Collection[int] = ()) -> int:
        """Plan, unless that was done, and land so many records."""
        order = backfill_of(parse_replay(self.replays["mend"], "the test"), ROWS)
        assert order is not None
        rows = tuple(replace(part(it.from_offset, it.until_offset), partition=it.partition) for it in pod.orders.asked)
        backfill = self.backfills.setdefault(order.name, Backfill(order.name, "table t", order.definition, rows))
        landed = 0
        for row in backfill.parts:
            if row.status is FailureStatus.REPLAYED:
                continue
            rest = [row]
            while rest and landed < most:
                place, lands = rest[0].from_offset, rest[0].from_offset not in fails
                status = FailureStatus.REPLAYED if lands else FailureStatus.QUARANTINED
                done, *rest = parted(Piece(rest[0], place + 1), status)
                self.backfills[order.name] = self.backfills[order.name].changed([done, *rest])
                if lands:
                    self.table[row.partition, place] += 1
                    landed += 1
        return landed

    def end(self, pod: Pod, report: ReplayReport | None = None, detail: str = "It was killed.") -> None:
        """End a pod."""
        World.end(self, pod, report, detail)


def backfill_world(**spec: Any) -> BackfillWorld:
    return BackfillWorld(
        [],
        {
            "mend": replay(
                **{**given((0, 0, 30), (1, 5, 9)), "into": {"table": "orders_v2", "backfill": "mend"}, **spec}
            )
        },
    )


ASKED = {*((P0, it) for it in range(30)), *((P1, it) for it in range(5, 9))}


def test_a_backfill_lands_each_record_once_whatever_effect_an_operator_dies_before() -> None:
    has_died, died = True, 0
    while has_died:
        made = backfill_world()
        made.dies_before = died
        status = made.until_final()
        assert made.table == dict.fromkeys(ASKED, 1), f"died before effect {died}"
        assert (status.phase, status.message) == (ReplayPhase.SUCCEEDED, "34 of 34 records have landed.")
        has_died, died = made.has_died, died + 1
    assert died > 6


@pytest.mark.parametrize("landed", [0, 1, 30, 34])
def test_a_backfill_whose_pod_is_killed_is_continued_by_the_next_one(landed: int) -> None:
    made = backfill_world()
    made.run_pass()
    made.land(made.pod(), landed)
    made.end(made.pod())
    status = made.until_final()
    assert made.table == dict.fromkeys(ASKED, 1)
    assert (status.phase, status.attempt) == (ReplayPhase.SUCCEEDED, 1 if landed == 34 else 2)


def test_another_streamreplay_of_the_name_lands_what_is_left_and_one_that_asks_for_nothing_new_nothing() -> None:
    made = backfill_world()
    made.run_pass()
    made.land(made.pod(), 7, fails={3})
    made.end(made.pod(), ReplayReport(landed=7, failed=1, told=("The record 0/orders-0/3 failed again: no.",)))
    assert made.until_final().message == (
        "7 of 34 records have landed; 27 are not landed yet, and another StreamReplay with this `backfill` name "
        "tries again. The record 0/orders-0/3 failed "
        "again: no."
    )
    made.replays["mend"] = replay(
        **{**given((0, 0, 30), (1, 5, 9)), "into": {"table": "orders_v2", "backfill": "mend"}}
    )
    made.pods.clear()
    assert made.until_final().message == "34 of 34 records have landed."
    assert made.table == dict.fromkeys(ASKED, 1)


def test_a_dry_run_of_a_backfill_changes_nothing_and_the_streams_own_table_is_refused() -> None:
    made = backfill_world(dryRun=True)
    status = made.until_final()
    assert (status.phase, made.backfills, made.pods) == (ReplayPhase.SUCCEEDED, {}, {})
    assert status.message.startswith("34 of 34 records are to be landed into orders_v2. Nothing was changed")
    made = backfill_world(into={"table": "public.orders", "backfill": "mend"})
    made.run_pass()
    assert made.status().phase is ReplayPhase.REFUSED
    assert "is the table of the stream itself" in made.status().message


def test_a_dry_run_of_a_backfill_between_two_times_without_a_record_says_so() -> None:
    moments = {"from": "2026-02-01T00:00:00Z", "until": "2026-03-01T00:00:00Z"}
    made = BackfillWorld([], {"mend": replay(**asked_between(moments, "orders_v2"), dryRun=True)})
    status = made.until_final()
    assert (status.phase, status.message) == (ReplayPhase.SUCCEEDED, NOTHING_BETWEEN)


def test_what_lies_between_two_times_is_carried_by_the_first_attempt_and_recorded_by_its_process() -> None:
    moments = {"from": "2026-02-01T00:00:00Z", "until": "2026-03-01T00:00:00Z"}
    made = BackfillWorld([], {"mend": replay(**asked_between(moments, "orders_v2"))})
    made.between = Ranges({P0: OffsetRange(10, 40)})
    made.run_pass()
    assert made.pod().orders.asked == (AskedRange.given(P0, OffsetRange(10, 40), "t-1"),)
    made.between = Ranges({P0: OffsetRange(35, 40)})
    made.end(made.pod())
    assert made.until_final().message == "30 of 30 records have landed."


def test_a_streamreplay_that_continues_a_backfill_takes_what_is_recorded_and_looks_nothing_up_again() -> None:
    moments = {"from": "2026-02-01T00:00:00Z", "until": "2026-03-01T00:00:00Z"}
    made = BackfillWorld([], {"mend": replay(**asked_between(moments, "orders_v2"))})
    order = backfill_of(parse_replay(made.replays["mend"], "the test"), ROWS)
    assert order is not None
    parts = (part(10, 20, FailureStatus.REPLAYED), part(20, 40))
    made.backfills["mend"] = Backfill("mend", "table orders_v2", order.definition, parts)
    made.between = Ranges({P0: OffsetRange(35, 60)})
    made.run_pass()
    assert [it.span for it in made.pod().orders.asked] == [(P0, OffsetRange(10, 20)), (P0, OffsetRange(20, 40))]
    assert made.until_final().message == "30 of 30 records have landed."
    assert set(made.table) == {(P0, it) for it in range(20, 40)}
