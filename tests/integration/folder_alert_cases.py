"""When the alerts about lag fire for a folder: its driver tells what waits, and the operator while none runs."""

from __future__ import annotations

from tests.integration.alert_cases import ORDERS, RUNNING, case, series

OBJECTIVE = series("stream_lag_objective_seconds", ORDERS, "300x120")
LAG, NOTHING = "ExactlyOnceLagHigh", "ExactlyOnceNothingLands"
BEHIND = "shop/orders is {} 0s behind its source, more than its objective."


def driver(pod: str, files: str, oldest: str, started: str) -> list[dict[str, str]]:
    """What the driver in a pod serves; each is a value a minute."""
    labels = f'{ORDERS[:-1]},pod="{pod}"}}'
    names = ("not_landed_files", "oldest_not_landed_timestamp_seconds", "listing_start_timestamp_seconds")
    return [
        series(f"driver_{name}", labels, values) for name, values in zip(names, (files, oldest, started), strict=True)
    ]


FOLDER_CASES = [
    case(LAG, [OBJECTIVE, *driver("a", "2x60", "0x60", "0x60")], "30m", "5m", BEHIND.format("30m")),
    # The driver's pod goes: it is not caught up for that. An hour later nobody knows any more, and others have told.
    case(
        LAG, [OBJECTIVE, *driver("a", "2x10 stale", "0x10 stale", "0x10 stale")], "65m", "75m", BEHIND.format("1h 5m")
    ),
    # It had caught up before it went: the file that waited before that says nothing.
    case(
        LAG,
        [OBJECTIVE, *driver("a", "2x10 0x10 stale", "0x10 stale", "0x20 stale")],
        "10m",
        "20m",
        BEHIND.format("10m"),
    ),
    # Its successor has landed everything, while the one before still answers and thinks of its own files.
    case(
        LAG,
        [OBJECTIVE, *driver("a", "2x60", "0x60", "0x60"), *driver("b", "_x20 0x40", "_x60", "_x20 1200x40")],
        "19m",
        "22m",
        BEHIND.format("19m"),
    ),
    # A successor that has told nothing, since it replays a batch or dies, does not count as caught up.
    case(
        LAG,
        [
            OBJECTIVE,
            *driver("a", "2x10 stale", "0x10 stale", "0x10 stale"),
            series("driver_batches_total", f'{ORDERS[:-1]},pod="b"}}', "_x12 0x60"),
        ],
        "40m",
        "5m",
        BEHIND.format("40m"),
    ),
    # The operator has counted since: all that waited is gone, or what waits is younger.
    case(
        LAG,
        [
            OBJECTIVE,
            *driver("a", "2x10 stale", "0x10 stale", "0x10 stale"),
            series("stream_not_landed_files", ORDERS, "_x11 0x60"),
        ],
        "10m",
        "20m",
        BEHIND.format("10m"),
    ),
    case(
        LAG,
        [
            OBJECTIVE,
            *driver("a", "2x10 stale", "0x10 stale", "0x10 stale"),
            series("stream_not_landed_files", ORDERS, "_x11 1x60"),
            series("stream_oldest_not_landed_timestamp_seconds", ORDERS, "_x11 600x60"),
        ],
        "30m",
        "5m",
        BEHIND.format("20m"),
    ),
    # How many wait at least is known, and not since when: what the driver said last counts.
    case(
        LAG,
        [
            OBJECTIVE,
            *driver("a", "2x10 stale", "0x10 stale", "0x10 stale"),
            series("stream_not_landed_files", ORDERS, "_x11 1x60"),
        ],
        "40m",
        "5m",
        BEHIND.format("40m"),
    ),
    case(
        NOTHING,
        [
            series("stream_last_landed_timestamp_seconds", ORDERS, "0x60"),
            *driver("a", "2x12 stale", "60x12 stale", "0x12 stale"),
            series("stream_phase", RUNNING, "1x60"),
        ],
        "20m",
        "15m",
        "shop/orders has landed no batch for 20m 0s while records wait.",
    ),
    # No file waits: an idle folder is no reason to look.
    case(
        NOTHING,
        [
            series("stream_last_landed_timestamp_seconds", ORDERS, "0x60"),
            *driver("a", "0x60", "_x60", "0x60"),
            series("stream_phase", RUNNING, "1x60"),
        ],
        None,
        "40m",
    ),
]
