"""The series of streams: what each is called, what it means and how it is read; `monitor.collector` exports them.

Names carry their unit and are never changed; docs/metrics.md is made from here.
"""

from __future__ import annotations

from collections.abc import Callable

from exactlyonce.checkpoint.store import Size
from exactlyonce.ledger.connector import Landed
from exactlyonce.monitor.labelled_series import (
    CONDITION,
    HALTED,
    OF_LEDGERS,
    PARTITIONS,
    PHASE,
    REPLAY_PROGRESSED,
    REPLAY_RECORDS,
    REPLAYS,
)
from exactlyonce.monitor.lag import StreamLag
from exactlyonce.monitor.metric import OF_STREAM, Kind, Series
from exactlyonce.monitor.monitor import StreamView
from exactlyonce.monitor.snapshot import Snapshot
from exactlyonce.monitor.targets import Life
from exactlyonce.source.counted_files import FilesNotLanded

Value = float | int | None
Reader = Callable[[StreamView, float], Value]


def _gauge(name: str, says: str) -> Series:
    return Series(f"exactlyonce_stream_{name}", Kind.GAUGE, says, OF_STREAM)


def _counter(name: str, says: str) -> Series:
    return Series(f"exactlyonce_stream_{name}_total", Kind.COUNTER, says, OF_STREAM)


def _known(read: Callable[[Snapshot], Value]) -> Reader:
    return lambda view, at: None if view.snapshot is None else read(view.snapshot)


def _lag(read: Callable[[StreamLag], Value]) -> Reader:
    def read_lag(view: StreamView, at: float) -> Value:
        lag = None if view.snapshot is None else view.snapshot.lag(at)
        return None if lag is None else read(lag)

    return read_lag


def _not_landed(read: Callable[[FilesNotLanded], Value]) -> Reader:
    return _known(lambda snapshot: None if snapshot.not_landed is None else read(snapshot.not_landed))


def _ledger(read: Callable[[Landed], Value]) -> Reader:
    return _known(lambda snapshot: None if snapshot.landed is None else read(snapshot.landed))


def _life(read: Callable[[Life], Value]) -> Reader:
    return lambda view, at: None if view.life is None else read(view.life)


def _checkpoint(read: Callable[[Size], Value]) -> Reader:
    return lambda view, at: None if view.checkpoint is None else read(view.checkpoint)


def _has_landed(view: StreamView) -> Value:
    """Return whether a batch with records has landed: by the ledger where it knows the stream, else by the status."""
    landed = None if view.snapshot is None else view.snapshot.landed
    if landed is not None:
        return int(landed.last_landed_at is not None)
    return None if view.life is None else int(view.life.has_landed)


OF_STREAMS: tuple[tuple[Series, Reader], ...] = (
    (
        _gauge(
            "oldest_not_landed_timestamp_seconds",
            "The timestamp of the oldest record, or file of a folder, that has not landed; `time()` less it is the lag in "
            "seconds, which grows whatever is down. Absent while nothing waits.",
        ),
        lambda view, at: None if view.snapshot is None else view.snapshot.oldest_timestamp(at),
    ),
    (
        _gauge(
            "lag_records",
            "Offsets of the source that have not landed. While a store does not answer, what was last known; absent rather "
            "than 0 when that says nothing.",
        ),
        _lag(lambda lag: lag.records),
    ),
    (
        _gauge(
            "held_back_records", "Offsets behind the start of an open transaction: the stream may not read them yet."
        ),
        _lag(lambda lag: lag.held_back_records),
    ),
    (
        _gauge(
            "held_back_since_timestamp_seconds",
            "The timestamp of the first of them; absent while others wait, or none.",
        ),
        _lag(lambda lag: lag.held_back_since),
    ),
    (
        _gauge(
            "not_landed_files",
            "Files of the source's folder that have not landed, counted by the operator while no driver runs; a lower bound "
            "if the condition Measured says that there may be more. Absent for other sources, while a driver runs (it serves "
            "exactlyonce_driver_not_landed_files), and where the operator cannot count them.",
        ),
        _not_landed(lambda files: files.files),
    ),
    (
        _gauge(
            "not_landed_bytes",
            "The size of those files in bytes, as they are stored; absent if it is not known which files they are.",
        ),
        _not_landed(lambda files: files.size_bytes),
    ),
    (
        _gauge("lag_objective_seconds", "The objective for the lag in seconds: spec.objectives.lagSeconds."),
        lambda view, at: None if view.target is None else view.target.lag_objective_seconds,
    ),
    (
        _gauge(
            "retention_remaining_seconds",
            "The time until retention reaches the landed position: by the time for which the source keeps a record, where it "
            "tells one, or by the speed at which the earliest offset has moved. "
            "Absent while nothing waits or nothing is deleted.",
        ),
        _lag(lambda lag: lag.retention_seconds),
    ),
    (
        _gauge("last_landed_timestamp_seconds", "When the latest batch landed, by the database's clock."),
        _ledger(lambda landed: landed.last_landed_at),
    ),
    (
        _gauge("landed_batch", "The number of the latest batch that landed."),
        _ledger(lambda landed: landed.landed_batch),
    ),
    (
        _gauge(
            "decided_timestamp_seconds",
            "When the batch was decided that the sink is to commit and that has not landed: a sink of two phases. Absent "
            "without such a batch.",
        ),
        _ledger(lambda landed: landed.decided_at),
    ),
    (
        _gauge("decided_loads", "Loads of that batch that are not known to be committed; 0 without such a batch."),
        _ledger(lambda landed: landed.decided_loads),
    ),
    (_gauge("created_timestamp_seconds", "When the resource was created."), _life(lambda life: life.created_timestamp)),
    (
        _gauge(
            "has_landed",
            "Whether a batch with records has ever landed: by the ledger, or by the status where the ledger has not answered "
            "or does not know the stream.",
        ),
        lambda view, at: _has_landed(view),
    ),
    (
        _gauge(
            "secret_missing",
            "Whether a secret that the stream names, or one of its keys, is missing, has a value that no stream may set, or "
            "may not be read by the operator. A running driver's secrets are read again every 15 minutes.",
        ),
        _life(lambda life: int(life.secret_missing)),
    ),
    (
        _counter("records_landed", "Records read by the batches that landed since this operator began to lead."),
        _known(lambda snapshot: snapshot.counts.records),
    ),
    (_counter("rows_landed", "Rows written by those batches."), _known(lambda snapshot: snapshot.counts.rows)),
    (
        _counter("batches_landed", "Batches that landed since this operator began to lead."),
        _known(lambda snapshot: snapshot.counts.batches),
    ),
    (
        _counter("dead_letters", "Malformed records that those batches landed as dead letters."),
        _known(lambda snapshot: snapshot.counts.dead_letters),
    ),
    (
        _gauge("failed_ranges", "Ranges whose batch failed and has not landed yet."),
        _ledger(lambda landed: landed.open_ranges),
    ),
    (_gauge("failed_records", "Offsets in those ranges."), _ledger(lambda landed: landed.failed_records)),
    (
        _gauge("lost_ranges", "Ranges whose records take no effect: retention took them, or AtMostOnce gave them up."),
        _ledger(lambda landed: landed.lost_ranges),
    ),
    (
        _gauge("lost_records", "Offsets in those ranges; 1 for a range whose positions count no records."),
        _ledger(lambda landed: landed.lost_records),
    ),
    (
        _gauge("quarantined_ranges", "Ranges that the stream passed over because their batch had failed too often."),
        _ledger(lambda landed: landed.quarantined_ranges),
    ),
    (
        _gauge("quarantined_records", "Offsets in those ranges; 1 for a range whose positions count no records."),
        _ledger(lambda landed: landed.quarantined_records),
    ),
    (
        _gauge(
            "quarantine_limit_records",
            "How many there may be: recovery.maxQuarantined. Absent with onPoisonBatch: Halt.",
        ),
        lambda view, at: None if view.target is None else view.target.most_quarantined,
    ),
    (
        _gauge(
            "quarantined_since_timestamp_seconds",
            "When the oldest range in quarantine was recorded, by the database's clock. What a replay leaves of a range that "
            "it landed in part counts from then. Absent while nothing is there.",
        ),
        _ledger(lambda landed: landed.quarantined_since),
    ),
    (
        _gauge(
            "replayed_ranges",
            "Ranges, or parts of them, that replays have landed, for as long as the ledger keeps them.",
        ),
        _ledger(lambda landed: landed.replayed_ranges),
    ),
    (
        _gauge("replayed_records", "Offsets in those ranges; 1 for each whose positions count no records."),
        _ledger(lambda landed: landed.replayed_records),
    ),
    (
        _gauge(
            "replay_decided_ranges",
            "Ranges whose rows a replay has decided, in a sink of two phases, and that are not known to be committed. A replay "
            "that lives has some for a moment.",
        ),
        _ledger(lambda landed: landed.replay_decided_ranges),
    ),
    (
        _gauge(
            "dead_letters_held",
            "Dead letters whose records have not landed since, among the first 10,000 of the stream.",
        ),
        _ledger(lambda landed: landed.letters_held),
    ),
    (
        _gauge("source_up", "Whether the source answered for every partition of the stream in the latest round."),
        _known(lambda snapshot: int(snapshot.source_up) if snapshot.asked_source else None),
    ),
    (
        _gauge("ledger_up", "Whether the ledger's database answered in the latest round."),
        _known(lambda snapshot: int(snapshot.ledger_up) if snapshot.asked_ledger else None),
    ),
    (
        _gauge("measured_timestamp_seconds", "When source and ledger last both answered."),
        _known(lambda snapshot: snapshot.measured_at),
    ),
    (
        _gauge("attempt", "The latest attempt: it goes up with every driver that is started."),
        _life(lambda life: life.attempt),
    ),
    (
        _gauge("consecutive_failures", "Attempts in a row that ended without landing a batch."),
        _life(lambda life: life.endings),
    ),
    (
        _gauge("batch_failures", "How many times the current batch has failed; 0 if it has not."),
        _life(lambda life: life.batch_failures),
    ),
    (
        _gauge(
            "refused_rows",
            "Rows that the sink has refused of the load with which the current batch failed last, such as those that it has "
            "filtered because they do not fit; 0 if it has not failed or the sink tells no number.",
        ),
        _life(lambda life: life.refused_rows),
    ),
    (
        Series(
            "exactlyonce_checkpoint_objects",
            Kind.GAUGE,
            "Objects below the checkpoint's location, all generations together, up to 1,000,000; measured every 10 minutes. "
            "While the store does not answer, what was last known; absent for a checkpoint that is not on S3 or that the "
            "operator has no login for.",
            OF_STREAM,
        ),
        _checkpoint(lambda size: size.objects),
    ),
    (
        Series("exactlyonce_checkpoint_bytes", Kind.GAUGE, "Bytes in those objects.", OF_STREAM),
        _checkpoint(lambda size: size.size_bytes),
    ),
)
"""Every series with one value a stream, and how it is read; None leaves it out."""

OF_FLEET = (*(series for series, _ in OF_STREAMS), PHASE, PARTITIONS, CONDITION, REPLAYS, REPLAY_RECORDS, REPLAY_PROGRESSED,
            HALTED, *OF_LEDGERS)  # fmt: skip
"""Every series but those of partitions."""
