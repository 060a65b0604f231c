"""A pass over replays ends in time, however slowly a tenant's stores answer, and a replay says what was not looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from exactlyonce.api.stream_replay import AskedLetters
from exactlyonce.api.stream_replay_status import ReplayPhase
from exactlyonce.connectors.postgres.connection import MARGIN_SECONDS, Limits
from exactlyonce.control import health, replay_stores
from exactlyonce.control.bulkheads import Bulkheads, Store
from exactlyonce.control.deadline import NEVER, Deadline
from exactlyonce.control.replay_found import found_in
from exactlyonce.control.replay_keys import replays_of
from exactlyonce.control.replay_ledger import LOOKS_SECONDS, GuardedReplayLedger
from exactlyonce.control.replay_stores import PASS_SECONDS, ClusterReplayStores
from exactlyonce.control.wakeups import Key
from exactlyonce.errors import OriginMissing, PassTooLong
from exactlyonce.launch.asked_letters import LookedTooLong
from exactlyonce.launch.backfill import BackfillRefused, parts_of
from exactlyonce.ledger.history import RecordedFailure
from exactlyonce.positions.ranges import OffsetRange, Partition
from exactlyonce.reconcile.replay_choice import NOT_LOOKED_AT
from exactlyonce.source.port import Bounds, SourceView
from tests.unit.replay_documents import BEGIN, failed, replay
from tests.unit.replays_in_memory import Stores
from tests.unit.test_replay_asked import AskedWorld, letter, letters_world

P0 = Partition("orders", 0)


@dataclass
class Slow:
    """A clock, and a ledger and a source that let so many seconds pass with each question."""

    seconds: float
    letters: int = 0
    now: float = 0.0
    asked: int = 0
    keys: list[Any] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def answer(self) -> None:
        self.now += self.seconds
        self.asked += 1

    def kept_letters(self, stream_id: str, place: Any, after: Any, most: int, most_bytes: Any) -> Any:
        self.answer()
        if place is not None:
            return () if after is not None else (letter(place.position),)
        first = 0 if after is None else after[3] + 1
        return tuple(letter(number) for number in range(first, min(first + most, self.letters)))

    def view(self, also: frozenset[Partition], _offsets: Mapping[Partition, int]) -> SourceView:
        self.answer()
        return SourceView({P0: Bounds(0, 1_000_000)}, {}, frozenset({P0}))

    def now_at(self, _partitions: Any) -> Any:
        self.answer()
        raise OriginMissing("There is no topic gone")

    def deadline(self, seconds: float = LOOKS_SECONDS) -> Deadline:
        return Deadline(self.clock).within(seconds)

    def ledger(self, deadline: Deadline | None = None) -> GuardedReplayLedger:
        found: Any = self
        return GuardedReplayLedger(found, Store("the test's", 1, lambda: 0.0), deadline or Deadline(self.clock))


def asked(**values: Any) -> AskedLetters:
    return AskedLetters.model_validate(values)


def test_a_dry_run_of_letters_looks_at_ten_thousand_and_says_that_there_are_more() -> None:
    found = Slow(0.0, letters=1_000_000)
    looked = found.ledger().letters("shop/orders", asked(errorMatching="no such error"))
    assert (looked.found, looked.looked_at, looked.is_all) == ((), 10_000, False)
    assert found.asked <= 21
    few = Slow(0.0, letters=700)
    whole = few.ledger().letters("shop/orders", asked())
    assert (len(whole.found), whole.is_all) == (700, True)


def test_a_dry_run_of_letters_ends_within_its_time_and_says_what_it_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Slow(25.0, letters=1_000_000)
    monkeypatch.setattr(Stores, "letters", lambda self, stream_id, wanted: found.ledger().letters(stream_id, wanted))
    status = letters_world(dryRun=True).until_final()
    assert found.now <= LOOKS_SECONDS + 25
    assert "Only the first 1000 of the stream's dead letters were looked at." in status.message


def test_letters_that_are_long_are_not_all_kept_to_be_shown() -> None:
    found = Slow(0.0, letters=1_000_000)
    long = "x" * 1_000_000
    found.kept_letters = lambda *_: (letter(1, long),) * 10  # type: ignore[method-assign]
    looked = found.ledger().letters("shop/orders", asked())
    assert (len(looked.found) < 30, looked.is_all) == (True, False)


def test_letters_that_are_named_and_not_found_in_time_end_the_dry_run_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, ids = Slow(10.0), [f"orders-0/{number}" for number in range(1000)]
    with pytest.raises(LookedTooLong, match=r"of the 1000 dead letters that are named were found in time"):
        found.ledger().letters("shop/orders", asked(ids=ids))
    assert found.now <= LOOKS_SECONDS + 30
    again = Slow(10.0)
    monkeypatch.setattr(Stores, "letters", lambda self, stream_id, wanted: again.ledger().letters(stream_id, wanted))
    made = letters_world(dryRun=True, **{"from": {"deadLetters": {"ids": ids}}})
    status = made.until_final()
    assert status.phase is ReplayPhase.REFUSED
    assert "named were found in time" in status.message


def test_a_backfill_of_many_ranges_of_a_slow_source_is_refused_by_a_sentence() -> None:
    source: Any = Slow(14.0)
    looks = source.deadline()
    source.address = "kafka"
    spans = [(P0, OffsetRange(number * 10, number * 10 + 5)) for number in range(100)]
    with pytest.raises(BackfillRefused, match=r"asked about 5 of the 100 ranges of a partition in time"):
        parts_of(source, spans, lambda: not looks.is_over)
    assert source.now <= LOOKS_SECONDS + 14


def test_ranges_of_which_an_origin_is_missing_are_asked_about_one_by_one_until_the_time_is_over() -> None:
    slow = Slow(14.0)
    source: Any = SimpleNamespace(now=slow.now_at)
    rows = [RecordedFailure(failed(1, number, 0, 5), BEGIN) for number in range(100)]
    shown = list(found_in(source, rows, slow.deadline()))
    assert slow.now <= LOOKS_SECONDS + 14
    assert len(shown) == 100
    assert [it.words for it in shown].count(NOT_LOOKED_AT) == 96
    assert shown[0].words == "There is no topic gone"


def test_a_pass_asks_no_store_once_its_time_is_over() -> None:
    slow = Slow(0.0)
    assembly: Any = SimpleNamespace()
    stores = ClusterReplayStores(assembly, Deadline(slow.clock)).for_a_pass()
    ledger = slow.ledger(stores.deadline)
    ledger.letters("shop/orders", asked())
    slow.now = PASS_SECONDS + 1
    calls: list[Any] = [
        lambda: ledger.row("shop/orders"),
        lambda: ledger.parts_of("shop/orders", (), ()),
        lambda: ledger.overlaps_of("shop/orders", (), (), ""),
        lambda: ledger.choice("shop/orders", (), None),
        lambda: ledger.summed("shop/orders", (), ()),
        lambda: ledger.letters("shop/orders", asked()),
        lambda: ledger.replayed_letters("shop/orders", ""),
        lambda: ledger.standing("shop/orders"),
        lambda: ledger.positions("shop/orders"),
        lambda: ledger.sink("shop/orders"),
    ]
    for call in calls:
        with pytest.raises(PassTooLong):
            call()
    assert NEVER.within(1).until < NEVER.until


def test_the_longest_pass_over_replays_is_below_what_the_liveness_probe_condemns() -> None:
    limits = Limits()
    a_question = 2 * (limits.answer_seconds + MARGIN_SECONDS) + limits.reach_seconds
    of_a_page_of_letters, of_how_a_stream_stands = 5 * a_question, 2 * a_question + limits.longest_seconds
    assert PASS_SECONDS + max(of_a_page_of_letters, of_how_a_stream_stands) < health._STUCK_PASS_SECONDS


def test_a_dry_run_that_takes_longer_than_a_pass_may_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def over(*_: Any) -> Any:
        raise PassTooLong("too long")

    monkeypatch.setattr(Stores, "letters", over)
    status = letters_world(dryRun=True).until_final()
    assert status.phase is ReplayPhase.REFUSED
    assert status.message.startswith("The stores of this stream have answered too slowly for a dry run")


def test_each_pass_has_a_time_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Stores] = []
    monkeypatch.setattr(Stores, "for_a_pass", lambda self: begun.append(self) or self)  # type: ignore[func-returns-value] # a list that notes
    made = AskedWorld([failed(1, 0, 0, 5)], {"mend": replay()})
    made.run_pass()
    made.run_pass()
    assert len(begun) == 2


def test_replays_of_streams_with_a_slow_source_have_half_of_the_workers_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow(0.0)
    bulkheads = Bulkheads(4, slow.clock)
    of_ledger = SimpleNamespace(store_name=lambda namespace: f"ledger of {namespace}")
    of_source = SimpleNamespace(store_name=lambda namespace: f"source of {namespace}", open=lambda: slow)
    monkeypatch.setattr(replay_stores, "source_in_reach", lambda *_: of_source)
    assembly: Any = SimpleNamespace(
        shared=SimpleNamespace(bulkheads=bulkheads, clients=SimpleNamespace(ledger=lambda address: slow)),
        address_of_ledger=lambda spec, namespace: of_ledger,
        secret=lambda *_: {},
        sources=None,
    )
    keys = [Key("shop", f"orders-{number}") for number in range(3)]
    for key in keys:
        metadata, spec = SimpleNamespace(namespace=key.namespace, name=key.name), SimpleNamespace(source=None)
        stream: Any = SimpleNamespace(metadata=metadata, spec=spec)
        stores = ClusterReplayStores(assembly, Deadline(slow.clock))
        stores.ledger(stream)
        stores.parts(stream, ())
        stores.parts(stream, ())
    replays = [replays_of(key) for key in keys]
    assert bulkheads.may_run(replays[2], replays[:2])
    with bulkheads.store("source of shop").entered():
        slow.now += 4
    assert not bulkheads.may_run(replays[2], replays[:2])
    assert bulkheads.may_run(replays[2], replays[:1])
