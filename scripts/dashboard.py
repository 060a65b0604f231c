"""Make the Grafana dashboard of the chart from the panels below; `--check` only tells whether it is up to date."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from scripts.generated import ROOT, write_or_check

FILE = ROOT / "charts/exactlyonce-operator/dashboards/exactlyonce.json"
_COLUMNS = 24
_ALL = '{namespace=~"$namespace"}'
_ONE = '{namespace=~"$namespace",stream=~"$stream"}'
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Panel:
    """One panel: its title, what it says, its queries with their legends, the unit and the width of 24."""

    title: str
    says: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    width: int = 8
    kind: str = "timeseries"


def _of_stream(name: str, which: str = _ONE, how: str = "max") -> str:
    return f"{how} by (namespace, stream) (exactlyonce_stream_{name}{which})"


def _rate(name: str, which: str = _ONE) -> str:
    return f"sum by (namespace, stream) (rate(exactlyonce_stream_{name}_total{which}[$__rate_interval]))"


def _behind(which: str) -> str:
    return f"time() - {_of_stream('oldest_not_landed_timestamp_seconds', which, 'min')}"


def _quantile(series: str, quantile: float, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({quantile}, sum by ({labels}) (rate({series}_bucket[$__rate_interval])))"


_STREAM = "{{namespace}}/{{stream}}"

ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "All streams",
        (
            Panel(
                "Streams by phase", "How many streams are in each phase.",
                ((f"count by (phase) (max by (namespace, stream, phase) (exactlyonce_stream_phase{_ALL}))", "{{phase}}"),),
                width=12, kind="stat",
            ),
            Panel(
                "Halted", "Streams that wait for a person.",
                (("max(exactlyonce_halted_streams)", "halted"),), width=4, kind="stat",
            ),
            Panel(
                "Stores that do not answer", "Streams whose source or ledger did not answer the last time.",
                (
                    (f"count({_of_stream('source_up', _ALL, 'min')} == 0) or vector(0)", "source"),
                    (f"count({_of_stream('ledger_up', _ALL, 'min')} == 0) or vector(0)", "ledger"),
                ),
                width=8, kind="stat",
            ),
            Panel(
                "Furthest behind", "The age of the oldest record that has not landed.",
                ((f"topk(10, {_behind(_ALL)})", _STREAM),), "s", 12,
            ),
            Panel(
                "Most records waiting",
                "Offsets that have not landed, and files of folders while no driver runs. Shards of Kinesis count none: their "
                "streams are in the panel beside this one.",
                (
                    (f"topk(10, {_of_stream('lag_records', _ALL)})", _STREAM),
                    (f"topk(10, {_of_stream('not_landed_files', _ALL)})", f"files of {_STREAM}"),
                ),
                width=12,
            ),
            Panel(
                "Records landed", "Records per second, the busiest streams.",
                ((f"topk(10, {_rate('records_landed', _ALL)})", _STREAM),), "ops", 12,
            ),
            Panel(
                "Until retention", "When the source deletes records that have not landed, by its present speed or their age.",
                ((f"bottomk(10, {_of_stream('retention_remaining_seconds', _ALL, 'min')})", _STREAM),), "s", 12,
            ),
        ),
    ),
    (
        "The chosen streams",
        (
            Panel(
                "Behind", "The age of the oldest record that has not landed, and the objective.",
                ((_behind(_ONE), f"behind {_STREAM}"), (_of_stream("lag_objective_seconds"), f"objective {_STREAM}")), "s", 12,
            ),
            Panel(
                "Waiting, by partition", "Offsets that have not landed; shown only where `metrics.partitionSeries` is on.",
                (
                    (
                        f"max by (namespace, stream, topic, partition) (exactlyonce_partition_lag_records{_ONE})",
                        f"{_STREAM} {{{{topic}}}}-{{{{partition}}}}",
                    ),
                ),
                width=12,
            ),
            Panel(
                "Behind, by partition",
                "The age of the oldest record that has not landed: in a shard, the age of the iterator at the landed position. "
                "Shown only where `metrics.partitionSeries` is on.",
                (
                    (
                        "time() - min by (namespace, stream, topic, partition) "
                        f"(exactlyonce_partition_oldest_not_landed_timestamp_seconds{_ONE})",
                        f"{_STREAM} {{{{topic}}}}-{{{{partition}}}}",
                    ),
                ),
                "s", 12,
            ),
            Panel(
                "Partitions by state", "Partitions or shards that are behind, caught up, read to their end, or not known.",
                (
                    (
                        f"max by (namespace, stream, state) (exactlyonce_stream_partitions{_ONE})",
                        f"{_STREAM} {{{{state}}}}",
                    ),
                ),
                width=12,
            ),
            Panel(
                "Landed", "Records read, rows written and dead letters per second.",
                ((_rate("records_landed"), f"{_STREAM} records"), (_rate("rows_landed"), f"{_STREAM} rows"),
                 (_rate("dead_letters"), f"{_STREAM} dead letters")), "ops",
            ),
            Panel(
                "Since the last batch", "The time since a batch landed.",
                ((f"time() - {_of_stream('last_landed_timestamp_seconds')}", _STREAM),), "s",
            ),
            Panel(
                "Attempts and failures",
                "The latest attempt; endings and failures of a batch in a row; rows of it that the sink refused.",
                ((_of_stream("attempt"), f"{_STREAM} attempt"),
                 (_of_stream("consecutive_failures"), f"{_STREAM} failures in a row"),
                 (_of_stream("batch_failures"), f"{_STREAM} failures of a batch"),
                 (_of_stream("refused_rows"), f"{_STREAM} rows that the sink refused")),
            ),
            Panel(
                "Failed ranges", "Ranges whose batch failed, that are in quarantine, and whose records take no effect.",
                ((_of_stream("failed_ranges"), f"{_STREAM} failed"), (_of_stream("lost_ranges"), f"{_STREAM} lost"),
                 (_of_stream("quarantined_ranges"), f"{_STREAM} quarantined")),
            ),
            Panel(
                "Loads", "Of a sink of two phases: loads that a decided batch still has to commit, what the sink has said of "
                "the latest ones, and loads in the last hour.",
                ((_of_stream("decided_loads"), f"{_STREAM} to be committed"),
                 (f"sum by (namespace, stream, state) (exactlyonce_driver_newest_loads{_ONE})", f"{_STREAM} {{{{state}}}}"),
                 (f"sum by (namespace, stream) (increase(exactlyonce_driver_loads_total{_ONE}[1h]))", f"{_STREAM} in an hour")),
            ),
            Panel(
                "Labels", "Of Doris: labels of a database in the last 12 hours, by the loads of all streams into it. By "
                "default it remembers 2,000 of them, for 12 hours.",
                (("sum by (into) (increase(exactlyonce_driver_loads_total[12h]))", "{{into}}"),),
            ),
            Panel(
                "Stores", "1 while they answer the operator.",
                ((_of_stream("source_up", how="min"), f"{_STREAM} source"),
                 (_of_stream("ledger_up", how="min"), f"{_STREAM} ledger")),
            ),
            Panel(
                "Phase", "The phase that the stream is in.",
                ((f"max by (namespace, stream, phase) (exactlyonce_stream_phase{_ONE})", f"{_STREAM} {{{{phase}}}}"),),
                kind="stat",
            ),
            Panel(
                "Conditions", "What the stream's conditions say now, as kubectl shows them.",
                (
                    (
                        f"max by (namespace, stream, type, status) (exactlyonce_stream_condition{_ONE})",
                        f"{_STREAM} {{{{type}}}}={{{{status}}}}",
                    ),
                ),
                width=24, kind="stat",
            ),
        ),
    ),
    (
        "Failed ranges and replays",
        (
            Panel(
                "In quarantine", "Records that the stream passed over, how many there may be, and dead letters that are held.",
                ((_of_stream("quarantined_records"), f"{_STREAM} in quarantine"),
                 (_of_stream("quarantine_limit_records"), f"{_STREAM} limit"),
                 (_of_stream("dead_letters_held"), f"{_STREAM} dead letters")),
            ),
            Panel(
                "Oldest in quarantine", "How long the oldest range has been there.",
                ((f"time() - {_of_stream('quarantined_since_timestamp_seconds', how='min')}", _STREAM),), "s",
            ),
            Panel(
                "Failed, lost and replayed", "Records whose batch failed and has not landed yet, that take no effect, and that "
                "replays have landed.",
                ((_of_stream("failed_records"), f"{_STREAM} failed"), (_of_stream("lost_records"), f"{_STREAM} lost"),
                 (_of_stream("replayed_records"), f"{_STREAM} replayed")),
            ),
            Panel(
                "Replays", "StreamReplays that have not ended, and ranges that replays have decided and the sink has not "
                "committed yet, as far as is known.",
                ((f"max by (namespace, stream, phase) (exactlyonce_stream_replays{_ONE})", f"{_STREAM} {{{{phase}}}}"),
                 (_of_stream("replay_decided_ranges"), f"{_STREAM} decided ranges")),
            ),
            Panel(
                "The replay whose turn it is", "Its records by what became of them.",
                (
                    (
                        f"max by (namespace, stream, outcome) (exactlyonce_stream_replay_records{_ONE})",
                        f"{_STREAM} {{{{outcome}}}}",
                    ),
                ),
            ),
            Panel(
                "Since that replay landed something", "Or since it began.",
                (
                    (
                        "time() - min by (namespace, stream, replay) "
                        f"(exactlyonce_stream_replay_progressed_timestamp_seconds{_ONE})",
                        f"{_STREAM} {{{{replay}}}}",
                    ),
                ),
                "s",
            ),
        ),
    ),
    (
        "The operator",
        (
            Panel(
                "Passes", "Passes per second, by how they ended.",
                (("sum by (outcome) (rate(exactlyonce_pass_seconds_count[$__rate_interval]))", "{{outcome}}"),), "ops",
            ),
            Panel(
                "Seconds of a pass", "How long passes take, and how long a stream that is due waits.",
                ((_quantile("exactlyonce_pass_seconds", 0.99), "p99"), (_quantile("exactlyonce_pass_seconds", 0.5), "p50"),
                 (_quantile("exactlyonce_pass_late_seconds", 0.99), "waited p99")), "s",
            ),
            Panel(
                "Queue and event loop", "Streams that are due, and how late the event loop is.",
                (("max(exactlyonce_queue_depth)", "due"),
                 (_quantile("exactlyonce_event_loop_delay_seconds", 0.99), "loop p99 (s)")),
            ),
            Panel(
                "Driver start", "From the attempt being recorded to each step of its start.",
                ((_quantile("exactlyonce_driver_start_seconds", 0.5, "until"), "{{until}} p50"),
                 (_quantile("exactlyonce_driver_start_seconds", 0.99, "until"), "{{until}} p99")), "s",
            ),
            Panel(
                "Verdicts", "Verdicts of reconciliation.",
                (("sum by (kind) (increase(exactlyonce_verdicts_total[$__rate_interval]))", "{{kind}}"),),
            ),
            Panel(
                "Endings and refusals", "Why drivers ended, and what the fence refused.",
                (("sum by (reason) (increase(exactlyonce_driver_endings_total[$__rate_interval]))", "{{reason}}"),
                 ("sum by (whose) (increase(exactlyonce_fence_refusals_total[$__rate_interval]))", "fenced: {{whose}}")),
            ),
            Panel(
                "Errors of stores", "What was not answered or was refused, per second.",
                (("sum by (store) (rate(exactlyonce_store_errors_total[$__rate_interval]))", "{{store}}"),), "ops",
            ),
            Panel("Lease", "Which operator acts.", (("exactlyonce_lease_held", "{{pod}} {{instance}}"),)),
            Panel(
                "Memory of the process", "Resident memory of each operator.",
                (("process_resident_memory_bytes * on (instance) (exactlyonce_build_info > 0)", "{{instance}}"),), "bytes",
            ),
        ),
    ),
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana reads it (schema 39, Grafana 10 and later)."""
    panels: list[dict[str, Any]] = []
    height = 0
    for title, listed in ROWS:
        panels.append(
            {
                "type": "row", "title": title, "collapsed": False, "id": len(panels) + 1, "panels": [],
                "gridPos": {"x": 0, "y": height, "w": _COLUMNS, "h": 1},
            }
        )  # fmt: skip
        height, across, row_height = height + 1, 0, 0
        for panel in listed:
            if across + panel.width > _COLUMNS:
                height, across, row_height = height + row_height, 0, 0
            tall = 4 if panel.kind == "stat" else 8
            panels.append(_panel(panel, len(panels) + 1, across, height, tall))
            across, row_height = across + panel.width, max(row_height, tall)
        height += row_height
    return {
        "title": "ExactlyOnce streams",
        "uid": "exactlyonce-streams",
        "tags": ["exactlyonce"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": panels,
    }


def _panel(panel: Panel, number: int, across: int, down: int, tall: int) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + place), "expr": query, "legendFormat": legend, "datasource": _DATASOURCE}
        for place, (query, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.says,
        "datasource": _DATASOURCE,
        "gridPos": {"x": across, "y": down, "w": panel.width, "h": tall},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def _variables() -> list[dict[str, Any]]:
    def asked(name: str, query: str) -> dict[str, Any]:
        return {
            "name": name, "type": "query", "datasource": _DATASOURCE, "query": query, "refresh": 2, "multi": True,
            "includeAll": True, "current": {"text": "All", "value": "$__all"}, "sort": 1,
        }  # fmt: skip

    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
        asked("namespace", "label_values(exactlyonce_stream_phase, namespace)"),
        asked("stream", 'label_values(exactlyonce_stream_phase{namespace=~"$namespace"}, stream)'),
    ]


def main() -> int:
    """Write the dashboard, or check it."""
    return write_or_check({FILE: json.dumps(dashboard(), indent=2) + "\n"}, "its panels are", "dashboard")


if __name__ == "__main__":
    sys.exit(main())
