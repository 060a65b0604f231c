"""What a replay into a sink of two phases is protected by, taken away piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from exactlyonce.ledger import replay, replay_decisions
from exactlyonce.ledger.replay_decisions import Standing
from exactlyonce_spark import load_outcome, replay_loads
from exactlyonce_spark.replay_load_target import NumberCommitted
from exactlyonce_spark.target import LoadState
from tests.simulation.loads_replay_world import StoreReplayTarget
from tests.simulation.numbered_loads import OneProducerTarget


@contextmanager
def a_replay_commits_its_load_before_the_decision() -> Iterator[None]:
    """Replays into loads: a replay commits a load once it is prepared, and then the ledger compares its claim and decides."""
    decide = replay.decide_pieces

    def commit_first(ledger: Any, claim: Any, pieces: Any, decision: Any, seen: Any) -> None:
        commits[0](decision.load)
        decide(ledger, claim, pieces, decision, seen)

    commits: list[Any] = []
    prepare = StoreReplayTarget.prepare_load

    def prepared(self: StoreReplayTarget, number: int, batch: Any, rows: Any) -> Any:
        commits[:] = [self.loads.commit]
        return prepare(self, number, batch, rows)

    with (
        mock.patch.object(StoreReplayTarget, "prepare_load", prepared),
        mock.patch.object(replay_loads, "decide_pieces", commit_first),
    ):
        yield


@contextmanager
def what_a_replay_has_decided_is_taken_by_the_next() -> Iterator[None]:
    """Replays into loads: the next replay takes ranges that an earlier one has decided, and finishes nothing first."""
    with (
        mock.patch.object(replay, "why_decided", lambda _: ()),
        mock.patch.object(replay_loads.LoadsOfReplay, "not_finished", lambda _, wanted, outcome: wanted),
    ):
        yield


@contextmanager
def a_forgotten_load_of_a_replay_counts_as_aborted() -> Iterator[None]:
    """Replays into loads: ranges whose load the sink does not know any more go back into quarantine."""
    with _unknown_taken_for(LoadState.ABORTED):
        yield


@contextmanager
def a_forgotten_load_of_a_replay_counts_as_landed() -> Iterator[None]:
    """Replays into loads: ranges whose load the sink does not know any more count as landed."""
    with _unknown_taken_for(LoadState.COMMITTED):
        yield


@contextmanager
def _unknown_taken_for(certain: LoadState) -> Iterator[None]:
    outcome = load_outcome.outcome

    def taken(target: Any, committable: Any) -> LoadState:
        state = outcome(target, committable)
        return certain if state is LoadState.UNKNOWN else state

    with mock.patch.object(replay_loads, "outcome", taken):
        yield


@contextmanager
def a_replay_decides_what_it_does_not_hold() -> Iterator[None]:
    """Replays into loads: a late replay decides without asking whether its ranges are still as it has claimed them."""
    with mock.patch.object(replay, "require_held", lambda *_: None):
        yield


@contextmanager
def an_aborted_load_of_a_replay_has_landed() -> Iterator[None]:
    """Replays into loads: what is decided counts as landed, also where the sink has aborted the load by itself."""
    settle = replay_decisions.settle_decision

    def landed(ledger: Any, stream_id: str, decision: Any, *, is_committed: bool) -> None:
        settle(ledger, stream_id, decision, is_committed=True)

    with mock.patch.object(replay_loads, "settle_decision", landed):
        yield


@contextmanager
def what_a_replay_may_still_commit_counts_as_aborted() -> Iterator[None]:
    """Replays into loads: who finishes a decided load that is not committed takes it for aborted, and does not end it."""
    with (
        mock.patch.object(OneProducerTarget, "taken_by", lambda self, _: self._replays.marker),
        mock.patch.object(OneProducerTarget, "_require_id", lambda _: None),
        mock.patch.object(OneProducerTarget, "_abort_open", lambda _: None),
    ):
        yield


@contextmanager
def a_number_that_the_sink_knows_is_passed_over() -> Iterator[None]:
    """Replays into loads: where the sink has committed a number that the ledger does not know, the next free one is taken."""
    prepare = StoreReplayTarget.prepare_load

    def passing(self: StoreReplayTarget, number: int, batch: Any, rows: Any) -> Any:
        while True:
            try:
                return prepare(self, number, batch, rows)
            except NumberCommitted:
                number += 1

    with mock.patch.object(StoreReplayTarget, "prepare_load", passing):
        yield


@contextmanager
def what_another_replay_has_decided_meanwhile_is_not_looked_for() -> Iterator[None]:
    """Replays into loads: a replay decides a load under the number that another one has decided since it was read."""
    record = replay_decisions.record_decision

    def recorded(transaction: Any, stream_id: str, decision: Any, seen: Any) -> None:
        with mock.patch.object(replay_decisions, "standing_of", lambda _: Standing(decision.number - 1, ())):
            record(transaction, stream_id, decision, seen)

    with mock.patch.object(replay, "record_decision", recorded):
        yield
