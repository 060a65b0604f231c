"""StreamReplays whose process finds out by itself what it lands: dead letters, and ranges that a reset has skipped."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from exactlyonce.api.stream_replay import parse_replay
from exactlyonce.api.stream_replay_status import Counts, ReplayPhase
from exactlyonce.control.replay_watch import COUNT_AGAIN
from exactlyonce.launch.asked_ranges import Amount, AskedRange, tally_given
from exactlyonce.launch.replay_document import ReplayDocument, ReplayReport
from exactlyonce.launch.replay_pod import token_of
from exactlyonce.ledger.given_ranges import in_rounds, taken_of
from exactlyonce.ledger.history import Overlap, RecordedLetter
from exactlyonce.ledger.letters import LetterRow, LetterStatus, kept_on, replayed, taken_by
from exactlyonce.ledger.replay_rules import Piece, RangeKey, parted
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition, Positions, Ranges
from tests.unit.replay_documents import BEGIN, ROW, WHOLE, failed, replay
from tests.unit.replays_in_memory import Pod, Stores, World
from tests.unit.test_replay_pod import made as manifests_of
from tests.unit.test_replay_pod import read

P0, P1 = Partition("orders", 0), Partition("orders", 1)
TOKEN = token_of("uid-mend")
LETTERS: dict[str, Any] = {"from": {"deadLetters": {}}}


def letter(number: int, error: str = "no number", batch: int = 3) -> RecordedLetter:
    row = LetterRow(("orders", "t-1", 0, number), P0, number, "t-1", BatchNumber(batch), error, ROW.life)
    return RecordedLetter(row, row.status, None, None, None, BEGIN + timedelta(minutes=batch), None, 1)


def given(*spans: tuple[int, int, int]) -> dict[str, Any]:
    positions = [{"topic": "orders", "partition": number, "from": a, "until": b} for number, a, b in spans]
    return {"from": {"ranges": {"positions": positions}}}


def between() -> dict[str, Any]:
    moments = {"from": "2026-03-01T00:00:00Z", "until": "2026-03-02T00:00:00Z"}
    return {"from": {"ranges": {"byTimestamp": moments}}}


@dataclass
class AskedWorld(World):
    """A world whose processes find out by themselves, as in `exactlyonce_spark.replay_asked`, each with a token."""

    started: int = 0

    def land(self, pod: Pod, most: int = WHOLE, fails: Collection[int] = ()) -> int:
        """Be the process of an attempt; it may be killed after so many records, and leaves what it has claimed."""
        self.started += 1
        token = f"{TOKEN}{self.started}"
        asked = parse_replay(self.replays["mend"], "the test").spec.from_
        if asked.dead_letters is not None:
            return self._land_letters(asked.dead_letters, token, most, fails)
        rounds = in_rounds(it.span for it in pod.orders.asked)
        taken: list[RangeKey] = []
        for ranges in rounds:
            found = taken_of(Stores(self).standing(""), ranges, TOKEN)
            changed = {RangeKey.of(row) for row in found.changed}
            self.rows = [row for row in self.rows if RangeKey.of(row) not in changed] + list(found.changed)
            self.refused += found.refused
            taken += [RangeKey.of(row) for row in found.rows]
        return self._land_ranges(taken, token, most, fails)

    def _land_letters(self, asked: Any, token: str, most: int, fails: Collection[int]) -> int:
        wanted = [it.identifier for it in Stores(self).letters("", asked).found]
        landed = 0
        for place, it in enumerate(self.letters):
            if it.identifier not in wanted or landed == most:
                continue
            row = taken_by(it.row, token)
            row = kept_on(row, "as before") if it.row.position in fails else replayed(row)
            self.letters[place] = replace(it, row=row, status=row.status)
            if row.status is LetterStatus.REPLAYED:
                landed += 1
                self.table[row.partition, row.position] += 1
        self.left = len(wanted) - landed
        return landed

    def _land_ranges(self, taken: list[RangeKey], token: str, most: int, fails: Collection[int]) -> int:
        held = [row for row in self.rows if RangeKey.of(row) in taken]
        self.rows = [row for row in self.rows if RangeKey.of(row) not in taken]
        landed = 0
        for row in held:
            rest: FailureRow | None = replace(row, status=FailureStatus.REPLAYING, replay=token)
            while rest is not None and landed < most:
                status = FailureStatus.QUARANTINED if rest.from_offset in fails else FailureStatus.REPLAYED
                done, *left = parted(Piece(rest, rest.from_offset + 1), status)
                self.rows.append(done)
                if status is FailureStatus.REPLAYED:
                    self.table[done.partition, done.from_offset] += 1
                    landed += 1
                rest = left[0] if left else None
            self.rows += [] if rest is None else [rest]
        return landed

    def end(self, pod: Pod, report: ReplayReport | None = None, detail: str = "It was killed.") -> None:
        """End a pod; its report has what the process knows."""
        if report is not None and report.problem is None:
            report = replace(report, left=self.left, told=(*report.told, *self.refused))
        super().end(pod, report, detail)

    left: int = 0
    refused: tuple[str, ...] = ()


def letters_world(**spec: Any) -> AskedWorld:
    found = [letter(1), letter(4), letter(7, "too long", 5)]
    return AskedWorld([], {"mend": replay(**{**LETTERS, **spec})}, letters=found)


def skipped_world(**spec: Any) -> AskedWorld:
    """A stream that stands at 100 and has skipped [20, 50) of partition 0 and [5, 9) of partition 1."""
    rows = [failed(4, 0, 20, 50, FailureStatus.LOST), failed(4, 1, 5, 9, FailureStatus.LOST)]
    return AskedWorld(rows, {"mend": replay(**spec)}, positions=Positions({P0: 100, P1: 100}))


def test_dead_letters_that_fit_land_once_each_whatever_effect_an_operator_dies_before() -> None:
    has_died, died = True, 0
    while has_died:
        made = letters_world()
        made.dies_before = died
        status = made.until_final()
        assert made.table == {(P0, 1): 1, (P0, 4): 1, (P0, 7): 1}, f"died before effect {died}"
        assert (status.phase, status.message) == (ReplayPhase.SUCCEEDED, "3 of 3 records have landed.")
        has_died, died = made.has_died, died + 1
    assert died > 6


@pytest.mark.parametrize(
    ("asked", "lands"),
    [
        ({"errorMatching": "TOO LONG"}, {7}),
        ({"ids": ["orders-0/4"]}, {4}),
        ({"until": "2026-03-01T12:04:00Z"}, {1, 4}),
        ({"from": "2026-03-01T12:04:00Z", "errorMatching": "no number"}, set()),
    ],
)
def test_dead_letters_are_chosen_by_each_field(asked: dict[str, Any], lands: set[int]) -> None:
    made = letters_world(**{"from": {"deadLetters": asked}})
    status = made.until_final()
    assert {offset for _, offset in made.table} == lands
    assert status.phase is ReplayPhase.SUCCEEDED
    if not lands:
        assert status.message == "No dead letter that was asked for is to be replayed."


@pytest.mark.parametrize("landed", [0, 1, 3])
def test_a_pod_of_letters_that_is_killed_is_followed_by_one_and_what_both_have_landed_is_counted_once(
    landed: int,
) -> None:
    made = letters_world()
    made.run_pass()
    made.land(made.pod(), landed)
    made.end(made.pod())
    status = made.until_final()
    assert set(made.table.values()) == {1}
    assert status.records is not None
    assert (status.phase, status.attempt, status.records.replayed) == (ReplayPhase.SUCCEEDED, 2, 3)


def test_what_has_landed_of_an_attempt_that_an_earlier_release_recorded_is_progress() -> None:
    made = letters_world()
    made.run_pass()
    status = {
        key: it for key, it in made.replays["mend"]["status"].items() if key not in ("heldAtStart", "landedAtStart")
    }
    made.replays["mend"]["status"] = {**status, "endings": 3}
    made.land(made.pod(), 1)
    made.now += COUNT_AGAIN
    made.run_pass()
    made.end(made.pod())
    made.run_pass()
    assert (made.status().phase, made.status().endings) == (ReplayPhase.PENDING, 1)


def test_a_letter_that_is_malformed_as_before_is_left_and_the_message_counts_it() -> None:
    made = letters_world()
    made.run_pass()
    made.land(made.pod(), fails={4})
    made.end(made.pod(), ReplayReport(told=("The dead letter orders-0/4 failed again: as before",)))
    status = made.until_final()
    assert status.phase is ReplayPhase.FAILED
    assert status.message == (
        "2 of 3 records have landed; 1 is kept as dead letters still. The dead letter orders-0/4 failed again: as before."
    )


def test_what_a_reset_skipped_of_the_given_ranges_lands_once_whatever_effect_an_operator_dies_before() -> None:
    has_died, died = True, 0
    while has_died:
        made = skipped_world(**given((0, 20, 30), (0, 40, 50), (1, 5, 9)))
        made.dies_before = died
        status = made.until_final()
        assert made.table == dict.fromkeys([*((P0, it) for it in (*range(20, 30), *range(40, 50))),
                                            *((P1, it) for it in range(5, 9))], 1)  # fmt: skip
        assert (status.phase, status.message) == (ReplayPhase.SUCCEEDED, "24 of 24 records have landed.")
        has_died, died = made.has_died, died + 1
    lost = sorted((row.from_offset, row.until_offset) for row in made.rows if row.status is FailureStatus.LOST)
    assert lost == [(30, 40)], "what was not given stays lost"


@pytest.mark.parametrize("landed", [0, 1, 10, 11, 24])
def test_a_pod_that_is_killed_after_it_has_taken_ranges_up_is_followed_by_one_that_lands_the_rest_of_them(
    landed: int,
) -> None:
    made = skipped_world(**given((0, 20, 30), (0, 40, 50), (1, 5, 9)))
    made.run_pass()
    made.land(made.pod(), landed)
    made.end(made.pod())
    status = made.until_final()
    assert len(made.table) == 24
    assert set(made.table.values()) == {1}
    assert (status.phase, status.attempt) == (ReplayPhase.SUCCEEDED, 2)
    assert status.problems == (), "what this very replay has landed is no problem"


def test_what_the_stream_has_landed_or_will_is_refused_by_a_sentence_and_the_rest_lands() -> None:
    made = skipped_world(**given((0, 10, 30), (1, 90, 120)))
    status = made.until_final()
    assert set(made.table) == {(P0, it) for it in range(20, 30)}
    assert status.phase is ReplayPhase.FAILED
    assert status.message.startswith(
        "10 of 50 records have landed; 40 are left alone, since they have landed, or the stream lands them itself. orders-0 "
        "[10, 20) has landed, or lies before the stream's start"
    )
    assert any("orders-1 [90, 120) ends beyond 100" in it for it in status.problems)


def test_while_given_ranges_land_the_ledger_sums_what_has_landed_and_no_failure_is_fetched() -> None:
    made = skipped_world(**given((0, 20, 30), (1, 5, 9)))
    made.run_pass()
    made.land(made.pod(), 7)
    made.rows.append(replace(failed(5, 0, 60, 80, FailureStatus.REPLAYED), replay="uid-another/1"))
    fetched = made.asked_of_ledger
    made.now += COUNT_AGAIN
    made.run_pass()
    assert made.asked_of_ledger == fetched
    assert (made.status().records, made.status().progressed_at) == (Counts(asked=14, replayed=7), made.now)
    made.end(made.pod())
    made.run_pass()
    assert made.status().records == Counts(asked=14, replayed=7, put_back=7)


def test_what_lies_between_two_times_is_looked_up_once_and_the_rest_is_left_without_a_word() -> None:
    made = skipped_world(**between())
    made.between = Ranges({P0: OffsetRange(10, 40)})
    made.run_pass()
    made.land(made.pod(), 7)
    made.end(made.pod())
    made.between = Ranges({P0: OffsetRange(35, 40)})  # retention has moved on
    made.refused = ()
    assert made.pod().orders.asked == (AskedRange.given(P0, OffsetRange(10, 40)),)
    made.run_pass()
    made.now += timedelta(minutes=5)
    made.run_pass()
    assert made.pod(2).orders.asked == made.pod(1).orders.asked
    made.end(made.pod(2), ReplayReport(landed=made.land(made.pod(2)), problem=None))
    assert {offset for _, offset in made.table} == set(range(20, 40))


def test_a_dry_run_shows_letters_and_ranges_and_changes_nothing() -> None:
    made = letters_world(dryRun=True)
    status = made.until_final()
    assert status.message.startswith("3 of 3 dead letters can be replayed. Nothing was changed")
    assert [it.id for it in status.shown] == ["orders-0/1", "orders-0/4", "orders-0/7"]
    made = skipped_world(**given((0, 10, 30)), dryRun=True)
    status = made.until_final()
    assert (status.phase, status.attempt, [it.id for it in status.shown]) == (ReplayPhase.FAILED, 0, ["4/orders-0/20"])
    assert "orders-0 [10, 20) has landed" in status.message
    assert {row.status for row in made.rows} == {FailureStatus.LOST}


def test_an_attempt_carries_what_its_process_finds_by_itself_and_a_token_that_all_attempts_share() -> None:
    document = read(manifests_of({"from": {"deadLetters": {"errorMatching": "no number"}}}))
    assert (document.find, document.by) == ({"ids": [], "errorMatching": "no number"}, TOKEN)
    document = read(manifests_of(given((0, 10, 20))))
    assert (len(document.take_up), document.tells_refused, document.find) == (2, True, None)
    assert read(manifests_of(between())).tells_refused is False
    assert ReplayDocument.parse(document.render()) == document


def test_another_replays_landing_of_a_given_range_is_told_and_its_own_is_not() -> None:
    mine, other = (replace(failed(4, 0, a, b, FailureStatus.REPLAYED), replay=it) for a, b, it in [
        (20, 30, f"{TOKEN}1"), (30, 50, "uid-another/1"),
    ])  # fmt: skip
    made = skipped_world()
    made.rows = [mine, other]
    found = taken_of(Stores(made).standing(""), Ranges({P0: OffsetRange(20, 40)}), TOKEN)
    assert (found.rows, found.changed) == ((), ())
    assert found.refused == ("orders-0 [30, 40) has landed, in whole or in part: a replay has landed 4/orders-0/30.",)


def test_what_another_replay_has_landed_of_the_given_ranges_is_not_counted_as_this_ones() -> None:
    made = skipped_world(**given((0, 20, 50)))
    made.rows = [
        replace(failed(4, 0, 20, 30, FailureStatus.REPLAYED), replay="uid-another/1"),
        failed(4, 0, 30, 50, FailureStatus.LOST),
    ]
    status = made.until_final()
    assert status.message.startswith("20 of 30 records have landed; 10 are left alone,")
    assert set(made.table) == {(P0, it) for it in range(30, 50)}


def test_attempts_of_letters_that_land_something_do_not_use_up_the_attempts() -> None:
    made = letters_world()
    made.letters = [letter(number) for number in range(12)]
    for attempt in range(1, 10):
        made.run_pass()
        made.land(made.pod(attempt), 1)
        made.end(made.pod(attempt))
        made.run_pass()
        made.now += timedelta(minutes=5)
    assert made.until_final().message == "12 of 12 records have landed."
    assert set(made.table.values()) == {1}


def test_rows_of_the_ledger_with_a_partition_that_nobody_asked_for_end_no_pass_of_the_operator() -> None:
    asked = (AskedRange.given(P0, OffsetRange(0, 9)),)
    found = [
        Overlap(P0, 0, FailureStatus.LOST, 2),
        Overlap(Partition("orders", "a name"), 0, FailureStatus.QUARANTINED, 9),
        Overlap(P0, 1, FailureStatus.QUARANTINED, 9),
    ]
    assert tally_given(asked, found).records == Amount(asked=9, lost=2)
