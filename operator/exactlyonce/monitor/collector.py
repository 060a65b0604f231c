"""Makes the series of all streams at the moment of a scrape, from what the monitor knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from exactlyonce.api.status import Phase
from exactlyonce.monitor.lag import PartitionLag, PartitionState
from exactlyonce.monitor.ledger_sizes import LedgerSize
from exactlyonce.monitor.monitor import Monitor, StreamView
from exactlyonce.monitor.series import (
    CONDITION,
    HALTED,
    LEDGER_INDEX_BYTES,
    LEDGER_TABLE_BYTES,
    OF_PARTITIONS,
    OF_STREAMS,
    PARTITIONS,
    PHASE,
    Kind,
    Series,
)
from exactlyonce.positions.ranges import PARTITION_END, Partition


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
                value = value_of(view, now)
                if value is not None:
                    family.add_metric(list(view.key), value)
            yield family
        yield from _phases(views)
        yield _partition_states(views)
        yield _conditions(views)
        yield from _of_ledgers(self.monitor.ledgers.all())
        if self.partitions:
            yield from _of_partitions(views)


def _family(series: Series) -> GaugeMetricFamily | CounterMetricFamily:
    made = CounterMetricFamily if series.kind is Kind.COUNTER else GaugeMetricFamily
    return made(series.name, series.says, labels=series.labels)


def _phases(views: list[StreamView]) -> Iterator[Metric]:
    phases, halted = _family(PHASE), 0
    for view in views:
        if view.life is not None:
            phases.add_metric([*view.key, str(view.life.phase)], 1)
            halted += view.life.phase is Phase.HALTED
    yield phases
    total = _family(HALTED)
    total.add_metric([], halted)
    yield total


def _partition_states(views: list[StreamView]) -> Metric:
    found = _family(PARTITIONS)
    for view in views:
        states = Counter(lag.state for lag in ({} if view.snapshot is None else view.snapshot.partitions).values())
        for state in PartitionState if states else ():
            found.add_metric([*view.key, state], states[state])
    return found


def _conditions(views: list[StreamView]) -> Metric:
    found = _family(CONDITION)
    for view in views:
        for kind, status in () if view.life is None else view.life.conditions:
            found.add_metric([*view.key, kind, status], 1)
    return found


def _of_ledgers(ledgers: list[LedgerSize]) -> Iterator[Metric]:
    of_tables, of_indexes = _family(LEDGER_TABLE_BYTES), _family(LEDGER_INDEX_BYTES)
    for ledger in ledgers:
        for size in ledger.tables:
            labels = [ledger.database, ledger.schema, size.table]
            of_tables.add_metric(labels, size.table_bytes)
            of_indexes.add_metric(labels, size.index_bytes)
    yield of_tables
    yield of_indexes


def _of_partitions(views: list[StreamView]) -> Iterator[Metric]:
    families = [_family(series) for series in OF_PARTITIONS]
    for view in views:
        lags = {} if view.snapshot is None else view.snapshot.partitions
        for key, lag in lags.items():
            labels = _labels(view, key)
            for family, value in zip(families, _values(lag), strict=True):
                if value is not None:
                    family.add_metric(labels, value)
    yield from families


def _values(lag: PartitionLag) -> tuple[float | None, ...]:
    """The values of OF_PARTITIONS; an end that stands for no offset is left out."""
    if lag.bounds.latest == PARTITION_END or lag.landed == PARTITION_END:
        return None, None, None, None, lag.oldest_timestamp
    return lag.landed, lag.bounds.latest, lag.bounds.earliest, lag.lag_records, lag.oldest_timestamp


def _labels(view: StreamView, key: Partition) -> list[str]:
    return [*view.key, key.origin, str(key.key)]
