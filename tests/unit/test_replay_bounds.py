"""However much a tenant's ledger holds, a pass over its replays reads a bounded part of it, and says so."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from exactlyonce.api.stream_replay_status import ReplayPhase
from exactlyonce.control.bulkheads import Store
from exactlyonce.control.replay_ledger import GuardedReplayLedger
from exactlyonce.launch.replay_pod import asked_in, report_in, sink_in
from exactlyonce.ledger.given_ranges import TooManyRanges
from exactlyonce.ledger.history import RecordedFailure
from exactlyonce.ledger.rows import LandedPositions, LedgerView
from exactlyonce.positions.ranges import Positions
from tests.unit.replay_documents import BEGIN, ROW, failed, replay
from tests.unit.replays_in_memory import Stores
from tests.unit.test_replay_asked import P0, AskedWorld, given


@dataclass
class Crowded:
    """A ledger with as many failed ranges as the test says, which remembers how many it was asked for."""

    ranges: int
    asked: list[tuple[int, int | None]] = field(default_factory=list)

    def view(self, stream_id: str) -> LedgerView:
        return LedgerView(ROW, LandedPositions(Positions({P0: 100}), {}))

    def kept_failures(
        self, stream_id: str, statuses: Any, batches: Any, most: int, most_characters: int | None = None
    ) -> tuple[RecordedFailure, ...]:
        self.asked.append((most, most_characters))
        return (RecordedFailure(failed(1, 0, 1, 2), BEGIN),) * min(self.ranges, most)

    @contextmanager
    def transaction(self) -> Any:
        yield SimpleNamespace(read_set_backs=lambda _: ())


def guarded(ledger: Crowded) -> GuardedReplayLedger:
    return GuardedReplayLedger(ledger, Store("the test's", 1, lambda: 0.0))  # type: ignore[arg-type] # the part that is asked


def test_how_a_stream_stands_is_ten_thousand_ranges_with_a_part_of_each_text_and_of_more_nothing() -> None:
    found = Crowded(10_000)
    assert len(guarded(found).standing("shop/orders").rows) == 10_000
    assert found.asked == [(10_001, 1000)]
    with pytest.raises(TooManyRanges, match=r"shop/orders has more than 10000 failed ranges, .* without dryRun"):
        guarded(Crowded(1_000_000)).standing("shop/orders")


def test_a_dry_run_over_too_many_failed_ranges_ends_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def standing(_: Stores, stream_id: str) -> Any:
        return guarded(Crowded(10_001)).standing(stream_id)

    monkeypatch.setattr(Stores, "standing", standing)
    made = AskedWorld([], {"mend": replay(**given((0, 20, 30)), dryRun=True)})
    status = made.until_final()
    assert status.phase is ReplayPhase.REFUSED
    assert "shop/orders has more than 10000 failed ranges" in status.message


def test_positions_that_are_given_need_no_failed_range_to_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def standing(_: Stores, stream_id: str) -> Any:
        raise AssertionError("every failed range of the stream was asked for")

    made = AskedWorld([], {"mend": replay(**given((0, 20, 30)))}, positions=Positions({P0: 100}))
    monkeypatch.setattr(Stores, "standing", standing)
    made.run_pass()
    assert made.status().phase is ReplayPhase.RUNNING
    assert [str(it.span[1]) for it in made.pod().orders.asked] == ["[20, 30)"]


DEEP = "[" * 100_000
FORGED = [DEEP, "[" * 900 + "]" * 900, "[" + "[]," * 300_000 + "[]]", "[[]]", "7", "null", "{", '"text"']


@pytest.mark.parametrize(
    "text", [*FORGED, '[["1", "orders", 0, 1, 2]]', '[[1, "orders", [], 1, 2]]', '[[1, 2, 0, 1, 2]]', '[[1, "a", 0, 1, "2"]]'],
    ids=lambda it: it[:20],
)  # fmt: skip
def test_a_config_map_that_somebody_has_forged_is_one_that_cannot_be_read(text: str) -> None:
    assert asked_in([{"data": {"asked.json": text}}]) is None
    assert sink_in({"data": {"replay.json": text}}) is None


@pytest.mark.parametrize(
    "text",
    [*FORGED, '{"told": [1]}', '{"told": [], "landed": "7"}', '{"told": [], "problem": {}}', '{"told": [], "left": []}'],
    ids=lambda it: it[:20],
)  # fmt: skip
def test_a_termination_message_that_is_forged_is_no_report(text: str) -> None:
    state = {"terminated": {"message": text, "exitCode": 0}}
    pod = {"status": {"containerStatuses": [{"name": "driver", "state": state}]}}
    assert report_in(pod) is None
