"""A world whose sink takes loads in two phases, and in which what is in quarantine is replayed into it beside the stream.

Replays prepare loads of their own, and the ledger decides them; whoever comes first commits them, a replay or a driver. The
sink aborts by itself what waits, and forgets. In the end somebody looks for the rows of forgotten loads, and answers.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.decided import Answer
from exactlyonce.ledger.replay_decisions import ReplayDecision, answer_decision, decisions_in
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.load_labels import LoadLabels, ReplayLabels
from exactlyonce_spark.target import DeadLetter, LoadState, OpenLoad, PreparedLoad
from tests.simulation.one_producer import OneProducerTarget
from tests.simulation.replay_world import ReplayWorld, scenario_of_replays
from tests.simulation.resource import STREAM_ID
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Process
from tests.simulation.staged_store import seen_by_a_person
from tests.simulation.two_phase_store import StoreTarget
from tests.simulation.two_phase_world import HAZARDS_OF_TWO_PHASES, OverLoads, TwoPhaseLogWorld, TwoPhaseWorld


def scenario_of_replayed_loads(seed: int) -> Scenario:
    """Return what a seed draws for replays, with a sink that is silent, aborts or forgets in some."""
    drawn, dice = scenario_of_replays(seed), random.Random(f"replayed loads {seed}")
    return replace(drawn, hazards=drawn.hazards | {it for it in HAZARDS_OF_TWO_PHASES if dice.random() < 0.5})


@dataclass(frozen=True)
class StoreReplayTarget:
    """A `ReplayTarget` that `DecidesLoads`, over the store."""

    loads: StoreTarget
    random: random.Random

    def prepare_load(self, batch: BatchNumber, rows: Any) -> PreparedLoad | None:
        """Prepare the rows of a chunk."""
        return self.loads.prepare(batch, f"{self.random.randrange(1 << 62):x}", rows)

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

    answered = 0

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        self.has_one_producer = random.Random(f"who commits {seed}").random() < 0.4
        super().__init__(seed, scenario or scenario_of_replayed_loads(seed))
        self.database.rows_of = lambda committable: ()  # what a replay has decided shows nothing by that

    def _fitting(self, scenario: Scenario) -> Scenario:
        return super()._fitting(scenario).with_quarantine()

    def target_of(self, process: Process) -> Any:
        """Return the store as a replay writes to it."""
        labels = ReplayLabels(STREAM_ID, "token", process.name)
        return StoreReplayTarget(self._store_target(labels, Epoch(0)), self.random)

    def target(self, epoch: int) -> Any:
        """Return the store as a driver of this epoch writes to it."""
        return self._store_target(LoadLabels(STREAM_ID, "token"), Epoch(epoch))

    def _store_target(self, labels: LoadLabels, epoch: Epoch) -> StoreTarget:
        return (OneProducerTarget if self.has_one_producer else StoreTarget)(self.loads, labels, epoch)

    def strike_sink(self) -> None:
        """Somebody starts a replay, and something may go wrong with the sink."""
        ReplayWorld.strike_sink(self)
        OverLoads.strike_sink(self)
        if self.has_one_producer:
            self._freeze_who_is_to_commit()

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
    """The ledger is an object log."""
