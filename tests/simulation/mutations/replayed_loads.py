"""What a replay into a sink of two phases is protected by, taken away piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from exactlyonce.ledger import replay, replay_decisions
from exactlyonce_spark import load_outcome, replay_loads
from exactlyonce_spark.target import LoadState
from tests.simulation.loads_replay_world import StoreReplayTarget
from tests.simulation.one_producer import OneProducerTarget


@contextmanager
def a_replay_commits_its_load_before_the_decision() -> Iterator[None]:
    """Replays into loads: a replay commits a load once it is prepared, and then the ledger compares its claim and decides."""
    decide = replay.decide_pieces

    def commit_first(ledger: Any, claim: Any, pieces: Any, decision: Any) -> None:
        commits[0](decision.load)
        decide(ledger, claim, pieces, decision)

    commits: list[Any] = []
    prepare = StoreReplayTarget.prepare_load

    def prepared(self: StoreReplayTarget, batch: Any, rows: Any) -> Any:
        commits[:] = [self.loads.commit]
        return prepare(self, batch, rows)

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
    state_of = OneProducerTarget.state_of

    def seen(self: OneProducerTarget, committable: Any) -> LoadState:
        found = state_of(self, committable)
        return LoadState.ABORTED if found is LoadState.PREPARED and ":replay:" in committable.label else found

    with (
        mock.patch.object(OneProducerTarget, "end", lambda *_: None),
        mock.patch.object(OneProducerTarget, "state_of", seen),
    ):
        yield
