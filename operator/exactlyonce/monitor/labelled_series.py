"""The series of streams that have a label of their own beside the stream, and those of partitions and ledgers."""

from __future__ import annotations

from exactlyonce.monitor.metric import OF_STREAM, Kind, Series

OF_PARTITION = (*OF_STREAM, "topic", "partition")

PHASE = Series("exactlyonce_stream_phase", Kind.GAUGE, "1 for the phase that the stream is in.", (*OF_STREAM, "phase"))
PARTITIONS = Series(
    "exactlyonce_stream_partitions",
    Kind.GAUGE,
    "Partitions of the source by state: behind, caught_up, ended (read to its end, as a shard that was split is), unknown (its "
    "source has not told yet, or tells its driver alone).",
    (*OF_STREAM, "state"),
)
CONDITION = Series(
    "exactlyonce_stream_condition",
    Kind.GAUGE,
    "1 for the status (True, False or Unknown) that each condition of the stream has now; other statuses have no series.",
    (*OF_STREAM, "type", "status"),
)
REPLAYS = Series(
    "exactlyonce_stream_replays",
    Kind.GAUGE,
    "StreamReplays of the stream that have not ended, by phase: Pending or Running.",
    (*OF_STREAM, "phase"),
)
REPLAY_RECORDS = Series(
    "exactlyonce_stream_replay_records",
    Kind.GAUGE,
    "Records of the StreamReplay whose turn it is, by outcome: asked (all of them), replayed, put_back (still in quarantine), "
    "lost. Ranges, of a source whose positions count no records.",
    (*OF_STREAM, "outcome"),
)
REPLAY_PROGRESSED = Series(
    "exactlyonce_stream_replay_progressed_timestamp_seconds",
    Kind.GAUGE,
    "When the StreamReplay whose turn it is last landed something, or began; `replay` is its name, so a stream has at most "
    "one series. Absent without one, and while the stream is suspended.",
    (*OF_STREAM, "replay"),
)
HALTED = Series("exactlyonce_halted_streams", Kind.GAUGE, "How many streams have stopped until a person has acted.")

LANDED_OFFSET, LATEST_OFFSET, EARLIEST_OFFSET, PARTITION_LAG, PARTITION_OLDEST = OF_PARTITIONS = (
    Series(
        "exactlyonce_partition_landed_offset",
        Kind.GAUGE,
        "The offset of the next record to land. This and the next three are absent where positions count no "
        "records, as in shards.",
        OF_PARTITION,
    ),
    Series(
        "exactlyonce_partition_latest_offset", Kind.GAUGE, "One past the last offset that can be read.", OF_PARTITION
    ),
    Series("exactlyonce_partition_earliest_offset", Kind.GAUGE, "The first offset that can be read.", OF_PARTITION),
    Series("exactlyonce_partition_lag_records", Kind.GAUGE, "Offsets that have not landed.", OF_PARTITION),
    Series(
        "exactlyonce_partition_oldest_not_landed_timestamp_seconds",
        Kind.GAUGE,
        "The timestamp of the oldest record that has not landed, in partitions and in shards: the time since "
        "then is how far the landed position is behind (of a shard, its iterator's age). Absent while no record waits.",
        OF_PARTITION,
    ),
)
"""The series of partitions, which can be switched off."""

_LEDGER = ("database", "schema", "table")
LEDGER_TABLE_BYTES, LEDGER_INDEX_BYTES = OF_LEDGERS = (
    Series(
        "exactlyonce_ledger_table_bytes",
        Kind.GAUGE,
        "Bytes of each table of each ledger, measured every minute; `staging` stands for all rows that have not landed. "
        "What is kept is spec.ledgerRetention; deleted rows make room for new ones and do not shrink the table. Of an object "
        "log: `entries`, `snapshots` and `committables`, with the bucket as database and the location as schema.",
        _LEDGER,
    ),
    Series("exactlyonce_ledger_index_bytes", Kind.GAUGE, "Bytes of the indexes of each of those tables.", _LEDGER),
)
"""The series of ledgers: one database may hold those of many streams."""
