"""What a pass over a replay asks of ledger and source is bounded: in queries, in memory and in time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from exactlyonce.control import replay_found
from exactlyonce.control.bulkheads import Store
from exactlyonce.control.deadline import Deadline
from exactlyonce.control.replay_ledger import GuardedReplayLedger
from exactlyonce.control.replay_stores import ClusterReplayStores
from exactlyonce.launch.asked_ranges import AskedRange
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.history import RecordedFailure
from exactlyonce.ledger.replay_rules import Held
from exactlyonce.ledger.rows import FailureRow
from exactlyonce.reconcile.replay_choice import told_of
from tests.unit.replay_documents import BEGIN, ROW, failed


def store() -> Store:
    return Store("the test's", 1, lambda: 0.0)


class OneQuery:
    """A ledger that remembers its questions."""

    def __init__(self) -> None:
        self.questions: list[tuple[Any, ...]] = []

    def kept_failures(self, stream_id: str, *question: Any, **more: Any) -> tuple[RecordedFailure, ...]:
        self.questions.append((*question[1:], *more.values()))
        return ()

    def parts_of(self, stream_id: str, statuses: Any, *question: Any) -> tuple[FailureRow, ...]:
        self.questions.append(question)
        return ()


def test_two_thousand_ranges_are_one_question_and_no_error_comes_whole() -> None:
    opened = OneQuery()
    asked = [AskedRange.of(failed(number, 0, number, number + 1)) for number in range(2000)]
    ledger = GuardedReplayLedger(opened, store())  # type: ignore[arg-type] # it is asked for nothing else
    ledger.parts_of("shop/orders", HELD, asked)
    ledger.choice("shop/orders", HELD, None)
    assert opened.questions == [(asked, 10_000), (None, 10_000, 1000)]


def test_a_dry_run_of_a_slow_source_ends_and_says_how_many_ranges_it_has_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = [0.0]

    def facts_of(_: Any, rows: list[FailureRow]) -> None:
        seconds[0] += 25.0

    monkeypatch.setattr(replay_found, "facts_of", facts_of)
    monkeypatch.setattr(replay_found, "finding_of", lambda _row, _facts: Held())
    monkeypatch.setattr(ClusterReplayStores, "_source", lambda *_: (None, store()))
    rows = [RecordedFailure(failed(number, 0, number, number + 1), BEGIN) for number in range(100)]
    stores = ClusterReplayStores(SimpleNamespace(), Deadline(lambda: seconds[0]))  # type: ignore[arg-type]
    shown = stores.shown(None, rows, ROW.life)  # type: ignore[arg-type] # the source is the test's
    assert seconds == [75.0]
    assert len(shown) == 100
    assert told_of(shown).startswith("3 of 100 ranges can be replayed: 3 records. 97 of the others were not looked at")
