"""One stream's loop with everything in memory: each effect has a name, and the operator may die before any of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from exactlyonce.api.phases import TransitionReason
from exactlyonce.api.resource import Stream, parse_stream
from exactlyonce.api.status import StreamStatus
from exactlyonce.checkpoint import files
from exactlyonce.checkpoint.generation import read_marker
from exactlyonce.checkpoint.state import Readable, read_generation
from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.errors import Unreachable
from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.launch.port import NO_ORDERS, DriverState, Ended, LaunchFailed, NeverStarted, Orders, Running
from exactlyonce.ledger.fence import claim_epoch
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.rows import BatchRow, BatchStatus, FailureRow, LedgerView, Owner
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition, Positions
from exactlyonce.reconcile.loop import PassResult, StatusConflict, StreamLoop, Waiting, Wanted, Watching
from exactlyonce.reconcile.observe import Stores
from exactlyonce.reconcile.pass_context import Attempts, PassContext, Place, Reporter, Timing
from exactlyonce.reconcile.phase_check import check_transition
from tests.simulation.database import Hooks, MemoryDatabase, MemoryLedger
from tests.simulation.files import MemoryStore
from tests.simulation.source import MemoryTopic

STREAM = "shop/orders"
KEYS = (Partition("orders", 0), Partition("orders", 1))
ME = Owner("cluster-1", "uid-1")
FIRST, SECOND = Epoch(1), Epoch(2)


class Died(BaseException):
    """Ends the operator as SIGKILL does: no handler of the code under test may answer it."""


@dataclass
class Drivers:
    """A `Launcher`: drivers are what a test says they are."""

    step: Callable[[str], None]
    states: dict[Epoch, DriverState] = field(default_factory=dict)
    drained: list[Epoch] = field(default_factory=list)
    killed: list[Epoch] = field(default_factory=list)
    broken: bool = False
    broken_kill: bool = False
    orders: dict[Epoch, Orders] = field(default_factory=dict)

    def latest(self) -> Epoch:
        """Return the highest attempt that left a trace."""
        return max(self.states, default=Epoch(0))

    def state_of(self, attempt: Epoch) -> DriverState:
        """Return how the driver is."""
        return self.states.get(attempt, NeverStarted())

    def start(self, attempt: Epoch, orders: Orders = NO_ORDERS) -> None:
        """Start it."""
        self.orders[attempt] = orders
        self.step(f"start driver {attempt}")
        if self.broken:
            raise LaunchFailed("There is no room for a driver.")
        self.states.setdefault(attempt, Running("in memory"))

    def ticket(self, attempt: Epoch) -> str:
        """Return what the driver of an attempt claims with."""
        return self.orders[attempt].ticket

    def drain(self, attempt: Epoch) -> None:
        """Ask it to end."""
        self.drained.append(attempt)

    def kill(self, attempt: Epoch) -> None:
        """End it."""
        if self.broken_kill:
            raise Unreachable("The API server did not answer.")
        self.step(f"kill driver {attempt}")
        self.killed.append(attempt)


@dataclass
class Statuses:
    """A `StatusStore`; `meanwhile` acts for another pass just before a write."""

    step: Callable[[str], None]
    status: StreamStatus = field(default_factory=StreamStatus)
    version: int = 0
    meanwhile: Callable[[], None] = lambda: None

    def read(self) -> tuple[StreamStatus, str]:
        """Return the status and its version."""
        return self.status, str(self.version)

    def write(self, status: StreamStatus, version: str, reason: TransitionReason | None = None) -> str:
        """Replace the status of that version."""
        self.step(f"record {status.phase}")
        self.meanwhile()
        if version != str(self.version):
            raise StatusConflict("the status was written meanwhile")
        check_transition(self.status.phase, status.phase, reason)
        self.status, self.version = status, self.version + 1
        return str(self.version)


class Machine:
    """The world of one stream. `effects` are the names of what was done; `dies_before` is the effect never reached."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.dies_before: int | None = None
        self.reports: list[tuple[str, str]] = []
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.database = MemoryDatabase(Hooks(self._database_step))
        self.ledger = MemoryLedger(self.database)
        self.store = MemoryStore(self._step)
        self.topic = MemoryTopic(dict.fromkeys(KEYS, 100))
        self.drivers = Drivers(self._step)
        self.statuses = Statuses(self._step)
        self.owner = ME
        self.owner_is_gone = False
        self.spec: dict[str, Any] = {}
        self.annotations: dict[str, str] = {}
        self.looks = False
        self.in_pod = False
        self.asks_again = False
        self.rehearse: Callable[[], None] = lambda: None
        self.keys: tuple[Partition, ...] = KEYS

    @property
    def stream(self) -> Stream:
        """The resource as it is now."""
        document = {
            "apiVersion": "exactlyonce.dev/v1alpha1",
            "kind": "ExactlyOnceStream",
            "metadata": {"name": "orders", "namespace": "shop", "annotations": self.annotations},
            "spec": {
                "source": {
                    "kafka": {"bootstrapServers": "memory", "topics": ["orders"]},
                    "format": {"schema": "id INT"},
                },
                "sink": {"postgres": {"secretRef": {"name": "warehouse"}, "table": "orders"}},
                "checkpoint": {"local": {"path": self.store.location}},
                **self.spec,
            },
        }
        return parse_stream(document, "the test")

    def reads(self, *topics: str) -> None:
        """Change the resource: it reads these topics."""
        named = {"bootstrapServers": "memory", "topics": list(topics)}
        self.spec = {**self.spec, "source": {"kafka": named, "format": {"schema": "id INT"}}}
        self.topic.reads = lambda partition: partition.origin in topics

    def run_pass(self, wanted: Wanted = Wanted.RUN, plan: str | None = None) -> PassResult:
        """Let a new operator, which remembers nothing, do one pass."""
        world = PassContext(
            Stores(self.ledger, self.store, self.topic),
            Attempts(self.drivers, rehearse=self.rehearse),
            self.statuses,
            Place(self.owner, lambda owner: self.owner_is_gone, lambda: self.in_pod, self.asks_again),
            Reporter(lambda kind, words: self.reports.append((kind, words))),
            Timing(lambda: self.now, lambda: self.looks),
        )
        return StreamLoop(self.stream, world).run_pass(wanted, plan)

    def run_until_a_driver_runs(self) -> Epoch:
        """Pass until a driver is watched."""
        for _ in range(10):
            result = self.run_pass()
            if isinstance(result, Watching):
                return result.attempt
            self.now += timedelta(hours=1)
        raise AssertionError(f"no driver runs: {result}")

    def land(self, attempt: Epoch, *ends: int, known_to_spark: bool = True) -> None:
        """Be the driver of an attempt: claim it, plan one batch up to these ends and land it."""
        permit, row = claim_epoch(self.ledger, STREAM, attempt, f"claim {attempt}", self.drivers.ticket(attempt))
        assert row.landed_batch is not None
        assert row.checkpoint_path is not None
        number = BatchNumber(row.landed_batch + 1)
        end = Positions(dict(zip(self.keys, ends, strict=True)))
        folder = row.checkpoint_path.rsplit("/", 1)[-1]
        self.store.files.setdefault(f"{folder}/commits/{number - 1}", files.render_commit())  # batch 0 ran before
        self.store.files[f"{folder}/offsets/{number}"] = files.render_offsets(CODEC.render_entry(end), 8)
        with self.ledger.transaction() as transaction:
            locked = transaction.lock_stream(STREAM, Lock.UPDATE)
            assert locked is not None
            ranges = transaction.read_positions(STREAM).positions.ranges_until(end)
            kept = self.topic.last_records(ranges).result()
            ids = {key.origin: self.topic.id_of(key.origin) for key in ranges}
            assert transaction.advance_positions(STREAM, ranges, ids, kept) == len(ends)
            transaction.write_batch(STREAM, BatchRow(number, permit.epoch, BatchStatus.LANDED, ranges))
            transaction.update_stream(replace(locked, landed_batch=number))
        if known_to_spark:
            self.store.files[f"{folder}/commits/{number}"] = files.render_commit()

    def end(self, attempt: Epoch, ending: Ending | None = None, batch: int | None = None) -> None:
        """End the driver of an attempt; without an ending it was killed."""
        words = None if ending is None else LastMessage(ending, f"it {ending}.", batch)
        self.drivers.states[attempt] = Ended("the process is gone", words, "it was killed")

    def view(self) -> LedgerView:
        """Return what the ledger holds."""
        view = self.ledger.view(STREAM)
        assert view is not None
        return view

    def failures(self) -> list[FailureRow]:
        """Return the failures in the ledger, in the order of their batches."""
        rows = [row for key, row in self.database.tables.rows.items() if key[0] == "failure"]
        return sorted(rows, key=lambda row: row.batch)

    def stands(self) -> tuple[int, ...]:
        """Return the landed positions."""
        return tuple(self.view().landed.positions.values())

    def assert_launched_as_published(self) -> None:
        """What runs is what the ledger published: a readable checkpoint at the landed positions, under one token."""
        view, status = self.view(), self.statuses.status
        assert status.attempt == view.stream.epoch
        assert isinstance(self.drivers.state_of(Epoch(status.attempt)), Running)
        assert view.stream.checkpoint_path is not None
        state = read_generation(self.store, CODEC, view.stream.checkpoint_path.rsplit("/", 1)[-1])
        assert isinstance(state, Readable)
        assert state.planned_end == view.landed.positions
        marker = read_marker(self.store)
        assert marker is not None
        assert (marker.stream_id, marker.token) == (STREAM, view.stream.token)
        assert (view.stream.owner, view.stream.database) == (self.owner, self.database.identity)

    def _step(self, name: str) -> None:
        if len(self.effects) == self.dies_before:
            self.dies_before = None
            raise Died(name)
        self.effects.append(name)

    def _database_step(self, name: str) -> None:
        if name in ("commit", "committed"):  # what a transaction did before its commit no one else has seen
            self._step(name)


def started() -> Machine:
    """Return a world whose first driver runs and has landed batch 1 up to 40 and 30."""
    machine = Machine()
    for _ in ("it is started", "it is seen to run"):
        assert machine.run_pass() == Watching(FIRST)
    machine.land(FIRST, 40, 30)
    machine.effects.clear()
    machine.reports.clear()
    return machine


def ended() -> Machine:
    """Return that world after its driver was killed and the pass that wrote this down."""
    machine = started()
    machine.end(FIRST)
    assert machine.run_pass() == Waiting(machine.now, "it was killed")
    machine.effects.clear()
    machine.reports.clear()
    return machine
