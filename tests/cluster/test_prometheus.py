"""A real Prometheus beside a real operator: with the driver held down the alerts fire, and they resolve when it lands again.

The rules and how the operator is scraped are the chart's, as helm renders them. Two things are changed, so that nobody waits
for minutes: every `for:` is two seconds, and a stream that was created a second ago should have landed. The monitor measures
every second instead of every 30 seconds.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.cluster import Cluster
from testbed.prometheus import Prometheus, PrometheusUnavailable, ensure_program
from tests.cluster.charts import Helm, only
from tests.cluster.operators import MakeOperator, MakeStream, OperatorProcess, WholeStream
from tests.unit.test_alerts import DASHBOARD

pytestmark = pytest.mark.timeout(1500)

# The dashboard has a panel of partitions, whose series an administrator switches on.
QUICK_MONITOR = {"EXACTLYONCE_OPERATOR_MONITOR_SECONDS": "1", "EXACTLYONCE_OPERATOR_PARTITION_SERIES": "true"}
SOON = {"ExactlyOnceNeverLanded": {"seconds": 1}}
ALL_ON = {
    "metrics": {
        "serviceMonitor": {"enabled": True},
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True, "alerts": SOON},
    }
}
NO_SUCH_IMAGE = "registry.invalid/nothing:1"
OBJECTIVE_SECONDS = 5
ELSEWHERE = (
    "exactlyonce_driver_loads_total",
    "exactlyonce_stream_not_landed_files",
    "exactlyonce_stream_quarantine",
    "exactlyonce_stream_replay",
)
"""Of sinks that load under labels, of folders, of a quarantine and of replays, none of which is in this test: in tests/unit/,
the series of test_driver_metrics.py, test_file_counts.py and test_monitor.py; tests/integration/test_fleets.py for what the
ledger says."""


@pytest.fixture(scope="module")
def documents(helm_program: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the chart brings where everything for Prometheus is asked for."""
    try:
        ensure_program()
    except PrometheusUnavailable as problem:
        pytest.skip(str(problem))
    return Helm(helm_program, tmp_path_factory.mktemp("helm")).render(ALL_ON)


def quick_rules(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """The chart's rules, with every `for:` two seconds."""
    rules: dict[str, Any] = only(documents, "PrometheusRule")["spec"]
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = "2s"
    return rules


def scrape(documents: list[dict[str, Any]], operator: OperatorProcess) -> dict[str, Any]:
    """What Prometheus' operator makes of the chart's ServiceMonitor, for one pod; its labels are those of the pod."""
    (endpoint,) = only(documents, "ServiceMonitor")["spec"]["endpoints"]
    labels = {"namespace": "exactlyonce-system", "pod": "exactlyonce-operator-0"}
    return {
        "job_name": "exactlyonce-operator",
        "honor_labels": endpoint["honorLabels"],
        "metrics_path": endpoint["path"],
        "static_configs": [{"targets": [f"127.0.0.1:{operator.port}"], "labels": labels}],
    }


def scrape_drivers(documents: list[dict[str, Any]], targets: Path) -> dict[str, Any]:
    """What Prometheus' operator makes of the chart's PodMonitor, for the drivers that the file `targets` names."""
    (endpoint,) = only(documents, "PodMonitor")["spec"]["podMetricsEndpoints"]
    renames = [
        {"source_labels": it["sourceLabels"], "target_label": it["targetLabel"]} for it in endpoint["relabelings"]
    ]
    targets.write_text("[]")
    return {
        "job_name": "exactlyonce-drivers",
        "metrics_path": endpoint["path"],
        "file_sd_configs": [{"files": [str(targets)], "refresh_interval": "1s"}],
        "relabel_configs": renames,
    }


def name_driver(stream: WholeStream, targets: Path) -> None:
    """Let Prometheus find the one driver, with the labels that its discovery of pods gives."""
    (driver,) = stream.pods("driver")
    (number,) = [it["containerPort"] for it in driver["spec"]["containers"][0]["ports"] if it["name"] == "metrics"]
    found = {
        f"__meta_kubernetes_pod_label_{re.sub(r'[^a-zA-Z0-9_]', '_', key)}": value
        for key, value in driver["metadata"]["labels"].items()
    }
    labels = {**found, "namespace": stream.namespace, "pod": driver["metadata"]["name"]}
    whole = targets.with_suffix(".new")
    whole.write_text(json.dumps([{"targets": [f"{driver['status']['podIP']}:{number}"], "labels": labels}]))
    whole.rename(targets)


@pytest.mark.seconds(100)
def test_the_lag_alert_fires_while_the_driver_is_held_down_and_resolves_once_it_lands_again(
    make_stream: MakeStream,
    make_operator: MakeOperator,
    documents: list[dict[str, Any]],
    cluster: Cluster,
    name: str,
    tmp_path: Path,
) -> None:
    settled = {"spec.objectives": {"lagSeconds": OBJECTIVE_SECONDS}, "spec.sparkUi": {"enabled": True}}
    stream = make_stream(name, settled)
    rig = stream.rig
    operator = make_operator(environment=QUICK_MONITOR)
    stream.operators.append(operator)
    stream.until(lambda: "exactlyonce_lease_held 1.0" in operator.page("/metrics")[1], "it leads")
    began = time.time()
    drivers = tmp_path / "drivers.json"
    scrapes = [scrape(documents, operator), scrape_drivers(documents, drivers)]
    with Prometheus(tmp_path / "prometheus", scrapes, quick_rules(documents)) as prometheus:

        def firing(alert: str) -> list[dict[str, Any]]:
            """The alerts of that name that fire, of this stream where they are of a stream."""
            return [
                dict(it)
                for it in prometheus.alerts()
                if it["labels"]["alertname"] == alert
                and it["state"] == "firing"
                and it["labels"].get("stream", stream.name) == stream.name
            ]

        def asked(series: str) -> list[float]:
            """The latest value of a series of the stream, of each that there is."""
            found = prometheus.now(f'{series}{{namespace="{stream.namespace}",stream="{stream.name}"}}')
            return [value for it in found for value in it.values]

        rig.produce(4_000)
        stream.apply()
        stream.until(lambda: bool(firing("ExactlyOnceNeverLanded")), "its first driver starts, and nothing has landed")
        (never,) = firing("ExactlyOnceNeverLanded")
        assert (never["labels"]["namespace"], never["labels"]["severity"]) == (stream.namespace, "warning")
        stream.until_landed_all()
        stream.until(lambda: not firing("ExactlyOnceNeverLanded"), "the first batch resolves it")
        stream.until(lambda: asked("exactlyonce_stream_lag_records") == [0.0], "nothing waits")
        stream.until(lambda: not firing("ExactlyOnceLagHigh"), "nothing fires")
        assert not firing("ExactlyOnceOperatorDown")
        stream.until(lambda: asked("exactlyonce_checkpoint_objects") != [], "its checkpoint on S3 is measured")
        stream.until(
            lambda: f"\nexactlyonce_driver_rows_total {rig.landed()}\n" in page(stream, "metrics"), "it counts"
        )
        assert 'exactlyonce_driver_batch_seconds_count{part="commit"}' in page(stream, "metrics")
        name_driver(stream, drivers)
        stream.until(
            lambda: asked("exactlyonce_driver_rows_total") == [float(rig.landed())], "Prometheus asks the driver itself"
        )
        of_spark = page(stream, "spark-ui", "/metrics/prometheus/")
        assert "metrics_exactlyonce_driver_jvm_heap_used_Value{" in of_spark, of_spark
        of_executors = page(stream, "spark-ui", "/metrics/executors/prometheus")
        assert "metrics_executor_totalTasks_total{" in of_executors, of_executors

        stream.change({"spec.image": NO_SUCH_IMAGE, "spec.recovery.onBadUpdate": "Stay"})
        stream.until(lambda: stream.status["attempt"] == 2 and bool(stream.pods("driver")), "no driver runs")
        rig.produce(1_000)
        rig.kafka.delete_records_before(rig.name, 0, 100)  # as retention does, of what has landed
        waiting = len(rig.produced) - rig.landed()
        assert waiting == 1_000
        stream.until(lambda: asked("exactlyonce_stream_lag_records") == [float(waiting)], "the lag is what is missing")
        stream.until(lambda: bool(firing("ExactlyOnceLagHigh")), "the lag alert fires")
        (alert,) = firing("ExactlyOnceLagHigh")
        assert alert["labels"]["namespace"] == stream.namespace, "the stream's own, not the operator's"
        assert alert["labels"]["severity"] == "critical"
        assert alert["annotations"]["summary"].startswith(f"{stream.namespace}/{stream.name} is ")
        assert f"exactlyonce status {stream.name} -n {stream.namespace}" in alert["annotations"]["action"]
        stream.until(lambda: bool(firing("ExactlyOnceRetentionRisk")), "retention comes near what has not landed")
        assert rig.landed() == len(rig.produced) - waiting
        stream.until(lambda: shown_by_kubectl(stream)["LAG-RECORDS"] == str(waiting), "kubectl shows it")
        assert int(shown_by_kubectl(stream)["LAG-SECONDS"]) > 0
        told = status(cluster, tmp_path, stream.name, "-n", stream.namespace)
        assert re.search(rf"Lag +{waiting} records; the oldest was written \S+ ago", told), told
        assert f"(objective {OBJECTIVE_SECONDS}s)" in told
        assert f"image {NO_SUCH_IMAGE}" in told

        stream.change({"spec.image": None})
        stream.until_landed_all()
        stream.until(lambda: not firing("ExactlyOnceLagHigh"), "the alert resolves")
        stream.until(lambda: not firing("ExactlyOnceRetentionRisk"), "nothing waits for retention to take it")
        stream.until(lambda: asked("exactlyonce_stream_lag_records") == [0.0], "nothing waits")
        assert asked("exactlyonce_stream_oldest_not_landed_timestamp_seconds") == []
        stream.until(lambda: shown_by_kubectl(stream)["LAG-RECORDS"] == "0", "kubectl shows it")
        assert shown_by_kubectl(stream)["LAG-SECONDS"] == "0"
        (line,) = [it for it in status(cluster, tmp_path, "-A").splitlines() if f" {stream.name} " in it]
        assert line.split()[:3] == [stream.namespace, stream.name, "Running"]
        rig.assert_exactly_once()

        ended = time.time()
        for label, wanted in (("namespace", stream.namespace), ("stream", stream.name)):
            assert prometheus.label_values(label, "exactlyonce_stream_phase") == [wanted]
        nothing = [
            f"{title}: {query}"
            for title, query in dashboard_queries()
            if not any(series in query for series in ELSEWHERE)
            and not any(has_data(it.values) for it in prometheus.between(query, began, ended))
        ]
        assert nothing == [], "every query of the dashboard has found something in this time"

        stream.operators.remove(operator)
        operator.end()
        stream.until(lambda: bool(firing("ExactlyOnceOperatorDown")), "nobody leads, and that is told")


def dashboard_queries() -> Iterator[tuple[str, str]]:
    """Each query of the dashboard with its panel's title, as Grafana sends it when all streams are chosen."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", "20s")
            yield panel["title"], re.sub(r"\$(namespace|stream)\b", ".*", query)


def has_data(values: Any) -> bool:
    """Whether a panel would draw something: a quantile of nothing is not a number."""
    return any(not math.isnan(value) for value in values)


def page(stream: WholeStream, port: str, path: str = "/metrics") -> str:
    """A page of the one driver, of the port that its pod calls so."""
    (driver,) = stream.pods("driver")
    (number,) = [it["containerPort"] for it in driver["spec"]["containers"][0]["ports"] if it["name"] == port]
    with urllib.request.urlopen(f"http://{driver['status']['podIP']}:{number}{path}", timeout=20) as answer:
        return str(answer.read(), "utf-8")


def shown_by_kubectl(stream: WholeStream) -> dict[str, str]:
    """What `kubectl get eos -o wide` prints of a stream, by its heads; no cell before the last, a sentence, is empty."""
    heads, cells = stream.kubectl("get", "eos", stream.name, "--output=wide").splitlines()
    return dict(zip(heads.split(), cells.split(), strict=False))


def status(cluster: Cluster, folder: Path, *arguments: str) -> str:
    """What `kubectl exactlyonce status` prints, with the plugin in `folder` as pip would put it there."""
    plugin = folder / "kubectl-exactlyonce"
    plugin.write_text(f"#!{sys.executable}\nfrom exactlyonce.cli.main import plugin\nplugin()\n")
    plugin.chmod(0o755)
    command = [str(cluster.kubectl_program), "exactlyonce", "status", *arguments]
    path = f"{folder}:{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "COLUMNS": "250", "PATH": path}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout
