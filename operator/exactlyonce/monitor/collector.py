"""Makes the series of all streams at the moment of a scrape, from what the monitor knows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from exactlyonce.api.status import Phase
from exactlyonce.api.stream_replay_status import ReplayPhase
from exactlyonce.monitor.labelled_series import (
    CONDITION,
    HALTED,
    LEDGER_INDEX_BYTES,
    LEDGER_TABLE_BYTES,
    OF_PARTITIONS,
    PARTITIONS,
    PHASE,
    REPLAY_PROGRESSED,
    REPLAY_RECORDS,
    REPLAYS,
)
from exactlyonce.monitor.lag import PartitionLag, PartitionState
from exactlyonce.monitor.ledger_sizes import LedgerSize
from exactlyonce.monitor.metric import Kind, Series
from exactlyonce.monitor.monitor import Monitor, StreamView
from exactlyonce.monitor.series import OF_STREAMS
from exactlyonce.positions.ranges import PARTITION_END, Partition

_Family = GaugeMetricFamily | CounterMetricFamily
_Read = TypeVar("_Read")


@dataclass(frozen=True, eq=False)
class StreamCollector(Collector):
    """Makes the series of all streams at the moment of a scrape; none while `may_export` says that another operator leads."""

    monitor: Monitor
    may_export: Callable[[], bool]
    now: Callable[[], float]
    partitions: bool = True

    def describe(self) -> list[Metric]:
        """Return nothing: the names are known without a first collection."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return the series."""
        if not self.may_export():
            return
        views, now = self.monitor.streams(), self.now()
        for series, value_of in OF_STREAMS:
            family = _family(series)
            for view in views:
                _add(family, list(view.key), _told(lambda: value_of(view, now)))  # noqa: B023 # called at once
            yield family
        yield from _phases(views)
        yield _partition_states(views)
        yield _conditions(views)
        yield from _replays(views)
        yield from _of_ledgers(self.monitor.ledgers.all())
        if self.partitions:
            yield from _of_partitions(views)


def _family(series: Series) -> _Family:
    made = CounterMetricFamily if series.kind is Kind.COUNTER else GaugeMetricFamily
    return made(series.name, series.says, labels=series.labels)


def _add(family: _Family, labels: list[str], value: Any) -> None:
    """Add a value, unless a page cannot hold it.

    What a tenant's database or brokers answer is whatever they like: an integer of 400 digits, a text, no number at all. The
    page is one for everybody, so one value that cannot be written would leave nobody a page.
    """
    if (
        isinstance(value, int | float | Decimal)
        and (number := _told(lambda: float(value))) is not None
        and math.isfinite(number)
    ):
        family.add_metric([_as_label(it) for it in labels], number)


def _told(read: Callable[[], _Read]) -> _Read | None:
    """Return what is read of one stream, None where what its stores have answered cannot be computed with."""
    try:
        return read()
    except (ArithmeticError, TypeError, ValueError, AttributeError):
        return None


def _as_label(text: Any) -> str:
    """Return a text that can be encoded: JSON can hold half of a character."""
    return str(text).encode(errors="replace").decode()


def _phases(views: list[StreamView]) -> Iterator[Metric]:
    phases, halted = _family(PHASE), 0
    for view in views:
        if view.life is not None:
            _add(phases, [*view.key, str(view.life.phase)], 1)
            halted += view.life.phase is Phase.HALTED
    yield phases
    total = _family(HALTED)
    total.add_metric([], halted)
    yield total


def _partition_states(views: list[StreamView]) -> Metric:
    found = _family(PARTITIONS)
    for view in views:
        lags = ({} if view.snapshot is None else view.snapshot.partitions).values()
        states = Counter(_told(lambda lag=lag: lag.state) for lag in lags)  # type: ignore[misc] # mypy infers no default
        for state in PartitionState if states else ():
            _add(found, [*view.key, state], states[state])
    return found


def _conditions(views: list[StreamView]) -> Metric:
    found = _family(CONDITION)
    for view in views:
        for kind, status in () if view.life is None else view.life.conditions:
            _add(found, [*view.key, kind, status], 1)
    return found


def _replays(views: list[StreamView]) -> Iterator[Metric]:
    phases, records, progressed = _family(REPLAYS), _family(REPLAY_RECORDS), _family(REPLAY_PROGRESSED)
    for view in views:
        found = view.replays
        if found is not None:
            _add(phases, [*view.key, str(ReplayPhase.PENDING)], found.pending)
            _add(phases, [*view.key, str(ReplayPhase.RUNNING)], found.running)
            for outcome, count in found.records.items():
                _add(records, [*view.key, outcome], count)
            _add(progressed, [*view.key, found.in_turn], found.progressed_timestamp)
    yield phases
    yield records
    yield progressed


def _of_ledgers(ledgers: list[LedgerSize]) -> Iterator[Metric]:
    of_tables, of_indexes = _family(LEDGER_TABLE_BYTES), _family(LEDGER_INDEX_BYTES)
    for ledger in ledgers:
        for size in ledger.tables:
            labels = [ledger.database, ledger.schema, size.table]
            _add(of_tables, labels, size.table_bytes)
            _add(of_indexes, labels, size.index_bytes)
    yield of_tables
    yield of_indexes


def _of_partitions(views: list[StreamView]) -> Iterator[Metric]:
    families = [_family(series) for series in OF_PARTITIONS]
    for view in views:
        lags = {} if view.snapshot is None else view.snapshot.partitions
        for key, lag in lags.items():
            labels = _labels(view, key)
            for family, value in zip(families, _told(lambda: _values(lag)) or _NO_VALUES, strict=True):  # noqa: B023
                _add(family, labels, value)
    yield from families


_NO_VALUES = (None,) * len(OF_PARTITIONS)


def _values(lag: PartitionLag) -> tuple[float | None, ...]:
    """The values of OF_PARTITIONS; an end that stands for no offset is left out."""
    if lag.bounds.latest == PARTITION_END or lag.landed == PARTITION_END:
        return None, None, None, None, lag.oldest_timestamp
    return lag.landed, lag.bounds.latest, lag.bounds.earliest, lag.lag_records, lag.oldest_timestamp


def _labels(view: StreamView, key: Partition) -> list[str]:
    return [*view.key, key.origin, str(key.key)]
