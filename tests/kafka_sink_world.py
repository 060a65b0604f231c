"""A stream into a Kafka topic, over the ledger in memory, whose drivers die at named points; and transactions in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from exactlyonce.errors import Unreachable
from exactlyonce.ledger.fence import Permit
from exactlyonce.positions.ranges import Epoch, Ranges
from exactlyonce_spark.connectors.kafka.replay_transactions import ReplayTransactions
from exactlyonce_spark.connectors.kafka.sink_errors import KafkaAway, TransactionGone
from exactlyonce_spark.connectors.kafka.sink_marker import Marker
from exactlyonce_spark.connectors.kafka.sink_target import KafkaTarget
from exactlyonce_spark.connectors.kafka.sink_transactions import Headers, Transactions
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.target import TwoPhaseTarget
from tests.ledgers import STREAM
from tests.two_phase_stream import World, span_of

TRANSACTIONAL_ID = LoadLabels(STREAM, "token-1").prefix.rstrip(":")

Take = Callable[[str], Transactions]


@dataclass
class Transaction:
    """One that is open: its records, and the marker that it sets."""

    records: list[str] = field(default_factory=list)
    marker: str | None = None


@dataclass
class Held:
    """What a coordinator keeps of one transactional id."""

    epoch: int = 0
    open: Transaction | None = None
    marker: str | None = None


@dataclass
class MemoryBrokers:
    """The rules of Kafka's transactions, one id at a time. `fates` are those of the next requests to commit.

    Who takes an id gets a greater epoch, and what is open is aborted; whoever has a lesser one is refused. `under_way` are
    requests that arrive later.
    """

    ids: dict[str, Held] = field(default_factory=dict)
    committed: Counter[Hashable] = field(default_factory=Counter)
    fates: list[str] = field(default_factory=list)
    under_way: list[Callable[[], None]] = field(default_factory=list)

    def abort_by_time(self, transactional_id: str = TRANSACTIONAL_ID) -> None:
        """Do what brokers do when a transaction is open for too long."""
        held = self.ids[transactional_id]
        assert held.open is not None, "a transaction is open"
        held.open, held.epoch = None, held.epoch + 1

    def forget_markers(self) -> None:
        """Do what brokers do after offsets.retention.minutes."""
        for held in self.ids.values():
            held.marker = None


@dataclass
class MemoryTransactions:
    """`Transactions` over brokers in memory."""

    brokers: MemoryBrokers
    transactional_id: str
    epoch: int = -1

    def take(self) -> Marker | None:
        held = self.brokers.ids.setdefault(self.transactional_id, Held())
        held.open, held.epoch = None, held.epoch + 1
        self.epoch = held.epoch
        return Marker.from_metadata(held.marker)

    def begin(self) -> None:
        held = self._held()
        assert held.open is None, "one transaction at a time"
        held.open = Transaction()

    def send(self, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        assert value is not None
        self._transaction().records.append(value.decode())

    def mark(self, marker: Marker) -> None:
        self._transaction().marker = marker.to_metadata()

    def commit(self) -> None:
        fate = self.brokers.fates.pop(0) if self.brokers.fates else "answered"
        if fate == "late":
            self.brokers.under_way.append(self._commit)
        elif fate != "lost":
            self._commit()
        if fate != "answered":
            raise KafkaAway("no answer")

    def abort(self) -> None:
        self._held().open = None

    def _commit(self) -> None:
        held, transaction = self._held(), self._transaction()
        assert transaction.marker is not None, "no transaction is committed without a marker"
        self.brokers.committed.update(transaction.records)
        held.open, held.marker = None, transaction.marker

    def _held(self) -> Held:
        held = self.brokers.ids[self.transactional_id]
        if held.epoch != self.epoch:
            raise TransactionGone("fenced")
        return held

    def _transaction(self) -> Transaction:
        transaction = self._held().open
        if transaction is None:
            raise TransactionGone("no transaction is open")
        return transaction


@dataclass
class KafkaWorld(World):
    """One stream into Kafka; `transactions` are of a transactional id, and each driver takes it again."""

    brokers: MemoryBrokers = field(default_factory=MemoryBrokers)
    transactions: Take | None = None
    token: str = "token-1"
    now_seconds: float = 0.0
    targets: dict[Epoch, KafkaTarget] = field(default_factory=dict)

    def target(self, permit: Permit | None = None) -> TwoPhaseTarget:
        epoch = (permit or self.permit).epoch
        if epoch not in self.targets:
            self.targets[epoch] = self._taken(epoch)
        return self.targets[epoch]

    def rows(self, ranges: Ranges) -> Sequence[Any]:
        return list(self._pieces(ranges))

    def _pieces(self, ranges: Ranges) -> Iterator[pa.RecordBatch]:
        for key, span in ranges.items():
            ids = [f"{key.key}/{at}".encode() for at in range(*span_of(span))]
            yield pa.RecordBatch.from_arrays([pa.array(ids, pa.binary())] * 2, ["c0", "c1"])

    def _under(self, transactional_id: str) -> Transactions:
        if self.transactions is not None:
            return self.transactions(transactional_id)
        return MemoryTransactions(self.brokers, transactional_id)

    def _taken(self, epoch: Epoch) -> KafkaTarget:
        labels = LoadLabels(STREAM, self.token)
        own = labels.prefix.rstrip(":")
        transactions = self._under(own)
        marker = transactions.take()
        reached("transaction.taken")
        return KafkaTarget(
            transactions,
            marker,
            labels,
            epoch,
            "rows of the Kafka cluster it",
            own,
            lambda other: self._under(other).take(),
            ReplayTransactions(lambda other: self._under(other).take(), now=lambda: self.now_seconds),
            "Look into the topic.",
            now=lambda: self.now_seconds,
        )


assert issubclass(KafkaAway, Unreachable)
assert issubclass(TransactionGone, Unreachable)
