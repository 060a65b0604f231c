"""When the alerts of checkpoints and operators fire, when not, and what they say."""

from __future__ import annotations

from tests.integration.alert_cases import FALLS, FIRST, GIBIBYTE, ORDERS, RISES, SECOND, case, series

OPERATOR_CASES = [
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
        "No operator holds the Lease: drivers that run continue, those that end are not replaced, and no lag is measured.",
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
        "kafka fails 0.5 requests of the operator per second.",
    ),
    # The second shard's operator no longer gets its Lease.
    case(
        "ExactlyOnceShardWithoutLeader",
        [
            series("shard_leader", SECOND, "1x5 0x20"),
            series("shard_leader", FIRST, "1x25"),
            series("lease_held", FIRST, "1x25"),
        ],
        "15m",
        "7m",
        "No operator holds the Lease ops/second, while another shard has a leader: nobody acts for its streams.",
    ),
    # Its pods are gone, and with them their series.
    case(
        "ExactlyOnceShardWithoutLeader",
        [
            series("shard_leader", SECOND, "1x5 stale"),
            series("shard_leader", FIRST, "1x600"),
            series("lease_held", FIRST, "1x600"),
        ],
        "9h",
        "4m",
        "No operator holds the Lease ops/second, while another shard has a leader: nobody acts for its streams.",
    ),
    # Another replica took the Lease over.
    case(
        "ExactlyOnceShardWithoutLeader",
        [
            series("shard_leader", SECOND, "1x5 0x20"),
            series("shard_leader", '{lease="ops/second",pod="c"}', "0x5 1x20"),
            series("shard_leader", FIRST, "1x25"),
            series("lease_held", FIRST, "1x25"),
        ],
        None,
        "15m",
    ),
    # Nobody leads anywhere: ExactlyOnceOperatorDown tells that.
    case(
        "ExactlyOnceShardWithoutLeader",
        [series("shard_leader", SECOND, "0x25"), series("lease_held", SECOND, "0x25")],
        None,
        "15m",
    ),
]
