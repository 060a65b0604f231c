"""When the alerts of a stream fire, when not, and what they say."""

from __future__ import annotations

from tests.integration.alert_cases import (
    BACKING_OFF,
    COMPLETED,
    HALTED,
    NOT_SHOWN,
    NOT_STALLED,
    ORDERS,
    REPLAY,
    RUNNING,
    SHOWN,
    STALLED,
    SUSPENDED,
    case,
    series,
)
from tests.integration.folder_alert_cases import FOLDER_CASES

SHOP_DATABASE = ',into="shop at fe:8030"}'

STREAM_CASES = [
    # The oldest record is of minute 0 and waits; the objective is 300 s. It continues firing when the source goes away.
    case(
        "ExactlyOnceLagHigh",
        [
            series("stream_oldest_not_landed_timestamp_seconds", ORDERS, "0x60"),
            series("stream_lag_objective_seconds", ORDERS, "300x60"),
            series("stream_source_up", ORDERS, "1x10 0x50"),
        ],
        "30m",
        "5m",
        "shop/orders is 30m 0s behind its source, more than its objective.",
    ),
    # It resolves when the stream has caught up: the series is gone.
    case(
        "ExactlyOnceLagHigh",
        [
            series("stream_oldest_not_landed_timestamp_seconds", ORDERS, "0x10 stale"),
            series("stream_lag_objective_seconds", ORDERS, "300x60"),
        ],
        "10m",
        "20m",
        "shop/orders is 10m 0s behind its source, more than its objective.",
    ),
    # The replica that leads now and the one that led before are one stream: the older record counts.
    case(
        "ExactlyOnceLagHigh",
        [
            series("stream_oldest_not_landed_timestamp_seconds", ORDERS[:-1] + ',pod="a"}', "0x12 stale"),
            series("stream_oldest_not_landed_timestamp_seconds", ORDERS[:-1] + ',pod="b"}', "_x12 0x30"),
            series("stream_lag_objective_seconds", ORDERS, "300x60"),
        ],
        "20m",
        "3m",
        "shop/orders is 20m 0s behind its source, more than its objective.",
    ),
    case(
        "ExactlyOnceLagHigh",
        [
            series("stream_oldest_not_landed_timestamp_seconds", ORDERS, "0x60"),
            series("stream_lag_objective_seconds", ORDERS, "300x60"),
            series("stream_phase", SUSPENDED, "1x60"),
        ],
        None,
        "30m",
    ),
    case("ExactlyOnceLagHigh", [series("stream_oldest_not_landed_timestamp_seconds", ORDERS, "0x60")], None, "30m"),
    case(
        "ExactlyOnceNothingLands",
        [
            series("stream_last_landed_timestamp_seconds", ORDERS, "0x60"),
            series("stream_oldest_not_landed_timestamp_seconds", ORDERS, "60x60"),
            series("stream_phase", RUNNING, "1x60"),
        ],
        "20m",
        "15m",
        "shop/orders has landed no batch for 20m 0s while records wait.",
    ),
    case("ExactlyOnceNothingLands", [series("stream_last_landed_timestamp_seconds", ORDERS, "0x60")], None, "40m"),
    *FOLDER_CASES,
    # Nobody commits the batch of a stream at rest, so that is told as well; once it has landed, the series is gone.
    case(
        "ExactlyOnceCommitDelayed",
        [
            series("stream_decided_timestamp_seconds", ORDERS, "0x30 stale"),
            series("stream_phase", SUSPENDED, "1x60"),
        ],
        "20m",
        "14m",
        "A batch of shop/orders was decided 20m 0s ago, and the sink has not committed all of it.",
    ),
    case("ExactlyOnceCommitDelayed", [series("stream_decided_timestamp_seconds", ORDERS, "0x30 stale")], None, "40m"),
    case(
        "ExactlyOnceManyLoads",
        [series("driver_loads_total", ORDERS[:-1] + SHOP_DATABASE, "0+5x60 300+30x120")],
        "150m",
        "60m",
        "shop/orders and others into shop at fe:8030 have made 1.8k loads in the last hour; "
        "Doris remembers 2,000 per database.",
    ),
    # Each of two streams makes too few, and they share a database's labels; then they do not.
    case(
        "ExactlyOnceManyLoads",
        [
            series("driver_loads_total", ORDERS[:-1] + SHOP_DATABASE, "0+14x120"),
            series("driver_loads_total", ORDERS[:-1].replace("orders", "returns") + SHOP_DATABASE, "0+14x120"),
        ],
        "100m",
        "30m",
        "shop/orders and others into shop at fe:8030 have made 1.68k loads in the last hour; "
        "Doris remembers 2,000 per database.",
    ),
    case(
        "ExactlyOnceManyLoads",
        [
            series("driver_loads_total", ORDERS[:-1] + SHOP_DATABASE, "0+14x120"),
            series(
                "driver_loads_total", ORDERS[:-1].replace("orders", "returns") + ',into="b at fe:8030"}', "0+14x120"
            ),
        ],
        None,
        "100m",
    ),
    case(
        "ExactlyOnceStreamHalted",
        [series("stream_phase", RUNNING, "1x4 stale"), series("stream_phase", HALTED, "_x4 1x30")],
        "10m",
        "3m",
        "shop/orders has halted: continuing would lose records or land them twice.",
    ),
    case(
        "ExactlyOnceRetentionRisk",
        [series("stream_retention_remaining_seconds", ORDERS, "86400x5 3600x20")],
        "15m",
        "7m",
        "The source's retention reaches records of shop/orders that have not landed in 1h 0m 0s.",
    ),
    case(
        "ExactlyOnceCrashLoop",
        [series("stream_consecutive_failures", ORDERS, "0 1 2 3 4")],
        "4m",
        "2m",
        "The last 4 drivers of shop/orders ended without landing a batch.",
    ),
    case(
        "ExactlyOncePoisonBatch",
        [series("stream_batch_failures", ORDERS, "0 1 2 2 2")],
        "3m",
        "1m",
        "One batch of shop/orders has failed 2 times; after recovery.maxFailuresPerBatch, recovery.onPoisonBatch decides.",
    ),
    case(
        "ExactlyOnceRecordsLost",
        [series("stream_lost_records", ORDERS, "7x10 12x200")],
        "30m",
        "90m",
        "5 offsets of shop/orders take no effect: they were recorded as lost in the last hour.",
    ),
    case(
        "ExactlyOnceRecordsQuarantined",
        [series("stream_quarantined_records", ORDERS, "7x10 12x200")],
        "30m",
        "90m",
        "shop/orders passed over 5 offsets in the last hour, because their batch failed too often.",
    ),
    case(
        "ExactlyOnceHeldTooLong",
        [series("stream_quarantined_since_timestamp_seconds", ORDERS, "0x3000")],
        "49h",
        "48h",
        "Records of shop/orders have been in quarantine for 2d 1h 0m 0s.",
    ),
    case(
        "ExactlyOnceQuarantineNearlyFull",
        [
            series("stream_quarantined_records", ORDERS, "79x10 80x200"),
            series("stream_quarantine_limit_records", ORDERS, "100x210"),
        ],
        "30m",
        "5m",
        "shop/orders has 80% of recovery.maxQuarantined in quarantine; it halts instead of exceeding that.",
    ),
    case(
        "ExactlyOnceReplayStuck",
        [series("stream_replay_progressed_timestamp_seconds", REPLAY, "0x200")],
        "70m",
        "60m",
        "The StreamReplay mend of shop/orders has landed nothing for 1h 10m 0s.",
    ),
    case(
        "ExactlyOnceReplayInDoubt",
        [series("stream_replay_decided_ranges", ORDERS, "0x5 2x40")],
        "30m",
        "15m",
        "A replay of shop/orders has decided 2 ranges, and nobody has recorded since whether the sink has committed their "
        "rows.",
    ),
    case(
        "ExactlyOnceSourceUnreachable",
        [series("stream_source_up", ORDERS, "1x5 0x20")],
        "15m",
        "8m",
        "The source of shop/orders does not answer the operator, or not for all of its partitions.",
    ),
    case(
        "ExactlyOnceLedgerUnreachable",
        [series("stream_ledger_up", ORDERS, "1x5 0x20")],
        "15m",
        "8m",
        "The ledger of shop/orders does not answer the operator.",
    ),
    # Created at minute 0, and no driver has ever started: the ledger does not know the stream, so its lag is not known.
    case(
        "ExactlyOnceNeverLanded",
        [
            series("stream_created_timestamp_seconds", ORDERS, "0x60"),
            series("stream_has_landed", ORDERS, "0x60"),
            series("stream_phase", BACKING_OFF, "1x60"),
        ],
        "30m",
        "14m",
        "shop/orders was created 30m 0s ago and has never landed a batch.",
    ),
    # Its driver runs and records wait; the first batch lands in minute 40.
    case(
        "ExactlyOnceNeverLanded",
        [
            series("stream_created_timestamp_seconds", ORDERS, "0x60"),
            series("stream_has_landed", ORDERS, "0x39 1x20"),
            series("stream_lag_records", ORDERS, "9x39 0x20"),
            series("stream_oldest_not_landed_timestamp_seconds", ORDERS, "0x39 stale"),
            series("stream_phase", RUNNING, "1x60"),
        ],
        "39m",
        "45m",
        "shop/orders was created 39m 0s ago and has never landed a batch.",
    ),
    # A topic without a record.
    case(
        "ExactlyOnceNeverLanded",
        [
            series("stream_created_timestamp_seconds", ORDERS, "0x60"),
            series("stream_has_landed", ORDERS, "0x60"),
            series("stream_lag_records", ORDERS, "0x60"),
            series("stream_phase", RUNNING, "1x60"),
        ],
        None,
        "50m",
    ),
    case(
        "ExactlyOnceNeverLanded",
        [
            series("stream_created_timestamp_seconds", ORDERS, "0x60"),
            series("stream_has_landed", ORDERS, "0x60"),
            series("stream_phase", SUSPENDED, "1x60"),
        ],
        None,
        "50m",
    ),
    # Of two replicas the one that leads now was told by the ledger; the other one's series are gone.
    case(
        "ExactlyOnceNeverLanded",
        [
            series("stream_created_timestamp_seconds", ORDERS[:-1] + ',pod="a"}', "0x20 stale"),
            series("stream_has_landed", ORDERS[:-1] + ',pod="a"}', "0x20 stale"),
            series("stream_created_timestamp_seconds", ORDERS[:-1] + ',pod="b"}', "_x19 0x40"),
            series("stream_has_landed", ORDERS[:-1] + ',pod="b"}', "_x19 1x40"),
        ],
        None,
        "30m",
    ),
    case(
        "ExactlyOnceSecretMissing",
        [series("stream_secret_missing", ORDERS, "0x5 1x20 0x20"), series("stream_phase", RUNNING, "1x45")],
        "15m",
        "8m",
        "A secret of shop/orders, or a key of it, is missing or refused, or the operator may not read it.",
    ),
    case(
        "ExactlyOnceSecretMissing",
        [series("stream_secret_missing", ORDERS, "0x5 1x20 0x20"), series("stream_phase", RUNNING, "1x45")],
        "15m",
        "30m",
        "A secret of shop/orders, or a key of it, is missing or refused, or the operator may not read it.",
    ),
    case(
        "ExactlyOnceSecretMissing",
        [series("stream_secret_missing", ORDERS, "1x60"), series("stream_phase", COMPLETED, "1x60")],
        None,
        "30m",
    ),
    # The driver runs on by the last valid spec.
    case(
        "ExactlyOnceSpecInvalid",
        [
            series("stream_condition", NOT_STALLED, "1x5 stale"),
            series("stream_condition", STALLED, "_x5 1x30"),
            series("stream_phase", RUNNING, "1x40"),
        ],
        "20m",
        "8m",
        "The latest spec of shop/orders is refused or was rolled back; the last good one is in force, if there was one.",
    ),
    case(
        "ExactlyOnceSpecInvalid",
        [series("stream_condition", STALLED, "1x40"), series("stream_phase", HALTED, "1x40")],
        None,
        "30m",
    ),
    case(
        "ExactlyOnceSpecInvalid",
        [series("stream_condition", NOT_STALLED, "1x40"), series("stream_phase", RUNNING, "1x40")],
        None,
        "30m",
    ),
    case(
        "ExactlyOnceLandedNotShown",
        [series("stream_condition", SHOWN, "1x5 stale"), series("stream_condition", NOT_SHOWN, "_x5 1x60")],
        "40m",
        "30m",
        "The lease table or consumer group of shop/orders does not show where it has landed.",
    ),
    # A look that failed now and then is not told, and neither is a stream that is shown nowhere.
    case(
        "ExactlyOnceLandedNotShown",
        [series("stream_condition", NOT_SHOWN, "1x25 stale _x5 1x25 stale"), series("stream_phase", RUNNING, "1x60")],
        None,
        "50m",
    ),
    case(
        "ExactlyOnceDeadLetters",
        [series("stream_dead_letters_total", ORDERS, "7x30 13x60")],
        "35m",
        "30m",
        "6 records of shop/orders were malformed and landed as dead letters in the last 15 minutes.",
    ),
    # They have stopped arriving, and another operator counts from 0: neither is news.
    case(
        "ExactlyOnceDeadLetters",
        [
            series("stream_dead_letters_total", ORDERS[:-1] + ',pod="a"}', "7x20 13x10 stale"),
            series("stream_dead_letters_total", ORDERS[:-1] + ',pod="b"}', "_x31 0x60"),
        ],
        "25m",
        "50m",
        "6 records of shop/orders were malformed and landed as dead letters in the last 15 minutes.",
    ),
    # Measured until minute 10; then its Kafka neither answers nor refuses.
    case(
        "ExactlyOnceStreamUnmeasured",
        [
            series("stream_phase", RUNNING, "1x60"),
            series("stream_measured_timestamp_seconds", ORDERS, "0+60x10 600x50"),
            series("stream_source_up", ORDERS, "1x60"),
            series("stream_ledger_up", ORDERS, "1x60"),
        ],
        "30m",
        "20m",
        "The lag of shop/orders is not measured: no other alert of this stream that needs its lag can fire.",
    ),
    case(
        "ExactlyOnceStreamUnmeasured",
        [series("stream_phase", SUSPENDED, "1x60")],
        "6m",
        "4m",
        "The lag of shop/orders is not measured: no other alert of this stream that needs its lag can fire.",
    ),
    case(
        "ExactlyOnceStreamUnmeasured",
        [series("stream_phase", RUNNING, "1x60"), series("stream_measured_timestamp_seconds", ORDERS, "0+60x60")],
        None,
        "30m",
    ),
    *(
        case(
            "ExactlyOnceStreamUnmeasured",
            [series("stream_phase", labels, "1x60"), *why],
            None,
            "30m",
        )
        for labels, why in (
            (RUNNING, [series("stream_source_up", ORDERS, "0x60")]),
            (RUNNING, [series("stream_ledger_up", ORDERS, "0x60")]),
            (RUNNING, [series("stream_secret_missing", ORDERS, "1x60")]),
            (RUNNING, [series("stream_condition", STALLED, "1x60")]),
            (COMPLETED, []),
        )
    ),
]
