"""A world whose sink is a Kafka topic, written by the product's own target, and whose ledger goes back behind the topic.

A standby is promoted that lacks the latest transactions, or a backup is restored. Whatever the ledger has lost of what the
topic has must be noticed before anything lands: the stream halts, a person looks for the rows and says what is there, and each
record is then there once, or named where nobody knows what became of it.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Hashable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from unittest import mock

from exactlyonce.api.resource import RESET_OFFSETS, SETTLE_LOADS
from exactlyonce.api.status import Phase
from exactlyonce.connectors.postgres.spec import PostgresSink
from exactlyonce.ledger.decided import Answer, Committable
from exactlyonce.ledger.known_loads import FoundLoad
from exactlyonce.ledger.rows import FailureRow, StreamRow
from exactlyonce.ledger.two_phase import DecisionDiffers
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Positions, Ranges
from exactlyonce.reconcile.asked_reset import AskedReset
from exactlyonce_spark import tasks
from exactlyonce_spark.connectors.kafka import sink_marker
from exactlyonce_spark.connectors.kafka.replay_transactions import ReplayTransactions
from exactlyonce_spark.connectors.kafka.sink_errors import TransactionGone
from exactlyonce_spark.connectors.kafka.sink_marker import Marker
from exactlyonce_spark.connectors.kafka.sink_target import KafkaTarget
from exactlyonce_spark.latest_loads import LedgerBehindSink
from exactlyonce_spark.left_out import FailingRecords
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.target import LoadState
from exactlyonce_spark.two_phase_finish import LoadsInDoubt
from tests.simulation import spark_batch
from tests.simulation.causes import SUCCESSOR
from tests.simulation.kafka_brokers import KafkaStore, SimulatedKafkaTarget, StoreTransactions
from tests.simulation.poison import is_left_out
from tests.simulation.resource import STREAM_ID
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Process
from tests.simulation.server import Hooks, MemoryDatabase, Tables
from tests.simulation.two_phase_world import (
    LABELS_EXPIRE,
    LOADS_ABORTED,
    SINK_SILENT,
    StoreDatabase,
    TwoPhaseWorld,
    annotate_answer,
)

GOES_BACK = frozenset({"failover", "restore"})
_SOURCE_CHANGES = frozenset({"truncate", "re-create", "retention", "topics changed"})
"""They change what positions mean, or what is behind them, between what the ledger lost and what a person finds."""

BY_HAND = "a person has looked into the topic"


class KafkaLedgerDatabase(StoreDatabase):
    """The ledger's database alone goes back; the topic keeps what it has."""

    def restore(self, backup: Tables) -> None:
        """Put back an earlier state of the ledger."""
        self.go_back(backup)


class KafkaWorld(TwoPhaseWorld):
    """One stream into a topic. `settled` are the loads for which a person has answered."""

    errors: Mapping[type[BaseException], frozenset[str]] = {
        **TwoPhaseWorld.errors,
        LedgerBehindSink: frozenset({"restore"}),
        DecisionDiffers: frozenset({"restore"}),
        LoadsInDoubt: frozenset({"restore"}),  # a person has set the positions over a batch that is decided
        TransactionGone: frozenset({SUCCESSOR, LOADS_ABORTED, "restore", "start twice", "lose driver"}),
    }
    loads: KafkaStore

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        self._targets: dict[Process | None, KafkaTarget] = {}
        self.settled: list[str] = []
        super().__init__(seed, scenario)
        # In some, the records of a load are too many for its marker, which then has their digest alone.
        self.most_characters = self.random.choice([sink_marker.MOST_CHARACTERS, sink_marker.MOST_CHARACTERS, 100])

    def made_store(self) -> KafkaStore:
        """Return the brokers."""
        return KafkaStore(lambda label: None, lambda: "answered", lambda rows: None)

    def target(self, epoch: int) -> Any:
        """Return the topic as the process that is running has taken it."""
        process = self.simulation.running
        if process not in self._targets:
            stream: StreamRow | None = self.database.tables.rows.get(("stream", STREAM_ID))
            token = "of a row that is gone by now" if stream is None else stream.token
            self._targets[process] = self._taken(LoadLabels(STREAM_ID, token), Epoch(epoch))
        return self._targets[process]

    def _taken(self, labels: LoadLabels, epoch: Epoch) -> KafkaTarget:
        name = labels.prefix.rstrip(":")
        transactions = StoreTransactions(self.loads, name)
        marker = transactions.take()
        return SimulatedKafkaTarget(
            transactions,
            marker,
            labels,
            epoch,
            "the topic",
            name,
            self._marker_of,
            ReplayTransactions(self._marker_of),
            now=lambda: float(self.simulation.now),
        )

    def _marker_of(self, name: str) -> Marker | None:
        return StoreTransactions(self.loads, name).take()

    def run_again(
        self, process: Process, without: Collection[tuple[Partition, OffsetRange]], ranges: Ranges, job: tasks.Job
    ) -> list[tasks.TaskReport]:
        """Run a job in the driver over the rows of exactly these ranges: their transaction ended with its producer."""
        assert isinstance(job, tasks.PrepareJob)
        rows: list[Hashable] = []
        for key, offsets in ranges.items():
            self.simulation.step(f"read {key} {offsets} again")
            left_out = [FailingRecords(partition, spans, "") for partition, spans in without]
            rows += [row for row in self.topic.read(key, offsets) if not is_left_out(key, row[2], left_out)]
        again = replace(job, left_out=tuple(without))
        return [again.run(tasks.TaskTools(None, self.target(0), self.source_check()), tasks.TaskPlace(0, 0), rows)]

    def patched(self) -> AbstractContextManager[object]:
        """The resource's sink says which load it has committed last, and its rows are prepared by the driver."""
        stack = ExitStack()
        stack.enter_context(super().patched())
        stack.enter_context(mock.patch.object(PostgresSink, "tells_latest_load", True))
        stack.enter_context(mock.patch.object(sink_marker, "MOST_CHARACTERS", self.most_characters))
        stack.enter_context(mock.patch.object(spark_batch.Batch, "pieces", lambda batch: batch.collect()))
        return stack

    def what_became_of(self, load: Committable) -> LoadState:
        """Return what a person sees who looks into the topic for the records: no row says under which label it came."""
        records = {record for key, offsets in load.ranges.items() for record in self.records_in(key, offsets)}
        return LoadState.COMMITTED if records & self.database.tables.target.keys() else LoadState.ABORTED

    def answers_for_found(self) -> bool:
        """A stream has halted over a load that its ledger has lost: a person looks for its rows, and says what is there."""
        stream: StreamRow | None = self.database.tables.rows.get(("stream", STREAM_ID))
        found = None if stream is None else stream.loads.found
        if stream is None or found is None or stream.landed_batch is None:
            return False
        name, text = self._word_on(stream, found)
        if (name, text) in self.annotations:
            return False
        self.settled.append(found.name)
        annotate_answer(self, name, text, f"a person has looked into the topic and sets {name}")
        return True

    def _word_on(self, stream: StreamRow, found: FoundLoad) -> tuple[str, str]:
        """Return the annotation: an answer where the ranges are known, else positions after what the topic has."""
        is_there = found.label in self.loads.committed
        if found.label and not is_there:
            return SETTLE_LOADS, f"{found.label}={Answer.ABORTED} by=jane"
        if found.label and "does not name its records" not in self.statuses.status.message:
            return SETTLE_LOADS, f"{found.label}={Answer.COMMITTED} by=jane"
        rows = self.database.tables.rows.items()
        stands = Positions({key[2]: value[0] for key, value in rows if key[0] == "position"})
        after = Positions({key: max(at, self._ends_in_topic(key)) for key, at in stands.items()})
        batch = BatchNumber(stream.landed_batch or 0)
        when = datetime(2026, 1, 1, tzinfo=UTC)
        asked = AskedReset(stream.life, batch, stands, after, True, "jane", when, BY_HAND, found.name)
        return RESET_OFFSETS, asked.to_json()

    def _ends_in_topic(self, key: Partition) -> int:
        offsets = [row[2] for row in self.database.tables.target if isinstance(row, tuple) and row[1] == key.key]
        return max(offsets, default=-1) + 1

    def is_doubtful(self, row: FailureRow) -> bool:
        """Whether a range is in quarantine because the ledger has lost what became of it: its records may be in the topic."""
        return "the ledger went back" in row.error or BY_HAND in row.error

    def is_landed(self, record: tuple[str, int, int], stands: Mapping[Partition, int]) -> bool:
        """Whether a row may be there: a stream that has halted may have a ledger that does not know of it."""
        has_gone_back = self.statuses.status.phase is Phase.HALTED and self.journal.has_struck({"restore"})
        return has_gone_back or super().is_landed(record, stands)

    def _made_database(self, hooks: Hooks) -> MemoryDatabase:
        return KafkaLedgerDatabase(hooks)

    def _fitting(self, scenario: Scenario) -> Scenario:
        fitting = super()._fitting(scenario)
        if not scenario.hazards:
            return fitting
        hazards = fitting.hazards - {LABELS_EXPIRE}
        if self._is_drawn and random.Random(f"goes back {self.seed}").random() < 0.5:
            hazards &= {
                "kill driver",
                "strike at commit",
                "poison",
                "limit changed",
                "lose driver",
                "freeze driver",
                SINK_SILENT,
            }
        if scenario.hazards & GOES_BACK:
            # A lost status and a lost checkpoint, too, would leave no trace of a ledger from before the first batch.
            hazards = hazards - _SOURCE_CHANGES - {"lose status"} | scenario.hazards & GOES_BACK
        return replace(fitting, hazards=hazards, manifest=False)
