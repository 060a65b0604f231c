"""The alerts against Prometheus' own rule engine (promtool): when they fire, when they do not, and what they say."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import debian
from tests.unit.test_alerts import RULES

ORDERS = '{namespace="shop",stream="orders"}'
HALTED = '{namespace="shop",stream="orders",phase="Halted"}'
SUSPENDED = '{namespace="shop",stream="orders",phase="Suspended"}'
GIBIBYTE = 2**30
RISES, FALLS = f"{GIBIBYTE * 90}+{GIBIBYTE}x719", f"{GIBIBYTE * 810}-{GIBIBYTE}x719"
RUNNING = '{namespace="shop",stream="orders",phase="Running"}'


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Debian's promtool; what asks for it is skipped, with the reason, where there is none."""
    try:
        return debian.ensure("prometheus", "usr/bin/promtool") / "usr/bin/promtool"
    except debian.PackageUnavailable as problem:
        pytest.skip(str(problem))


def series(name: str, labels: str, values: str) -> dict[str, str]:
    return {"series": f"exactlyonce_{name}{labels}", "values": values}


def case(alert: str, inputs: list[dict[str, str]], fires_at: str | None, quiet_at: str, said: str = "") -> Any:
    """Inputs of one value a minute; the alert fires at one moment, with these words, and is quiet at another."""
    return pytest.param(alert, inputs, fires_at, quiet_at, said, id=f"{alert}-{said[:20] or 'quiet'}")


CASES = [
    # The oldest record is of minute 0 and waits; the objective is 300 s. It goes on firing when the source goes away.
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
    case(
        "ExactlyOnceStreamHalted",
        [series("stream_phase", RUNNING, "1x4 stale"), series("stream_phase", HALTED, "_x4 1x30")],
        "10m",
        "3m",
        "shop/orders has halted: going on would lose records or land them twice.",
    ),
    case(
        "ExactlyOnceRetentionRisk",
        [series("stream_retention_remaining_seconds", ORDERS, "86400x5 3600x20")],
        "15m",
        "7m",
        "Kafka's retention reaches records of shop/orders that have not landed in 1h 0m 0s.",
    ),
    case(
        "ExactlyOnceCrashLoop",
        [series("stream_endings_in_a_row", ORDERS, "0 1 2 3 4")],
        "4m",
        "2m",
        "The last 4 drivers of shop/orders ended without landing a batch.",
    ),
    case(
        "ExactlyOncePoisonBatch",
        [series("stream_batch_failures", ORDERS, "0 1 2 2 2")],
        "3m",
        "1m",
        "One batch of shop/orders has failed 2 times; after recovery.maxFailuresPerBatch the stream halts.",
    ),
    case(
        "ExactlyOnceRecordsLost",
        [series("stream_lost_records", ORDERS, "7x10 12x200")],
        "30m",
        "90m",
        "5 offsets of shop/orders take no effect: they were recorded as lost in the last hour.",
    ),
    case(
        "ExactlyOnceSourceUnreachable",
        [series("stream_source_up", ORDERS, "1x5 0x20")],
        "15m",
        "8m",
        "The Kafka of shop/orders does not answer the operator, or not for all of its partitions.",
    ),
    case(
        "ExactlyOnceLedgerUnreachable",
        [series("stream_ledger_up", ORDERS, "1x5 0x20")],
        "15m",
        "8m",
        "The database of shop/orders does not answer the operator.",
    ),
    # Files that nobody deletes: 100 a minute, from nothing; told when a day is known of it and six hours have confirmed it.
    case(
        "ExactlyOnceCheckpointGrows",
        [series("checkpoint_objects", ORDERS, "0+100x1900"), series("checkpoint_bytes", ORDERS, "0+1024x1900")],
        "31h",
        "29h",
        "The checkpoint of shop/orders takes 1.816MiB and does not stop growing.",
    ),
    # A state that grows: as many objects as ever, larger ones.
    case(
        "ExactlyOnceCheckpointGrows",
        [
            series("checkpoint_bytes", ORDERS, f"{16 * GIBIBYTE}+{GIBIBYTE // 60}x1900"),
            series("checkpoint_objects", ORDERS, "900x1900"),
        ],
        "31h",
        "29h",
        "The checkpoint of shop/orders takes 47GiB and does not stop growing.",
    ),
    # It swings, as state does in a day and what Spark cleans up in minutes: never told, however large.
    case(
        "ExactlyOnceCheckpointGrows",
        [
            series("checkpoint_bytes", ORDERS, " ".join([f"{RISES} {FALLS}"] * 2)),
            series("checkpoint_objects", ORDERS, " ".join(["90000+500x9"] * 280)),
        ],
        None,
        "36h",
    ),
    # One more generation, and no other after it.
    case(
        "ExactlyOnceCheckpointGrows",
        [
            series("checkpoint_objects", ORDERS, "60000x2400 90000x600"),
            series("checkpoint_bytes", ORDERS, "900000x2400 990000x600"),
        ],
        None,
        "47h30m",
    ),
    # It grows and is small.
    case(
        "ExactlyOnceCheckpointGrows",
        [series("checkpoint_objects", ORDERS, "0+1x2400"), series("checkpoint_bytes", ORDERS, "0+1024x2400")],
        None,
        "40h",
    ),
    # Where counting stops, nothing seems to grow any more.
    case(
        "ExactlyOnceCheckpointGrows",
        [series("checkpoint_objects", ORDERS, "1000000x1900"), series("checkpoint_bytes", ORDERS, f"{GIBIBYTE}x1900")],
        "31h",
        "29h",
        "The checkpoint of shop/orders takes 1GiB and does not stop growing.",
    ),
    # The other replica leads in the middle of it.
    case(
        "ExactlyOnceCheckpointGrows",
        [
            series("checkpoint_objects", ORDERS[:-1] + ',pod="a"}', "60000+100x1600 stale"),
            series("checkpoint_objects", ORDERS[:-1] + ',pod="b"}', "_x1605 220500+100x300"),
            series("checkpoint_bytes", ORDERS[:-1] + ',pod="a"}', "1024x1600 stale"),
            series("checkpoint_bytes", ORDERS[:-1] + ',pod="b"}', "_x1605 1024x300"),
        ],
        "31h",
        "29h",
        "The checkpoint of shop/orders takes 1kiB and does not stop growing.",
    ),
    case(
        "ExactlyOnceOperatorDown",
        [series("lease_held", '{pod="a"}', "1x5 0x20"), series("lease_held", '{pod="b"}', "0x25")],
        "15m",
        "7m",
        "No operator holds the Lease: drivers that run go on, those that end are not replaced, and no lag is measured.",
    ),
    case(
        "ExactlyOnceOperatorDown",
        [series("lease_held", '{pod="a"}', "1x5 0x20"), series("lease_held", '{pod="b"}', "0x5 1x20")],
        None,
        "15m",
    ),
    case(
        "ExactlyOnceOperatorStuck",
        [
            series("queue_depth", '{instance="a"}', "0x5 3x40"),
            series("lease_held", '{instance="a"}', "1x45"),
            series("pass_seconds_count", '{instance="a",outcome="watching"}', "0+5x5 25x40"),
        ],
        "30m",
        "9m",
        "The operator a leads, 3 streams are due, and no pass has ended for 5 minutes.",
    ),
    case(
        "ExactlyOnceOperatorStuck",
        [
            series("queue_depth", '{instance="a"}', "3x45"),
            series("lease_held", '{instance="a"}', "1x45"),
            series("pass_seconds_count", '{instance="a",outcome="watching"}', "0+5x45"),
        ],
        None,
        "30m",
    ),
    case(
        "ExactlyOnceStoreErrors",
        [series("store_errors_total", '{store="kafka",pod="a"}', "0+30x60")],
        "30m",
        "5m",
        "kafka fails the operator 0.5 times a second.",
    ),
]


def test_prometheus_takes_the_rules(promtool: Path) -> None:
    ran = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(("alert", "inputs", "fires_at", "quiet_at", "said"), CASES)
def test_an_alert_fires_when_it_should_and_says_what_is_so(
    promtool: Path,
    tmp_path: Path,
    alert: str,
    inputs: list[dict[str, str]],
    fires_at: str | None,
    quiet_at: str,
    said: str,
) -> None:
    moments: list[dict[str, Any]] = [{"eval_time": quiet_at, "alertname": alert, "exp_alerts": []}]
    if fires_at is not None:
        moments.append({"eval_time": fires_at, "alertname": alert, "exp_alerts": [expected(alert, said, inputs)]})
    test = {"interval": "1m", "input_series": inputs, "alert_rule_test": moments}
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    ran = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def expected(alert: str, said: str, inputs: list[dict[str, str]]) -> dict[str, Any]:
    """An alert with the labels of its stream, instance or store, and the sentence; the rest is taken from the file."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rule = next(it for group in groups for it in group["rules"] if it["alert"] == alert)
    labels = {"severity": rule["labels"]["severity"]}
    if 'stream="orders"' in inputs[0]["series"]:
        labels |= {"namespace": "shop", "stream": "orders"}
    elif alert == "ExactlyOnceOperatorStuck":
        labels["instance"] = "a"
    elif alert == "ExactlyOnceStoreErrors":
        labels["store"] = "kafka"
    told = {
        key: value.replace("{{ $labels.namespace }}", "shop").replace("{{ $labels.stream }}", "orders")
        for key, value in rule["annotations"].items()
    }
    return {"exp_labels": labels, "exp_annotations": {**told, "summary": said}}
