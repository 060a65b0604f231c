"""A world whose sink takes loads in two phases: what is committed there is what the oracle counts.

No hazard takes back what the ledger has committed: rows stay in the sink then, and the stream would land them twice
(docs/adr/0036 says what is not noticed).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

from exactlyonce.api.spec import Delivery
from exactlyonce.api.status import Phase
from exactlyonce.connectors.postgres.spec import PostgresSink
from exactlyonce.connectors.specs import Commit
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.decided import Committable, DecidedBatch
from exactlyonce.ledger.replay_decisions import COUNT_ENTRY
from exactlyonce.ledger.rows import FailureStatus
from exactlyonce.positions.ranges import Epoch, OffsetRange, Partition, Ranges
from exactlyonce_spark import tasks
from exactlyonce_spark.left_out import FailingRecords
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.load_outcome import NotCommitted
from exactlyonce_spark.target import LoadState
from exactlyonce_spark.two_phase_finish import LoadsInDoubt, RowsNotThere
from tests.simulation import keyed
from tests.simulation.at_rest import FRESH_AT_ANY_TIME, FRESH_AT_REST, HAZARDS_AT_REST
from tests.simulation.causes import ERRORS
from tests.simulation.log_world import LogWorld
from tests.simulation.poison import is_left_out
from tests.simulation.resource import STREAM_ID
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Process
from tests.simulation.server import Hooks, Key, MemoryDatabase, Tables
from tests.simulation.staged_store import seen_by_a_person
from tests.simulation.two_phase_store import SinkSilent, StoreTarget, TwoPhaseStore
from tests.simulation.world import SimulatedWorld

SINK_SILENT, LOADS_ABORTED, LABELS_EXPIRE = "sink silent", "loads aborted", "labels expire"
HAZARDS_OF_TWO_PHASES = (SINK_SILENT, LOADS_ABORTED, LABELS_EXPIRE, *HAZARDS_AT_REST)
ANSWERED = "answered"
"""A person has said what became of loads."""

_NOT_HERE = frozenset(
    {
        "delivery changed",
        "restore",
        "failover",
        "lose ledger",
        "drop ledger",
        "former life",
        "start over",
        "commit changed",
        "edited by hand",
    }
)
_ERRORS: dict[type[BaseException], frozenset[str]] = {
    SinkSilent: frozenset({SINK_SILENT}),
    NotCommitted: frozenset({LOADS_ABORTED, LABELS_EXPIRE}),
    LoadsInDoubt: frozenset({LABELS_EXPIRE}),
    RowsNotThere: frozenset({LOADS_ABORTED}),
}


class StoreDatabase(MemoryDatabase):
    """The ledger's database. The oracle counts in its tables what the sink has committed; no crash undoes that."""

    def crash(self) -> None:
        """A crash of the ledger's server."""
        target, by_key = self.tables.target, self.tables.by_key
        super().crash()
        self.tables.target, self.tables.by_key = target, by_key

    def go_back(self, earlier: Tables) -> None:
        """Promote a standby that has the ledger as it was; the sink keeps what it has."""
        for transaction in list(self._open):
            self.terminate(transaction)
        self.tables = Tables(earlier.rows, self.tables.target, self.tables.by_key)
        self._latest.clear()
        self._undo_unflushed.clear()
        self.version += 1


def _is_of_replays(name: Key, *rows: object) -> bool:
    is_range = name[0] == "failure" and not any(getattr(row, "status", None) is FailureStatus.OPEN for row in rows)
    return is_range or name[0] == "replayed"


def state_before_replays(database: MemoryDatabase) -> Tables | None:
    """Return a state from before the latest decision of a replay, since which replays alone have changed anything."""
    now = database.tables.rows
    count = ("replayed", STREAM_ID, COUNT_ENTRY)
    for earlier in reversed(database._latest):
        names = earlier.rows.keys() | now.keys()
        changed = {name for name in names if earlier.rows.get(name) != now.get(name)}
        if not all(_is_of_replays(name, earlier.rows.get(name), now.get(name)) for name in changed):
            return None
        if count in changed:
            return earlier
    return None


class OverLoads(SimulatedWorld):
    """What a world over a store of loads adds to one with a ledger of any kind."""

    two_phases = True
    errors: Mapping[type[BaseException], frozenset[str]] = {**ERRORS, **_ERRORS}
    written_again_after: frozenset[str] = frozenset({LOADS_ABORTED, ANSWERED})
    """What makes a driver write decided rows again."""
    late_arrives = 0.3
    """How likely a request that is late arrives, or is lost for good, between two steps."""

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        self._is_drawn = scenario is None
        self._unanswered: dict[Process | None, int] = {}
        self.loads = self.made_store()
        super().__init__(seed, scenario)
        self.loads.step = self.simulation.step
        self.loads.fate = self._fate_of_request
        self.loads.visible = self.show
        self.loads.forgot = partial(self.journal.strike, LABELS_EXPIRE)
        if LABELS_EXPIRE in self.scenario.hazards:
            self.loads.keeps = self.random.randint(4, 30)

    def made_store(self) -> TwoPhaseStore:
        """Return the sink, before the world is there."""
        return TwoPhaseStore(lambda label: None, lambda: "answered", lambda rows: None)

    def target(self, epoch: int) -> Any:
        """Return the sink as a driver of this epoch writes to it."""
        return StoreTarget(self.loads, LoadLabels(STREAM_ID, "token"), Epoch(epoch))

    def run_again(
        self, process: Process, without: Collection[tuple[Partition, OffsetRange]], ranges: Ranges, job: tasks.Job
    ) -> list[tasks.TaskReport]:
        """Run a job over the rows of exactly these ranges, as a driver does where the sink has aborted them."""
        if not self.journal.has_struck(self.written_again_after):
            self.wrong.append(f"rows of {ranges} are written again, and the sink has aborted nothing by itself")
        rows: list[Hashable] = []
        for key, offsets in ranges.items():
            self.simulation.step(f"read {key} {offsets} again")
            left_out = [FailingRecords(partition, spans, "") for partition, spans in without]
            rows += [row for row in self.topic.read(key, offsets) if not is_left_out(key, row[2], left_out)]
        return [job.run(self.task_tools(process), tasks.TaskPlace(0, 0), rows)]

    def patched(self) -> AbstractContextManager[object]:
        """The resource's sink is one of two phases."""
        stack = ExitStack()
        stack.enter_context(super().patched())
        stack.enter_context(mock.patch.object(PostgresSink, "two_phases", True))
        return stack

    def what_became_of(self, load: Committable) -> LoadState | None:
        """Return what a person sees of a load; None where it is neither there as a whole nor not at all."""
        return seen_by_a_person(self.loads, load)

    def decided(self) -> DecidedBatch | None:
        """Return what the ledger says is to be committed."""
        decided: DecidedBatch | None = self.database.tables.rows.get(("decided", STREAM_ID))
        return decided

    def leaves_a_batch_decided(self) -> bool:
        """Whether a batch of the stream is decided and has not landed."""
        return self.decided() is not None

    def is_unfinished(self) -> bool:
        """Whether anything is decided and not settled."""
        return self.leaves_a_batch_decided()

    def in_doubt(self) -> set[Hashable]:
        """Return the records of which nobody says whether they are in the sink, where the stream has halted over them."""
        decided = self.decided()
        spans = [] if decided is None else [span for one in decided.committables for span in one.ranges.items()]
        return {record for key, offsets in spans for record in self.records_in(key, offsets)}

    def strike_sink(self) -> None:
        """Something may go wrong with the sink; requests that were late arrive, or never."""
        for act in list(self.loads.under_way):
            if self.random.random() < self.late_arrives:
                self._settle(act)
        if self.hazard_strikes(LOADS_ABORTED, 0.1):
            self._abort_some()
        if self.strikes(LABELS_EXPIRE, 0.01):
            self.simulation.tell("the sink forgets every finished load")
            self.loads.forget()

    def calm_sink(self) -> None:
        """Nothing goes wrong with the sink any more."""
        for act in list(self.loads.under_way):
            self._settle(act)

    def time_out(self) -> None:
        """The sink aborts what is prepared."""
        if self.loads.abort_by_itself(lambda: True):
            self.journal.strike(LOADS_ABORTED)
            self.simulation.tell("the sink aborts what is prepared")

    def _abort_some(self) -> None:
        before = self.journal.strike(LOADS_ABORTED)
        if not self.loads.abort_by_itself(lambda: self.random.random() < 0.7):
            self.journal.faults.remove(before)
        else:
            self.simulation.tell("the sink aborts what has been prepared for too long")

    def _settle(self, act: Any) -> None:
        self.loads.under_way.remove(act)
        if self.random.random() < 0.5:
            with suppress(ExactlyOnceError):
                act()
                self.simulation.tell("a late request reaches the sink")

    def show(self, rows: Sequence[Hashable]) -> None:
        database = self.database
        database.tables = database.tables.copy()  # a state that is kept stays as it was
        database.tables.target.update(rows)
        for row in rows:
            keyed.write(database.tables.by_key, row, database.how_keyed)
        database.version += 1
        database.on_commit()

    def hide(self, rows: Sequence[Hashable]) -> None:
        """A person removes rows from the sink; of each key it has what it had without them."""
        database = self.database
        database.tables = database.tables.copy()
        database.tables.target.subtract(rows)
        database.tables.target += Counter()
        database.tables.by_key = dict(keyed.expected(database.tables.target, database.how_keyed))
        database.version += 1
        database.on_commit()

    def _fate_of_request(self) -> str:
        """A sink that loses one answer is likely to lose the next one, too."""
        process = self.simulation.running
        if process is not None and self.hazard_strikes("strike at commit", 0.05):
            self.to_strike.append(process)
        left = self._unanswered.get(process, 0)
        if left <= 0 and self.hazard_strikes(SINK_SILENT, 0.05):
            left = self.random.choice([1, 1, 2, 4])
        if left <= 0 or self.calm:
            return "answered"
        self._unanswered[process] = left - 1
        self.journal.strike(SINK_SILENT, process)
        return self.random.choice(["applied", "lost", "late"])

    def _fitting(self, scenario: Scenario) -> Scenario:
        hazards = scenario.hazards - _NOT_HERE
        if self._is_drawn and hazards:
            dice = random.Random(f"loads {self.seed}")
            hazards |= {hazard for hazard in HAZARDS_OF_TWO_PHASES if dice.random() < 0.5}
        if hazards & {FRESH_AT_REST, FRESH_AT_ANY_TIME}:
            hazards -= {"topics changed"}  # a topic that the former life had left is not part of the new one
        return replace(
            super()._fitting(scenario),
            delivery=Delivery.EXACTLY_ONCE,
            commit=Commit.BATCH,
            stateful=False,
            manifest=False,
            hazards=hazards & super()._fitting(replace(scenario, hazards=hazards)).hazards,
        )


class TwoPhaseWorld(OverLoads):
    """The ledger is a database's."""

    def _made_database(self, hooks: Hooks) -> MemoryDatabase:
        return StoreDatabase(hooks)


class TwoPhaseLogWorld(OverLoads, LogWorld):
    """The ledger is an object log."""


def annotate_answer(world: SimulatedWorld, name: str, text: str, told: str) -> None:
    """Annotate the stream in place of what the annotation said before, and have an operator try it again."""
    world.journal.strike(ANSWERED)
    world.simulation.tell(f"{told}: {text}")
    kept = tuple(one for one in world.annotations if one[0] != name)
    world.annotations = (*kept, (name, text))
    world.statuses.status = world.statuses.status.model_copy(update={"phase": Phase.PENDING})
    world.statuses.version += 1
    world.draining = False
    world.start_operator("operator of the answer")
