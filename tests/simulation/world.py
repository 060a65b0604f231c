"""The simulated world: an operator or two, drivers, a database, a topic, and what goes wrong with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from exactlyonce.api.resource import Stream
from exactlyonce.api.spec import Delivery
from exactlyonce.connectors.specs import Commit
from exactlyonce.launch.last_message import Ending
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.rows import FailureRow, Owner
from exactlyonce.positions.ranges import Epoch, Partition, Ranges
from exactlyonce.reconcile.loop import Done, Halted, PassResult, StreamLoop, Waiting, Wanted, Watching
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.observe import Stores
from exactlyonce.reconcile.pass_context import Attempts, PassContext, Place, Reporter, Timing
from exactlyonce.reconcile.verdicts import Decision
from exactlyonce.source.connector import SourceCheck
from exactlyonce.source.port import Source
from exactlyonce_spark.target import Target
from tests.simulation import at_rest, manifest
from tests.simulation.asked_resets import PersonsResets
from tests.simulation.causes import ERRORS, HOUSEKEEPING
from tests.simulation.database import Hooks, MemoryDatabase, MemoryLedger
from tests.simulation.files import MemoryStore, highest_commit
from tests.simulation.journal import Attempt, FailedPass, Journal
from tests.simulation.keyed import HowKeyed
from tests.simulation.launched_drivers import LaunchedDrivers
from tests.simulation.launcher import Driver, LauncherOfPass, MemoryStatuses
from tests.simulation.resource import STREAM_ID, RequestedSpec, resource
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Actor, Process, Simulation
from tests.simulation.source import OTHER_TOPIC, TOPIC, MemoryTopic, Record
from tests.simulation.source_and_sink import SourceAndSink
from tests.simulation.spark import Query
from tests.simulation.target import MemoryTarget


class SimulatedWorld(SourceAndSink, LaunchedDrivers):
    """Everything of one seed.

    `struck` are the hazards that have done something, and `taken` the records that retention took before they had landed: what
    the oracle knows of the world without asking the ledger. `unasked` are those of them in partitions in which
    the stream stood nowhere then. `named`, `commit`, `delivery` and `suspended` are what the resource says now; `deliveries`
    are all that it has ever asked for.
    """

    query_type: type[Query] = Query
    positions_count_records = True
    asks_again = False
    two_phases = False
    continues_output = True
    """Whether its folder of files may have been written before the stream by a query of Spark's own."""
    rows_of_replays_are_shown_by_batches = False
    """Whether readers are shown what a replay has landed by the stream's next batch alone, however long it rests before."""
    most_chaos_steps = 1500
    errors: Mapping[type[BaseException], frozenset[str]] = ERRORS
    """What can end a driver or a pass, and by which hazards."""
    refused: tuple[type[BaseException], ...] = ()
    """What its source refuses, so that the stream halts until a person has mended it."""

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        self.seed = seed
        self.simulation = Simulation(seed)
        self.random = self.simulation.random
        drawn = Scenario.draw(self.random)
        self.scenario = self._fitting(scenario or drawn)
        self.stateful = self.scenario.stateful
        self.collects_generations = seed % 4 == 3  # not drawn, so that the other seeds' schedules stay
        self.batch_records = self.limit = self.random.randint(2, 6)
        # Where few records come, a driver is idle while things go wrong.
        self.records_to_produce = self.random.choice([self.random.randint(3, 12), self.random.randint(20, 60)])
        step = self.simulation.step
        self.store = MemoryStore(step)
        partitions = [Partition(TOPIC, number) for number in range(self.random.randint(1, 3))]
        if "topics changed" in self.scenario.hazards:
            # Numbers that the first topic never gets: a record is known by number and offset.
            partitions += [Partition(OTHER_TOPIC, 10 + number) for number in range(self.random.randint(1, 2))]
        wait = self.simulation.wait
        self.topic = MemoryTopic({key: self.random.randint(0, 6) for key in partitions}, step=step, wait=wait)
        if "re-create" in self.scenario.hazards and self.random.random() < 0.5:
            # A topic that was recreated and that has no id is known by its records alone: of what retention has taken, and
            # the stream was told to continue without, there are none.
            self.topic.has_ids = False
            self.scenario = replace(self.scenario, hazards=self.scenario.hazards - {"retention"})
        self.named = frozenset({TOPIC})
        self.commit = self.scenario.commit
        self.delivery = self.scenario.delivery
        self.deliveries = {self.delivery}
        self.delivery_of: dict[Process, Delivery] = {}
        self._planned_under: dict[Hashable, set[Delivery]] = {}
        self._latest_requested: tuple[object, RequestedSpec] | None = None
        self._latest_resource: tuple[RequestedSpec, Stream] | None = None
        self.suspended = False
        self.poison: frozenset[tuple[Partition, int]] = frozenset()
        self.poison_left = 0
        self.poison_records: frozenset[Record] = frozenset()
        self.fails_in_company = False
        self.searches_in_vain = 0
        self.most_records: int | None = None
        self.database = self._made_database(self._hooks(step))
        self.output = manifest.Output(step)
        self.output.shown = partial(manifest.note_what_is_shown, self)
        self.former_batch = manifest.former_output(self)
        self.database.rows_of = self.output.counted
        self.database.how_keyed = self.random.choice(list(HowKeyed))
        self.database.synchronous_commit = "synchronous_commit off" not in self.scenario.hazards
        self.statuses = MemoryStatuses(step)
        self.drivers: dict[Epoch, list[Driver]] = {}
        self.operators: list[Process] = []
        self.results: dict[str, PassResult] = {}
        self.doubled: list[Hashable] = []
        self.struck: set[str] = set()
        self.taken: set[Hashable] = set()
        self.unasked: set[Hashable] = set()
        self.journal = Journal(lambda: self.simulation.steps)
        self.pass_began: dict[Process, int] = {}
        self.statuses.on_attempt = self._note_attempt
        self.statuses.on_phase = partial(at_rest.note_rest, self)
        self.foreign_write: Callable[[], None] = lambda: None
        self.draining = False
        self.drained: set[Epoch] = set()
        self.calm = False
        self.clock = datetime(2026, 1, 1, tzinfo=UTC)
        self.running_tasks: dict[Process, list[Actor]] = {}
        self.lost_tasks: set[Actor] = set()
        self.to_strike: list[Process] = []
        self.writers: dict[str, list[Process]] = {}
        self.wrong: list[str] = []
        self.compactors: list[Process] = []
        self.cleaners: list[Process] = []
        self.merged = 0
        self.edited: dict[Partition, int] = {}
        self.annotations: tuple[tuple[str, str], ...] = ()
        self.asked = PersonsResets()
        self.life_before: Counter[Hashable] | None = None
        self.failures_before: dict[int, FailureRow] = {}
        self.on_truncated = self.random.choice(["Halt", "ResumeFromEarliest"])

    def struck_by(self, hazard: str, told: str) -> None:
        """Note what has gone wrong, and the records that the source no longer holds and the table does not hold either."""
        self.simulation.tell(f"{told}")
        self.struck.add(hazard)
        for key in self.topic.ends:
            gone = (self.topic.record(key, offset) for offset in range(self.topic.earliest(key)))
            # Else a record may be in the table before the stream stands behind it.
            once, target = {Delivery.EXACTLY_ONCE}, self.database.tables.target
            taken = {record for record in gone if self.deliveries_of(record) != once or not target[record]}
            if not any((kind, STREAM_ID, key) in self.database.tables.rows for kind in ("position", "retired")):
                self.unasked |= taken  # also where a restored database has forgotten that it stood there
            self.taken |= taken

    def never_asked(self) -> set[Hashable]:
        """Return the records that were taken while the stream stood nowhere in their partition."""
        return self.unasked

    def change_delivery(self) -> None:
        """The resource asks for another delivery."""
        self.delivery = self.random.choice([other for other in Delivery if other is not self.delivery])
        if self.delivery is not Delivery.EXACTLY_ONCE:
            self.commit = Commit.BATCH  # the resource refuses every other one
        self.deliveries.add(self.delivery)
        self.statuses.version += 1  # the resource's version: a pass that has read the former one conflicts
        self.simulation.tell(f"the resource asks for delivery: {self.delivery}")

    def note_planned(self, process: Process, ranges: Ranges) -> None:
        """Note which records are in the driver's current batch, and what it was told to promise of them."""
        if "delivery changed" in self.scenario.hazards:
            for key, span in ranges.items():
                for record in self.records_in(key, span):
                    self._planned_under.setdefault(record, set()).add(self.delivery_of.get(process, self.delivery))

    def deliveries_of(self, record: Hashable) -> set[Delivery]:
        """Return the deliveries under which batches with a record were planned; what is asked for if it was in none."""
        return self._planned_under.get(record) or ({self.delivery} if len(self.deliveries) > 1 else self.deliveries)

    @property
    def foreign_writes(self) -> bool:
        """Whether Spark's log files are overwritten without a condition, as on an object store."""
        return "foreign writes" in self.scenario.hazards

    def strikes(self, hazard: str, chance: float, whom: Process | None = None) -> bool:
        """Whether a hazard of this scenario strikes now; it is noted, with the process that it strikes."""
        strikes = self.hazard_strikes(hazard, chance)
        if strikes:
            self.journal.strike(hazard, whom)
        return strikes

    def hazard_strikes(self, hazard: str, chance: float) -> bool:
        """Whether a hazard of this scenario strikes now; who asks notes it."""
        return not self.calm and hazard in self.scenario.hazards and self.random.random() < chance

    def new_process(self, name: str) -> Process:
        """Return a process without actors."""
        return Process(name)

    def start_operator(self, name: str) -> None:
        """Start an operator that passes over the stream until it is done, halts or is killed."""
        process = self.new_process(name)
        self.operators.append(process)
        self.simulation.spawn(process, name, lambda: self._operate(name, process))

    def ledger(self) -> Ledger:
        """Return the ledger of the process that is running."""
        return MemoryLedger(self.database)

    def target(self, epoch: int) -> Target:
        """Return the sink as a driver of this epoch writes to it."""
        return MemoryTarget(self.database, epoch)

    def source_check(self) -> SourceCheck:
        """Return the source as the process that is running asks it before it lands."""
        return self.topic

    def source(self, requested: RequestedSpec) -> Source:
        """Return the source as an operator's pass looks at it."""
        return self.topic.naming(requested.named)

    def resource(self, requested: RequestedSpec) -> Stream:
        """Return the stream's resource."""
        if self._latest_resource is None or self._latest_resource[0] is not requested:
            self._latest_resource = requested, resource(requested, self.on_truncated)
        return self._latest_resource[1]

    def _made_database(self, hooks: Hooks) -> MemoryDatabase:
        """Return what keeps the ledger and what is in the sink."""
        return MemoryDatabase(hooks)

    def _fitting(self, scenario: Scenario) -> Scenario:
        """Return the scenario without what cannot happen to such a ledger or sink."""
        return scenario

    def _operate(self, name: str, process: Process) -> None:
        while True:
            self.pass_began[process] = self.simulation.steps
            requested = self.requested  # a pass has the resource as it was when the pass began
            wanted = Wanted.REST if self.suspended else Wanted.RUN
            result = self._loop(requested).run_pass(wanted, requested.plan)
            self.results[name] = result
            match result:
                case Watching(attempt=attempt):
                    self._watch(attempt)
                    if self.draining and all(driver.process.ended for driver in self.drivers.get(attempt, [])):
                        self._loop(requested).run_pass(wanted, requested.plan)  # which writes down how it ended
                        return
                case Waiting() if self.draining and self._has_drained():
                    return
                case Waiting(until=until):
                    self.clock = max(self.clock, until) + timedelta(milliseconds=1)
                    self.simulation.step("waited")
                case Done() if not self.draining:
                    self.simulation.wait("being resumed", lambda: self.draining or not self.suspended)
                case Halted() | Done():
                    return

    @property
    def requested(self) -> RequestedSpec:
        """The resource as it is now."""
        asked = (self.scenario.quarantine, self.scenario.bisect)
        now = (self.named, self.commit, self.limit, self.annotations, self.delivery, *asked, self.former_batch)
        if self._latest_requested is None or self._latest_requested[0] != now:
            self._latest_requested = now, RequestedSpec(*now)
        return self._latest_requested[1]

    def _loop(self, requested: RequestedSpec) -> StreamLoop:
        stores = Stores(self.ledger(), self.store, self.source(requested))
        world = PassContext(
            stores,
            Attempts(LauncherOfPass(self, requested)),
            self.statuses,
            Place(Owner("cluster-1", "uid-1"), lambda _: True, asks_again=self.asks_again),
            Reporter(self._report, self._note_problem),
            Timing(self._now),
        )
        return StreamLoop(self.resource(requested), world)

    def _watch(self, attempt: Epoch) -> None:
        timer = self.simulation.now + self.random.randint(20, 200)
        self.simulation.wait("the driver", lambda: self.simulation.now > timer or self._is_over(attempt))

    def _is_over(self, attempt: Epoch) -> bool:
        if self.statuses.status.attempt != attempt:
            return True
        has_ended = True
        for driver in self.drivers.get(attempt, ()):
            if driver.given_up:
                return True
            has_ended = has_ended and driver.process.ended
        return has_ended

    def _has_drained(self) -> bool:
        """Whether the latest driver ended as requested, in a world without hazards: then nothing more is to come."""
        latest = self.drivers.get(self.latest(), [])
        words = [driver.words for driver in latest]
        return not self.scenario.hazards and any(word is not None and word.ending is Ending.DRAINED for word in words)

    def _note_attempt(self, number: int) -> None:
        operator = self.simulation.running
        steps = self.simulation.steps
        looked = steps if operator is None else self.pass_began.get(operator, steps)
        self.journal.attempts.append(Attempt(number, operator, steps, looked, self.store.commits()))

    def _note_problem(self, problem: Exception) -> None:
        operator = self.simulation.running
        assert operator is not None, "an operator's pass is told of its problem"
        failed = FailedPass(operator, problem, self.pass_began[operator], self.simulation.steps)
        self.journal.failed_passes.append(failed)

    def note_decision(self, seen: Observation, decision: Decision) -> None:
        """Note what an operator has seen and decided, and what the world was like."""
        attempt = self.journal.attempt(seen.epoch)
        if attempt is None:
            return
        attempt.decided, attempt.seen, attempt.decision = self.simulation.steps, seen, decision
        at_rest.note_new_start(self, seen, decision)
        attempt.highest_commit = highest_commit(attempt.commits, (seen.ledger and seen.ledger.stream.generation) or 0)
        # Not by the ledger's word: a failover between raise and look takes the latest claim from what the look shows.
        before = [driver for epoch, found in self.drivers.items() for driver in found if epoch < seen.epoch]
        attempt.writer_lived = any(driver.ended_at >= attempt.looked for driver in before)

    def _commit_fate(self) -> str:
        process = self.simulation.running
        chance = 0.03 if process in self.running_tasks else 0.1  # a driver commits more often than the tasks of a batch
        if process is not None and self.hazard_strikes("strike at commit", chance):
            self.to_strike.append(process)
        if not self.hazard_strikes("cut at commit", 0.04):
            return "answered"
        fate = self.random.choice(["applied", "lost", "pending"])
        # What is pending holds its locks until it is settled, and others wait for them.
        self.journal.strike("cut at commit", self.simulation.running, lasts=fate == "pending")
        return fate

    def _hooks(self, step: Callable[[str], None]) -> Hooks:
        return Hooks(
            step, self.simulation.wait, self._commit_fate, lambda: self.simulation.running, self._note_eviction
        )

    def _note_eviction(self, involved: AbstractSet[Process | None]) -> None:
        if involved & {*self.compactors, *self.cleaners}:
            self.journal.strike(HOUSEKEEPING)

    def _report(self, kind: str, words: str) -> None:
        self.simulation.tell(f"{kind}: {words}")

    def _now(self) -> datetime:
        return self.clock
