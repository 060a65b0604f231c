"""The simulated world: an operator or two, drivers, a database, a topic, and what goes wrong with them."""

from __future__ import annotations

import random
import uuid
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from unittest import mock

from exactlyonce.api.resource import Stream
from exactlyonce.api.spec import Delivery
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.launch.last_words import Ending, LastWords
from exactlyonce.launch.port import DriverState, Ended, Gone, NeverStarted, Orders, Running
from exactlyonce.ledger.expiry import delete_expired
from exactlyonce.ledger.fence import Fenced, claim_epoch
from exactlyonce.ledger.rows import Owner
from exactlyonce.offsets import Epoch, TopicPartition
from exactlyonce.reconcile.loop import Done, Halted, PassResult, StreamLoop, Waiting, Watching, World
from exactlyonce.reconcile.observe import Stores
from exactlyonce_spark import tasks
from exactlyonce_spark.batch import BatchLoop, BatchSettings
from tests.simulation.database import Hooks, MemoryDatabase, MemoryLedger
from tests.simulation.files import MemoryStore
from tests.simulation.launcher import Driver, LauncherOfPass, MemoryStatuses
from tests.simulation.resource import KEEPS_NOTHING, STREAM_ID, resource
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Actor, Process, Simulation
from tests.simulation.source import OTHER_TOPIC, TOPIC, MemoryTopic
from tests.simulation.spark import Query
from tests.simulation.state import StateMissing
from tests.simulation.target import MemoryTarget


class SimulatedWorld:
    """Everything of one seed.

    `struck` are the hazards that have done something, and `taken` the records that retention took before they had landed: what
    the oracle knows of the world without asking the ledger. `unasked` are those of them in partitions in which
    the stream stood nowhere then. `named` are the topics that the resource names now.
    """

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        self.simulation = Simulation(seed)
        self.random = self.simulation.random
        drawn = Scenario.draw(self.random)
        self.scenario = scenario or drawn
        self.stateful = self.scenario.stateful
        self.batch_records = self.limit = self.random.randint(2, 6)
        self.records_to_produce = self.random.randint(20, 60)
        step = self.simulation.step
        self.store = MemoryStore(step)
        partitions = [TopicPartition(TOPIC, number) for number in range(self.random.randint(1, 3))]
        if "topics changed" in self.scenario.hazards:
            # Numbers that the first topic never gets: a record is known by number and offset.
            partitions += [TopicPartition(OTHER_TOPIC, 10 + number) for number in range(self.random.randint(1, 2))]
        wait = self.simulation.wait
        self.topic = MemoryTopic({key: self.random.randint(0, 6) for key in partitions}, step=step, wait=wait)
        if "re-create" in self.scenario.hazards and self.random.random() < 0.5:
            # A topic that was made anew and that has no id is known by its records alone: of what retention has taken, and
            # the stream was told to go on without, there are none.
            self.topic.has_ids = False
            self.scenario = replace(self.scenario, hazards=self.scenario.hazards - {"retention"})
        self.named = frozenset({TOPIC})
        self.database = MemoryDatabase(Hooks(step, self.simulation.wait, self._commit_fate))
        self.database.synchronous_commit = "synchronous_commit off" not in self.scenario.hazards
        self.statuses = MemoryStatuses(step)
        self.drivers: dict[Epoch, list[Driver]] = {}
        self.operators: list[Process] = []
        self.results: dict[str, PassResult] = {}
        self.doubled: list[Hashable] = []
        self.struck: set[str] = set()
        self.taken: set[Hashable] = set()
        self.unasked: set[Hashable] = set()
        self.draining = False
        self.drained: set[Epoch] = set()
        self.calm = False
        self.clock = datetime(2026, 1, 1, tzinfo=UTC)
        self.lost_tasks: set[int] = set()
        self.on_truncated = self.random.choice(["Halt", "ResumeFromEarliest"])

    def struck_by(self, hazard: str, told: str) -> None:
        """Note what has gone wrong, and the records that the source no longer holds and the table does not hold either."""
        self.simulation.tell(f"{told}")
        self.struck.add(hazard)
        for key in self.topic.ends:
            gone = (self.topic.record(key, offset) for offset in range(self.topic.earliest(key)))
            # Else a record may be in the table before the stream stands behind it.
            uncounted = self.scenario.delivery is not Delivery.EXACTLY_ONCE
            taken = {record for record in gone if uncounted or not self.database.tables.target[record]}
            if not any((kind, STREAM_ID, key) in self.database.tables.rows for kind in ("position", "retired")):
                self.unasked |= taken  # also where a restored database has forgotten that it stood there
            self.taken |= taken

    @property
    def foreign_writes(self) -> bool:
        """Whether Spark's log files are overwritten without a condition, as on an object store."""
        return "foreign writes" in self.scenario.hazards

    def strikes(self, hazard: str, chance: float) -> bool:
        """Whether a hazard of this scenario strikes now."""
        return not self.calm and hazard in self.scenario.hazards and self.random.random() < chance

    def new_process(self, name: str) -> Process:
        """Return a process without actors."""
        return Process(name)

    def start_operator(self, name: str) -> None:
        """Start an operator that passes over the stream until it is done, halts or is killed."""
        process = self.new_process(name)
        self.operators.append(process)
        self.simulation.spawn(process, name, lambda: self._operate(name))

    def task_tools(self, driver: Process) -> tasks.TaskTools:
        """Return what a task works with."""
        ledger = MemoryLedger(self.database)
        epoch = int(driver.name.split()[1].split(".")[0])
        return tasks.TaskTools(ledger, MemoryTarget(self.database, epoch, lambda: None), self.topic)

    def task_is_lost(self, actor: Actor) -> bool:
        """Whether Spark has given up a task that may still run: its executor was lost."""
        return id(actor) in self.lost_tasks

    def task_fails_late(self) -> bool:
        """Whether a task is to fail after its work was done, so that Spark runs it again."""
        return self.strikes("task fails late", 0.1)

    def latest(self) -> Epoch:
        """The launcher: the highest attempt that was ever started."""
        return max(self.drivers, default=Epoch(0))

    def look(self, attempt: Epoch) -> DriverState:
        """The launcher: how is the driver of an attempt?"""
        self.simulation.step(f"look at driver {attempt}")
        drivers = self.drivers.get(attempt)
        if not drivers:
            return NeverStarted()
        if all(driver.process.ended for driver in drivers):
            return Ended("the process is gone", drivers[0].words, "it was killed")
        return Gone("its node is lost") if any(driver.given_up for driver in drivers) else Running(f"driver {attempt}")

    def start(self, attempt: Epoch, named: frozenset[str], orders: Orders) -> None:
        """The launcher: start the driver of an attempt, unless there is one."""
        self.simulation.step(f"start driver {attempt}")
        if attempt in self.drivers:
            return
        copies = 2 if self.strikes("start twice", 0.2) else 1
        self.drivers[attempt] = []
        for copy in range(copies):
            process = self.new_process(f"driver {attempt}.{copy}")
            driver = Driver(process)
            self.drivers[attempt].append(driver)
            self.simulation.spawn(process, process.name, partial(self._drive, driver, attempt, named, orders))

    def drain(self, attempt: Epoch) -> None:
        """The launcher: ask a driver to end after the batch in hand."""
        self.drained.add(attempt)

    def _operate(self, name: str) -> None:
        while True:
            named = self.named  # a pass has the resource as it was when the pass began
            result = self._loop(named).run_pass(plan=",".join(sorted(named)))
            self.results[name] = result
            match result:
                case Watching(attempt=attempt):
                    self._watch(attempt)
                    if self.draining and all(driver.process.ended for driver in self.drivers.get(attempt, [])):
                        return
                case Waiting(until=until):
                    self.clock = max(self.clock, until) + timedelta(milliseconds=1)
                    self.simulation.step("waited")
                case Halted() | Done():
                    return

    def _loop(self, named: frozenset[str]) -> StreamLoop:
        stores = Stores(MemoryLedger(self.database), self.store, self.topic.naming(named))
        world = World(
            stores,
            LauncherOfPass(self, named),
            self.statuses,
            Owner("cluster-1", "uid-1"),
            lambda _: True,
            self._report,
            self._now,
        )
        return StreamLoop(self._resource(named), world)

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

    def _drive(self, driver: Driver, attempt: Epoch, named: frozenset[str], orders: Orders) -> None:
        """What a driver process does: claim, take the path from the ledger, run the query."""
        ledger = MemoryLedger(self.database)
        claim = f"{driver.process.name}"
        try:
            permit, row = claim_epoch(ledger, STREAM_ID, attempt, claim, orders.ticket)
            assert row.checkpoint_path is not None
            settings = BatchSettings(
                self.scenario.delivery,
                self.scenario.commit,
                small_batch_records=1000 if self.scenario.small_batches else 0,
            )
            target = MemoryTarget(self.database, attempt)
            loop = BatchLoop(ledger, permit, target, self.topic, settings)
            Query(
                self,
                driver.process,
                row.checkpoint_path,
                loop,
                lambda: self.draining or attempt in self.drained,
                named,
                lambda: delete_expired(ledger, permit, KEEPS_NOTHING, fewest=1),
            ).run()
            driver.words = LastWords(Ending.DRAINED, "drained")
        except Fenced as problem:
            driver.words = LastWords(Ending.FENCED, str(problem))
        except StateMissing as problem:
            # What Spark says of state that is not there is no failure that a restart mends: exactlyonce_spark.failures.
            driver.words = LastWords(Ending.REFUSED, str(problem))
        except ExactlyOnceError as problem:
            driver.words = LastWords(Ending.FAILED, f"{type(problem).__name__}: {problem}")
        except Exception as problem:  # what a query fails with is the driver's last words
            driver.words = LastWords(Ending.FAILED, repr(problem))

    def _resource(self, named: frozenset[str]) -> Stream:
        return resource(
            tuple(sorted(named)), self.scenario.delivery, self.scenario.commit, self.on_truncated, self.limit
        )

    def _commit_fate(self) -> str:
        if not self.strikes("cut at commit", 0.04):
            return "answered"
        return self.random.choice(["applied", "lost", "pending"])

    def _report(self, kind: str, words: str) -> None:
        self.simulation.tell(f"{kind}: {words}")

    def _now(self) -> datetime:
        return self.clock


@contextmanager
def no_real_randomness(seed: int) -> Iterator[None]:
    """Make the random tags and tokens of the code under test follow the seed."""
    tags, tokens = random.Random(seed), random.Random(seed)
    with (
        mock.patch("exactlyonce_spark.tasks.secrets.randbits", lambda bits: tags.getrandbits(bits)),
        mock.patch("exactlyonce.reconcile.observe.uuid.uuid4", lambda: uuid.UUID(int=tokens.getrandbits(128))),
    ):
        yield
