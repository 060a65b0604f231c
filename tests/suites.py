"""Which suite each test belongs to: `make test` runs `core`, and `make test-connectors` all others, or the one of its NAME.

A module stands below by its folder and by what follows `test_` in its name. Where it stands in several suites, its tests belong
to the first of them, but for those, or those of their parameters, that `of_suite` marks. So each test is in exactly one suite:
tests/unit/test_suites.py checks the table, and pytest refuses a mark that does not agree with it. Unit tests are in `core`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

import pytest

CORE = "core"
PARTS = ("simulation", "integration", "faults", "cluster")
"""The folders of tests/ whose modules are divided."""


@dataclass(frozen=True)
class Suite:
    """What a suite is about, and its modules in each folder."""

    about: str
    simulation: tuple[str, ...] = ()
    integration: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()

    def modules(self, part: str) -> tuple[str, ...]:
        """Return the paths of its modules in a folder of tests/."""
        names: tuple[str, ...] = getattr(self, part)
        return tuple(f"tests/{part}/test_{name}.py" for name in names)


SUITES: Mapping[str, Suite] = {
    "core": Suite(
        "Kafka to Postgres and to files, their drivers' deaths, one life of a stream on a cluster, a sample of the simulation.",
        integration=(
            "bad_input",
            "cli",
            "contradictions",
            "deliveries",
            "explain",
            "files_sink",
            "files_stream",
            "formats",
            "local_launcher",
            "sources",
            "values",
            "values_land_as_they_say",
            "verdicts",
            "writes",
        ),
        faults=(
            "crash_points",
            "faults",
        ),
        cluster=("life",),
        simulation=(
            "bisections",
            "long",
            "replays",
            "resets",
            "simulation",
        ),
    ),
    "protocol": Suite(
        "More seeds of the worlds without a connector of their own, and their mutations.",
        simulation=("simulation",),
    ),
    "kafka": Suite(
        "More of the source, and a topic as the sink.",
        integration=(
            "batch_limits",
            "changed_source",
            "deleted_topics",
            "kafka_failover",
            "kafka_logins",
            "kafka_reading",
            "kafka_refusals",
            "kafka_sink",
            "kafka_sink_refusals",
            "kafka_sink_replay",
            "kafka_sink_transactions",
            "kafka_source",
            "replaced_source",
            "tombstones",
            "topic_patterns",
        ),
        faults=("tables_and_kafka_among_kills",),
        simulation=("simulation",),
    ),
    "postgres": Suite(
        "More of the sink, and of the server under it.",
        integration=(
            "commits_that_last",
            "deletions",
            "keys_left_out",
            "output_modes",
            "postgres_dead_letters",
            "postgres_ledger",
            "postgres_not_to_be_had",
            "postgres_outages",
            "postgres_schema",
            "replaced_tables",
            "replay_into_postgres",
            "replica",
            "rows_left_out",
            "staging_lost",
            "standby",
            "table_names_and_types",
            "tables_of_backfills",
            "tables_that_do_not_last",
        ),
        faults=(
            "failovers",
            "random_kills",
        ),
    ),
    "files": Suite(
        "A folder as the source, and more of the sink.",
        integration=(
            "file_query_restarts",
            "files_command",
            "files_continued",
            "files_dictionaries",
            "files_metadata_on_s3",
            "files_on_s3",
            "files_refused",
            "files_replay",
            "files_sink_on_s3",
            "folder_backfill",
            "folder_columnar",
            "folder_on_s3",
            "folder_replay",
            "folder_stream",
            "spark_file_source",
        ),
        faults=("folder_and_everything",),
        simulation=("simulation",),
    ),
    "delta": Suite(
        "Tables of Delta Lake.",
        integration=(
            "delta_stream",
            "table_replay",
        ),
        simulation=("simulation",),
    ),
    "iceberg": Suite(
        "Tables of Iceberg.",
        integration=("iceberg_stream",),
        simulation=("simulation",),
    ),
    "doris": Suite(
        "Doris, by stream loads and by broker loads.",
        integration=(
            "doris_broker_stream",
            "doris_connector",
            "doris_curl",
            "doris_replay",
            "doris_stream",
            "doris_types",
            "finish_only",
        ),
        faults=("doris_and_everything",),
        simulation=(
            "bisections",
            "quarantined_loads",
            "replays",
            "resets",
            "simulation",
        ),
    ),
    "kinesis": Suite(
        "Data streams, and the lease table that the client library shares.",
        integration=(
            "kinesis_client_library",
            "kinesis_lease_table",
            "kinesis_query",
            "kinesis_replay",
            "kinesis_source",
            "kinesis_stream",
            "lease_table_is_made",
        ),
        faults=(
            "demo",
            "kinesis_strikes",
        ),
        simulation=(
            "replays",
            "resets",
            "simulation",
        ),
    ),
    "object_log": Suite(
        "A ledger in objects.",
        integration=(
            "object_log_faults",
            "object_log_on_s3",
            "object_log_stream",
        ),
        simulation=(
            "bisections",
            "resets",
            "simulation",
        ),
    ),
    "toy": Suite(
        "Connectors that follow docs/connectors.md alone.",
        integration=(
            "toy_connector",
            "two_phases",
        ),
    ),
    "ledger": Suite(
        "What holds for every kind of ledger.",
        integration=(
            "ledger_behaviour",
            "ledger_bounds",
            "ledger_expiry",
            "ledger_given_up",
            "ledger_losses",
            "ledger_of_shards",
            "ledger_quarantine",
            "ledger_replay_decisions",
            "ledger_resets",
            "ledger_two_phases",
            "ledger_views",
            "ledger_what_counts",
            "replay_ledger",
        ),
    ),
    "checkpoints": Suite(
        "Checkpoints on a disk and on S3, and queries that keep state in them.",
        integration=(
            "checkpoint_restarts",
            "inspect_on_s3",
            "retained_state",
            "s3_checkpoints",
            "s3_logins",
            "s3_of_others",
            "s3_store",
            "stateful",
        ),
    ),
    "replays": Suite(
        "Records that fail, replays of them, and resets.",
        integration=(
            "bisection",
            "failures_command",
            "letter_replay",
            "quarantine",
            "replay",
            "replay_sinks",
            "resets",
        ),
        faults=("poison_among_many",),
    ),
    "operator": Suite(
        "What the operator measures, asks of servers and alerts of.",
        integration=(
            "alert_rules",
            "draining_without_executors",
            "drivers_that_hang",
            "fleets",
            "hostile_servers",
            "monitor",
            "offsets_command",
            "shared_clients",
        ),
    ),
    "spark": Suite(
        "What drivers and tests rely on in Spark.",
        integration=(
            "class_archive",
            "decoder_and_spark",
            "spark_network",
            "static_tables",
            "warm_drivers",
        ),
    ),
    "cluster": Suite(
        "The operator, its chart and its resources on a real Kubernetes.",
        cluster=(
            "changed_resources",
            "chart",
            "chart_metrics",
            "chart_network",
            "chart_values",
            "commands",
            "data_streams",
            "driver_pods",
            "frozen_drivers",
            "fuzzed_resources",
            "given_cluster",
            "install",
            "life",
            "locations_of_others",
            "operators",
            "prometheus",
            "resource",
            "resource_agreement",
            "rights",
            "shards",
            "stream_replays",
            "testbed",
            "volume_claim",
            "watched_namespaces",
        ),
    ),
}
CONNECTORS = tuple(name for name in SUITES if name != CORE)
"""The suites of `make test-connectors`."""


class NotInOneSuite(ValueError):
    """A test that is marked otherwise than the table says of its module."""


def of_suite(name: str) -> pytest.MarkDecorator:
    """Return the mark of a test whose module stands in several suites."""
    return pytest.mark.suite(name)


def modules_of(suites: Collection[str], part: str) -> list[str]:
    """Return the modules of a folder that have tests of these suites, each once."""
    return sorted({module for name in suites for module in SUITES[name].modules(part)})


def suites_of(module: str) -> list[str]:
    """Return the suites in which a module stands, by its path."""
    part = PurePosixPath(module).parent.name
    if part not in PARTS:
        return [CORE]
    return [name for name, suite in SUITES.items() if module in suite.modules(part)]


def suite_of(nodeid: str, marked: str | None) -> str:
    """Return the suite of a test by its node id and its mark.

    Raises:
        NotInOneSuite: The table does not name its module, or the mark is not one of the suites that it names.
    """
    among = suites_of(nodeid.partition("::")[0])
    if marked is None and among:
        return among[0]
    if marked is not None and marked in among:
        return marked
    raise NotInOneSuite(
        f"{nodeid} belongs to no suite: tests/suites.py has its module in {', '.join(among) or 'none'}"
        f"{'' if marked is None else f', and its mark says {marked}'}. Add the module to the suite there."
    )
