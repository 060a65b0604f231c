"""A store of loads in the model: labels that are accepted once, two phases, and a server that aborts and forgets by itself.

Requests may be lost, or arrive long after their sender has given up; what is finished is forgotten, by its number or all at
once, and a label that is forgotten, or whose load was aborted, may be used again. The rules are those of Doris' stream load.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from exactlyonce.errors import ExactlyOnceError, Unreachable
from exactlyonce.ledger.decided import Committable
from exactlyonce.ledger.known_loads import Span
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.target import LoadState, OpenLoad, PreparedLoad, TwoPhaseTarget

Answer = TypeVar("Answer")

PREPARE_TRIES = 3


class SinkSilent(Unreachable):
    """The store did not answer; what it was asked to do may happen later."""


class LabelTaken(ExactlyOnceError):
    """A label names another load already."""


@dataclass
class Load:
    """One load: its label, its rows and what became of it."""

    label: str
    rows: tuple[Hashable, ...]
    state: LoadState = LoadState.PREPARED


@dataclass
class TwoPhaseStore:
    """`fate` says what becomes of a request, `visible` is told rows that are committed, `forgot` that labels were forgotten.

    `keeps` is how many finished loads are remembered. `truth` is what became of each, which no request tells: a person sees
    the rows.
    """

    step: Callable[[str], None]
    fate: Callable[[], str]
    visible: Callable[[Sequence[Hashable]], None]
    forgot: Callable[[], object] = lambda: None
    keeps: int = 1_000_000
    loads: dict[int, Load] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    under_way: list[Callable[[], object]] = field(default_factory=list)
    truth: dict[int, LoadState] = field(default_factory=dict)
    _finished: list[int] = field(default_factory=list)
    _number: int = 0

    def prepare(self, label: str, rows: Sequence[Hashable]) -> int:
        """Take rows under a label, and return the id of the transaction."""
        return self._asked(f"prepare {label}", partial(self._prepare, label, tuple(rows)))

    def commit(self, number: int) -> bool:
        """Commit a transaction: whether it is committed by now. One that is not found says no more than that."""
        return self._asked(f"commit load {number}", partial(self._commit, number))

    def abort(self, number: int) -> None:
        """Abort a transaction that is prepared."""
        self._asked(f"abort load {number}", partial(self._abort, number))

    def find(self, label: str) -> tuple[int, LoadState] | None:
        """Return what a label names now."""
        return self._asked(f"find {label}", partial(self._find, label))

    def prepared(self) -> list[tuple[str, int]]:
        """Return the label and the id of each load that is prepared."""
        found = partial(self._prepared)
        return self._asked("list what is prepared", found)

    def abort_by_itself(self, choose: Callable[[], bool]) -> bool:
        """The server aborts some of what has been prepared for too long; whether it did."""
        numbers = [number for _, number in self._prepared() if choose()]
        for number in numbers:
            self._abort(number)
        return bool(numbers)

    def forget(self, keep: int = 0) -> None:
        """Forget finished loads but for the latest."""
        gone = self._finished[: len(self._finished) - keep]
        del self._finished[: len(gone)]
        for number in gone:
            load = self.loads.pop(number)
            if self.labels.get(load.label) == number:
                del self.labels[load.label]
        if gone:
            self.forgot()

    def _asked(self, label: str, act: Callable[[], Answer]) -> Answer:
        self.step(label)
        fate = self.fate()
        if fate == "late":
            self.under_way.append(act)
        if fate in ("late", "lost"):
            raise SinkSilent(f"no answer: {label}")
        answer = act()
        if fate == "applied":
            raise SinkSilent(f"no answer: {label}")
        self.step(f"answered: {label}")
        return answer

    def _prepare(self, label: str, rows: tuple[Hashable, ...]) -> int:
        before = self.labels.get(label)
        if before is not None and self.loads[before].state is not LoadState.ABORTED:
            raise LabelTaken(f"{label} is {self.loads[before].state.value}")
        self._number += 1
        self.loads[self._number] = Load(label, rows)
        self.labels[label] = self._number
        return self._number

    def _commit(self, number: int) -> bool:
        load = self.loads.get(number)
        if load is None or load.state is LoadState.ABORTED:
            return False
        if load.state is LoadState.PREPARED:
            load.state = LoadState.COMMITTED
            self.visible(load.rows)
            self._finish(number)
        return True

    def _abort(self, number: int) -> None:
        load = self.loads.get(number)
        if load is not None and load.state is LoadState.PREPARED:
            load.state = LoadState.ABORTED
            self._finish(number)

    def _finish(self, number: int) -> None:
        self._finished.append(number)
        self.truth[number] = self.loads[number].state
        if len(self._finished) > self.keeps:
            self.forget(self.keeps)

    def _find(self, label: str) -> tuple[int, LoadState] | None:
        number = self.labels.get(label)
        return None if number is None else (number, self.loads[number].state)

    def _prepared(self) -> list[tuple[str, int]]:
        return [(load.label, number) for number, load in self.loads.items() if load.state is LoadState.PREPARED]


class StoreTarget(TwoPhaseTarget):
    """The store as a driver of an epoch, or one of its tasks, writes to it."""

    def __init__(self, store: TwoPhaseStore, labels: LoadLabels, epoch: Epoch) -> None:
        self._store = store
        self._labels = labels
        self._epoch = epoch

    def prepare(self, batch: BatchNumber, part: str, rows: Any, spans: Sequence[Span] = ()) -> PreparedLoad | None:
        """Prepare rows; a request without an answer is settled under the same label."""
        if not rows:
            return None
        label = self._labels.label(self._epoch, batch, part)
        for left in reversed(range(PREPARE_TRIES)):
            try:
                return PreparedLoad(label, str(self._store.prepare(label, rows)), len(rows))
            except (SinkSilent, LabelTaken):
                found = self._store.find(label)
                if found is not None and found[1] is LoadState.PREPARED:
                    return PreparedLoad(label, str(found[0]), len(rows))
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def commit(self, committable: Committable) -> bool:
        """Commit a load by its id."""
        return self._store.commit(int(committable.transaction_id))

    def state_of(self, committable: Committable) -> LoadState:
        """Return what the label says, if it still names this very transaction."""
        found = self._store.find(committable.label)
        if found is None or str(found[0]) != committable.transaction_id:
            return LoadState.UNKNOWN
        return found[1]

    def open_loads(self) -> Iterable[OpenLoad]:
        """Return the stream's loads that are prepared."""
        for label, number in self._store.prepared():
            epoch = self._labels.epoch_of(label)
            if epoch is not None:
                yield OpenLoad(label, str(number), epoch)

    def abort(self, load: OpenLoad) -> None:
        """Abort a load by its id."""
        self._store.abort(int(load.transaction_id))
