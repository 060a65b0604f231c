"""A world whose sink takes loads in two phases, and in which what is in quarantine is replayed into it beside the stream.

Replays prepare loads of their own, and the ledger decides them; whoever comes first commits them, a replay or a driver. The
sink aborts by itself what waits, and forgets. In the end somebody looks for the rows of forgotten loads, and answers. In some a
failover takes the latest transactions of replays from the ledger, and somebody says what of its quarantine the sink has.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.decided import Answer
from exactlyonce.ledger.publish import PositionsMoved
from exactlyonce.ledger.replay_decisions import ReplayDecision, answer_decision, decisions_in
from exactlyonce.ledger.restored import FoundPart, settle_restored
from exactlyonce.ledger.rows import FailureStatus
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange
from exactlyonce_spark.load_labels import LoadLabels, ReplayLabels
from exactlyonce_spark.replay_load_target import ReplayNotInLedger
from exactlyonce_spark.target import DeadLetter, LoadState, OpenLoad, PreparedLoad
from tests.simulation.asked_resets import RESET
from tests.simulation.numbered_loads import NumberedTarget, OneProducerTarget, ReplaysId
from tests.simulation.replay_world import ReplayWorld, scenario_of_replays
from tests.simulation.resource import STREAM_ID
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Process
from tests.simulation.staged_store import seen_by_a_person
from tests.simulation.two_phase_world import (
    HAZARDS_OF_TWO_PHASES,
    LABELS_EXPIRE,
    OverLoads,
    StoreDatabase,
    TwoPhaseLogWorld,
    TwoPhaseWorld,
    state_before_replays,
)


def scenario_of_replayed_loads(seed: int) -> Scenario:
    """Return what a seed draws for replays, with a sink that is silent, aborts or forgets in some."""
    drawn, dice = scenario_of_replays(seed), random.Random(f"replayed loads {seed}")
    return replace(drawn, hazards=drawn.hazards | {it for it in HAZARDS_OF_TWO_PHASES if dice.random() < 0.5})


MOST_RESTORES = 2
DECIDED_MEANWHILE = "a replay has decided"


@dataclass(frozen=True)
class StoreReplayTarget:
    """A `ReplayTarget` that `DecidesLoads`, over the store."""

    loads: NumberedTarget | OneProducerTarget

    def prepare_load(self, number: int, batch: BatchNumber, rows: Any) -> PreparedLoad | None:
        """Prepare the rows of a chunk."""
        return self.loads.prepare_number(number, batch, rows)

    def abort_load(self, load: PreparedLoad) -> None:
        """Abort a load, if the store answers."""
        with suppress(ExactlyOnceError):
            self.loads.abort(OpenLoad(load.label, load.transaction_id, Epoch(0)))

    def write(self, transaction: Any, rows: Any) -> int:
        """Write a chunk without rows."""
        assert rows is None, "rows are loaded"
        return 0

    def write_dead_letters(
        self, transaction: Any, batch: BatchNumber, letters: Sequence[DeadLetter], origin_ids: Mapping[str, str]
    ) -> int:
        """There are none."""
        raise AssertionError("such a sink keeps no dead letters")


class OverReplayedLoads(ReplayWorld, OverLoads):
    """What both worlds of replays into loads are. `answered` is how many loads of replays a person has looked for.

    In some of them whoever finishes what a replay has decided can only end it, if it is not committed: `has_one_producer`.
    """

    # The pass that was to reset finds it, and the next one looks again.
    errors: Mapping[type[BaseException], frozenset[str]] = {
        **OverLoads.errors,
        PositionsMoved: OverLoads.errors[PositionsMoved] | {DECIDED_MEANWHILE},
    }
    answered = 0
    went_back = 0
    found_there = 0
    goes_on_after_restore = False

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        self.has_one_producer = random.Random(f"who commits {seed}").random() < 0.4
        self.replays_id = ReplaysId()
        self.told_of_restore: list[str] = []
        self._decided_before: tuple[ReplayDecision, ...] = ()
        super().__init__(seed, scenario or scenario_of_replayed_loads(seed))
        # Labels that are forgotten tell of no ledger that went back, and a reset means what it was asked for in that one.
        self.may_go_back = self.scenario.hazards.isdisjoint({LABELS_EXPIRE, RESET})
        self.database.rows_of = lambda committable: ()  # what a replay has decided shows nothing by that

    def _fitting(self, scenario: Scenario) -> Scenario:
        return super()._fitting(scenario).with_quarantine()

    def _replay(self, process: Process) -> None:
        try:
            super()._replay(process)
        except ReplayNotInLedger as problem:
            if not self.went_back:
                self.wrong.append(f"a replay says that the ledger went back, and it has not: {problem}")
            self.told_of_restore.append(str(problem))
            raise

    def target_of(self, process: Process) -> Any:
        """Return the store as a replay writes to it."""
        labels = ReplayLabels(STREAM_ID, "token")
        target = self._store_target(labels, Epoch(0))
        target.take()
        return StoreReplayTarget(target)

    def target(self, epoch: int) -> Any:
        """Return the store as a driver of this epoch writes to it."""
        return self._store_target(LoadLabels(STREAM_ID, "token"), Epoch(epoch))

    def _store_target(self, labels: LoadLabels, epoch: Epoch) -> NumberedTarget | OneProducerTarget:
        if self.has_one_producer:
            return OneProducerTarget(self.loads, labels, epoch, self.replays_id)
        return NumberedTarget(self.loads, labels, epoch)

    def strike_sink(self) -> None:
        """Somebody starts a replay, and something may go wrong with the sink."""
        ReplayWorld.strike_sink(self)
        OverLoads.strike_sink(self)
        if self.has_one_producer:
            self._freeze_who_is_to_commit()
        if self.may_go_back and self.went_back < MOST_RESTORES and self.random.random() < 0.1:
            self._take_back()

    def show(self, rows: Sequence[Hashable]) -> None:
        """The sink has committed rows; a failover comes at the worst moment, perhaps."""
        super().show(rows)
        if self.may_go_back and self.went_back < MOST_RESTORES and self.random.random() < 0.6:
            self._take_back()

    def _take_back(self) -> None:
        """A standby is promoted that lacks the latest transactions, all of which were of replays; the sink keeps their rows."""
        database = self.database
        assert isinstance(database, StoreDatabase), "an object log does not go back"
        earlier = state_before_replays(database)
        if earlier is None:
            return
        self.went_back += 1
        self.goes_on_after_restore = True
        self.simulation.tell("a failover takes the latest transactions of replays from the ledger")
        self.journal.strike("database crash")
        database.go_back(earlier)

    def _freeze_who_is_to_commit(self) -> None:
        """A replay that has decided sleeps until somebody else has ended what it would commit, perhaps."""
        tokens = {decision.replay for decision in self.by_replays()}
        for process in self.replays:
            is_awake = not (process.ended or process.frozen)
            if process.name in tokens and is_awake and self.random.random() < 0.3:
                process.frozen = True
                self.journal.strike("freeze driver", process, lasts=True)

    def calm_sink(self) -> None:
        """A person answers for what the sink has forgotten, and the operator starts another replay where one is decided."""
        OverLoads.calm_sink(self)
        if all(process.ended for process in self.compactors):
            if self.told_of_restore:
                self.told_of_restore.clear()
                self._tell_what_is_there()
            elif self.goes_on_after_restore:
                self.goes_on_after_restore = False
                self.start_replay()
        if self.by_replays() and all(process.ended for process in self.replays):
            for decision in self.by_replays():
                seen = seen_by_a_person(self.loads, decision.load)
                if seen is not None and decision.load.answer is None:
                    self.answered += 1
                    answer = Answer.COMMITTED if seen is LoadState.COMMITTED else Answer.ABORTED
                    self._answer(decision, answer)
            self.start_replay()

    def _answer(self, decision: ReplayDecision, answer: Answer) -> None:
        def person() -> None:
            answer_decision(self.ledger(), STREAM_ID, decision.load.answered_as, answer)

        process = self.new_process(f"person {self.answered}")
        self.compactors.append(process)
        self.simulation.spawn(process, process.name, person)

    def _tell_what_is_there(self) -> None:
        """A person looks in the sink for the records of each range in quarantine, and names those that it has."""
        parts = [
            FoundPart(row.batch, f"{row.partition}", offset, offset + 1)
            for row in self.in_quarantine()
            if not row.is_decided
            for offset in range(row.from_offset, row.until_offset)
            if self.records_in(row.partition, OffsetRange(offset, offset + 1)) & self.database.tables.target.keys()
        ]
        self.found_there += len(parts)
        self.goes_on_after_restore = True

        def person() -> None:
            settle_restored(self.ledger(), STREAM_ID, parts)

        process = self.new_process(f"person who looked {self.found_there}")
        self.compactors.append(process)
        self.simulation.spawn(process, process.name, person)

    def wrong_since_commit(self) -> str | None:
        """A range is decided, and nothing says by which load."""
        if self.by_replays() != self._decided_before:
            self._decided_before = self.by_replays()
            self.journal.strike(DECIDED_MEANWHILE)
        rows = self.rows_with((FailureStatus.REPLAYING,))
        lost = [row for row in rows if row.is_decided and not any(it.holds(row) for it in self.by_replays())]
        return f"decided, and by no load: {lost}" if lost else super().wrong_since_commit()

    def by_replays(self) -> tuple[ReplayDecision, ...]:
        """Return what replays have decided and nobody has settled."""
        rows = self.database.tables.rows
        return decisions_in({key[2]: text for key, text in rows.items() if key[:2] == ("replayed", STREAM_ID)})

    def is_unfinished(self) -> bool:
        """Whether anything is decided and not settled."""
        return super().is_unfinished() or bool(self.by_replays())

    def in_doubt(self) -> set[Hashable]:
        """Return the records of loads that may be in the sink when a stream has halted."""
        spans = [span for decision in self.by_replays() for span in decision.ranges.items()]
        return super().in_doubt() | {record for key, offsets in spans for record in self.records_in(key, offsets)}


class LoadsReplayWorld(OverReplayedLoads, TwoPhaseWorld):
    """The ledger is a database's."""


class LoadsReplayLogWorld(OverReplayedLoads, TwoPhaseLogWorld):
    """The ledger is an object log, which does not go back."""

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        super().__init__(seed, scenario)
        self.may_go_back = False
