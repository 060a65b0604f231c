"""A Kafka topic as a sink of two phases: one open transaction, which a decision has this process commit. No pyspark here.

A transaction ends with its producer. So a decided batch whose driver has died is committed or it is not: the next driver takes
the transactional id, which settles that for good, and the marker then says which. docs/adr/0048 has the argument.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.decided import Committable
from exactlyonce.ledger.known_loads import FoundLoad, LatestLoads, Span
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.connectors.kafka.replay_transactions import ReplayTransactions, state_by
from exactlyonce_spark.connectors.kafka.sink_fit import FIRST_HEADER, KEY, VALUE
from exactlyonce_spark.connectors.kafka.sink_marker import Marker
from exactlyonce_spark.connectors.kafka.sink_transactions import Transactions
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.load_labels import LoadLabels, batch_of, names_replay, prefix_of
from exactlyonce_spark.target import LoadState, OpenLoad, PreparedLoad, TwoPhaseTarget

log = logging.getLogger("exactlyonce.batch")

MARKED_AGAIN_SECONDS = 3600.0
"""A marker older than this is written again before a batch: brokers forget one after offsets.retention.minutes, 7 days."""


@dataclass
class KafkaTarget(TwoPhaseTarget):
    """The topic as the driver of an epoch writes to it, which has taken the transactional id.

    `marker` is what was found then, and what was committed since; where there is none, `first_marker` is written first.
    `take_other` takes another id, of an earlier life of the stream that was adopted with a decided batch, and returns its
    marker. `replays` are asked about what replays have decided.
    """

    tells_latest: ClassVar[bool] = True

    transactions: Transactions
    marker: Marker | None
    labels: LoadLabels
    epoch: Epoch
    at: str
    transactional_id: str
    take_other: Callable[[str], Marker | None]
    replays: ReplayTransactions
    where_to_look: str = ""
    headers: Sequence[str] = ()
    now: Callable[[], float] = time.monotonic
    first_marker: Marker = field(default=Marker(), init=False)
    _has_asked_to_commit: bool = field(default=False, init=False)
    _open: Marker | None = field(default=None, init=False)
    _marked_at: float | None = field(default=None, init=False)
    _others: dict[str, Marker | None] = field(default_factory=dict, init=False)

    @property
    def prepares_in_driver(self) -> bool:
        """A transaction has one producer, which lives until it is committed."""
        return True

    def latest(self, known: LatestLoads | None) -> FoundLoad | None:
        """Return what the marker says; until this life of the stream has committed rows, that of the life before."""
        found = None if self.marker is None else self.marker.load
        former = None if found is not None or known is None else prefix_of(known.label)
        if former is not None and former != self.transactional_id:
            marker = self._marker_of(former)
            found = None if marker is None else marker.load
        return None if found is None else replace(found, place=self.place)

    def prepare(self, batch: BatchNumber, part: str, rows: Any, spans: Sequence[Span] = ()) -> PreparedLoad | None:
        """Send the rows of Arrow batches in a transaction, with its marker, and leave it open."""
        self.abandon()
        label = self.labels.label(self.epoch, batch, part)
        count, has_begun = 0, False
        try:
            for piece in rows:
                if piece.num_rows and not has_begun:
                    has_begun = True
                    self._begin()
                count += self._sent(piece)
                reached("transaction.piece-sent", batch)
            if not count:
                # The batch moves the positions nonetheless, and many may follow each other before one has rows.
                has_begun = self._is_marker_old()
                if has_begun:
                    self._mark_again()
                return None
            marker = Marker(label, batch, count, tuple(spans))
            self.transactions.mark(marker)
        except Exception:
            if has_begun:
                self._abort()
            raise
        self._open = marker
        return PreparedLoad(label, self.transactional_id, count)

    def commit(self, committable: Committable) -> bool:
        """Commit the open transaction, if it is this one's; any other was committed by an earlier driver, or is not."""
        marker = self._open
        if marker is None or marker.label != committable.label:
            return self.state_of(committable) is LoadState.COMMITTED
        self._open, self._has_asked_to_commit = None, True
        self.transactions.commit()
        self._has_asked_to_commit = False
        self._has_committed(marker)
        return True

    def state_of(self, committable: Committable) -> LoadState:
        """Return what the marker says: transactions follow each other, so it is of the latest one that was committed.

        Where it is lacking, brokers have forgotten it. Where it is of the same batch or a later one, though no later one is
        decided before this one has landed, something has gone wrong that nobody here understands.
        """
        label = committable.label
        if self._open is not None and self._open.label == label:
            return LoadState.PREPARED
        if names_replay(committable.transaction_id):
            return self._state_of_replay(committable)
        marker, batch = self._marker_of(committable.transaction_id), batch_of(label)
        if marker is None or batch is None:
            return LoadState.UNKNOWN
        if marker.label == label:
            return LoadState.COMMITTED
        is_earlier = marker.batch is None or marker.batch < batch
        return LoadState.ABORTED if is_earlier else LoadState.UNKNOWN

    def _state_of_replay(self, committable: Committable) -> LoadState:
        """Return what became of what a replay has decided.

        Where this is a replay, it has the id. That its marker is still the latest one shows by a commit of the same again:
        nobody has had the id since it was taken, and who had it before commits nothing.
        """
        if committable.transaction_id != self.transactional_id or self._has_asked_to_commit:
            return self.replays.state_of(committable)
        if self.marker is not None:
            self.abandon()
            self._mark_again()
        return state_by(self.marker, committable.label)

    @property
    def place(self) -> str:
        """The topic and the cluster."""
        return self.at

    def how_to_find_out(self, in_doubt: Sequence[Committable]) -> str:
        """Say where a person looks: at the topic itself."""
        return self.where_to_look

    def open_loads(self) -> Iterable[OpenLoad]:
        """Return none: what was open when this driver took the transactional id has ended by that."""
        return ()

    def abort(self, load: OpenLoad) -> None:
        """Do nothing, as none is listed."""

    def _marker_of(self, transactional_id: str) -> Marker | None:
        if transactional_id == self.transactional_id:
            return self.marker
        if transactional_id not in self._others:
            self._others[transactional_id] = self.take_other(transactional_id)
        return self._others[transactional_id]

    def _begin(self) -> None:
        """Begin the transaction of a batch, behind a fresh marker: without one, what is decided next could be in doubt.

        A first one says that nothing was committed yet. Rows of a decided batch whose marker is lacking are made again only
        if a person has said so.
        """
        if self._is_marker_old():
            self._mark_again()
        self.transactions.begin()

    def _mark_again(self) -> None:
        marker = self.marker or self.first_marker
        self.transactions.begin()
        self.transactions.mark(marker)
        self.transactions.commit()
        self._has_committed(marker)
        reached("transaction.marked")

    def _is_marker_old(self) -> bool:
        return self.marker is None or self._marked_at is None or self.now() - self._marked_at > MARKED_AGAIN_SECONDS

    def _has_committed(self, marker: Marker) -> None:
        self.marker, self._marked_at = marker, self.now()

    def _sent(self, piece: Any) -> int:
        keys, values = piece.column(KEY).to_pylist(), piece.column(VALUE).to_pylist()
        told = [piece.column(FIRST_HEADER + place).to_pylist() for place in range(len(self.headers))]
        for row, (key, value) in enumerate(zip(keys, values, strict=True)):
            headers = [
                (name, column[row]) for name, column in zip(self.headers, told, strict=True) if column[row] is not None
            ]
            self.transactions.send(key, value, headers)
        return len(keys)

    def abandon(self) -> None:
        """Abort what an earlier call has left open, because its batch has failed, or nobody has decided it."""
        if self._open is not None:
            self._open = None
            self.transactions.abort()

    def _abort(self) -> None:
        """Abort what has failed, if Kafka answers: else the next driver does by taking the id, or the brokers in time."""
        try:
            self.transactions.abort()
        except ExactlyOnceError as problem:
            log.warning("A transaction that has failed stays open until the next driver: %s", problem)
