"""Brokers in the model, as a stream's transactions use them: one id, one open transaction, and a marker committed in it.

Who takes an id ends what was open under it, and whoever had it before commits nothing any more. The rules are those of Kafka's
transactions; the requests that matter may be lost, or arrive late.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from exactlyonce_spark.connectors.kafka.sink_errors import TransactionGone
from exactlyonce_spark.connectors.kafka.sink_marker import Marker
from exactlyonce_spark.connectors.kafka.sink_target import KafkaTarget
from exactlyonce_spark.connectors.kafka.sink_transactions import Headers
from tests.simulation.two_phase_store import TwoPhaseStore


@dataclass
class Transaction:
    """One that is open: its rows, and the marker that it sets."""

    rows: tuple[Hashable, ...]
    marker: Marker


@dataclass
class HeldId:
    """What a coordinator keeps of one transactional id. Each take, and each abort by time, raises its epoch."""

    epoch: int = 0
    open: Transaction | None = None
    marker: str | None = None


class KafkaStore(TwoPhaseStore):
    """What the brokers have. A load is a transaction; `ids` are theirs, and `committed` are the labels of those with rows."""

    def __init__(self, step: Callable[[str], None], fate: Callable[[], str], visible: Callable[[Any], None]) -> None:
        super().__init__(step, fate, visible)
        self.ids: dict[str, HeldId] = {}
        self.committed: list[str] = []

    def abort_by_itself(self, choose: Callable[[], bool]) -> bool:
        """Abort what has been open for too long."""
        late = [held for held in self.ids.values() if held.open is not None and choose()]
        for held in late:
            held.open, held.epoch = None, held.epoch + 1
        return bool(late)

    def forget(self, keep: int = 0) -> None:
        """Forget the markers, as after offsets.retention.minutes."""
        marked = [held for held in self.ids.values() if held.marker is not None]
        for held in marked:
            held.marker = None
        if marked:
            self.forgot()


@dataclass
class StoreTransactions:
    """`Transactions` over the store: the records that were sent are known to it from `mark` on."""

    store: KafkaStore
    name: str
    _epoch: int = -1
    _number: int = 0
    _pending: list[Hashable] = field(default_factory=list)

    def take(self) -> Marker | None:
        """Take the id, then read the marker; another one may have taken it in between."""

        def taken() -> None:
            held = self.store.ids.setdefault(self.name, HeldId())
            held.open, held.epoch = None, held.epoch + 1
            self._epoch = held.epoch

        self.store._asked(f"take {self.name}", taken)
        return self.store._asked(
            f"read the marker of {self.name}", lambda: Marker.from_metadata(self.store.ids[self.name].marker)
        )

    def begin(self) -> None:
        """Begin a transaction."""
        self._pending, self._number = [], self._number + 1

    def send(self, key: bytes | None, value: Any, headers: Headers) -> None:
        """Send a row."""
        self._pending.append(value)

    def mark(self, marker: Marker) -> None:
        """Send what is there, with the marker."""
        number, rows = self._number, tuple(self._pending)

        def marked() -> None:
            held = self._held()
            if held.open is not None or number != self._number:
                raise TransactionGone("another transaction is open")
            held.open = Transaction(rows, marker)

        self.store._asked(f"send {len(rows)} rows and mark {marker.label}", marked)

    def commit(self) -> None:
        """Commit: rows and marker at once."""
        number = self._number

        def committed() -> None:
            held = self._held()
            ended = held.open
            if ended is None or number != self._number:
                raise TransactionGone("no transaction is open")
            held.open, held.marker = None, ended.marker.to_metadata()
            if ended.rows:
                self.store.committed.append(str(ended.marker.label))
                self.store.visible(ended.rows)

        self.store._asked(f"commit the transaction of {self.name}", committed)

    def abort(self) -> None:
        """Abort what is open."""

        def aborted() -> None:
            self._held().open = None

        self._number += 1
        self.store._asked(f"abort the transaction of {self.name}", aborted)

    def _held(self) -> HeldId:
        held = self.store.ids[self.name]
        if held.epoch != self._epoch:
            raise TransactionGone(f"the id {self.name} is another one's by now")
        return held


@dataclass
class Piece:
    """Some rows of a batch, as a driver is handed them."""

    rows: list[Hashable]

    @property
    def num_rows(self) -> int:
        """How many they are."""
        return len(self.rows)


class SimulatedKafkaTarget(KafkaTarget):
    """The product's own target, but for what a row is."""

    def prepare(self, batch: Any, part: str, rows: Any, spans: Any = ()) -> Any:
        """Prepare the rows of a batch in two pieces."""
        return super().prepare(batch, part, list(_pieces(list(rows))), spans)

    def _sent(self, piece: Piece) -> int:
        for row in piece.rows:
            self.transactions.send(None, row, ())  # type: ignore[arg-type] # a row of the model is no bytes
        return piece.num_rows


def _pieces(rows: list[Hashable]) -> Iterator[Piece]:
    half = len(rows) // 2
    return (Piece(part) for part in (rows[:half], rows[half:]) if part)
