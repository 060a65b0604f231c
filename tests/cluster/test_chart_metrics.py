"""What the chart brings for Prometheus and Grafana, as rendered: found by its labels, the alerts and panels as they are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.chart_values import CHART
from tests.cluster.charts import Helm, HelmFailed
from tests.unit.test_alerts import DASHBOARD, RULES

GOLDEN_PODS = CHART.parents[1] / "tests" / "golden" / "driver_pods"
ALL_ON = {
    "metrics": {
        "serviceMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}},
        "podMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboard": {"enabled": True},
    }
}


@pytest.fixture(scope="module")
def helm(helm_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """helm, without a cluster."""
    return Helm(helm_program, tmp_path_factory.mktemp("helm"))


def rendered(helm: Helm, kind: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    return [document for document in helm.render(values) if document["kind"] == kind]


def test_a_cluster_without_prometheus_gets_nothing_of_it(helm: Helm) -> None:
    kinds = {document["kind"] for document in helm.render({})}
    assert not kinds & {"ServiceMonitor", "PrometheusRule", "PodMonitor"}


def test_prometheus_finds_every_replica_and_keeps_the_streams_own_namespace(helm: Helm) -> None:
    (monitor,) = rendered(helm, "ServiceMonitor", ALL_ON)
    (service,) = rendered(helm, "Service", ALL_ON)
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["namespaceSelector"]["matchNames"] == [service["metadata"]["namespace"]]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    assert (endpoint["honorLabels"], endpoint["interval"], endpoint["path"]) == (True, "15s", "/metrics")


def test_prometheus_finds_the_drivers_that_the_operator_makes_and_no_executor(helm: Helm) -> None:
    (monitor,) = rendered(helm, "PodMonitor", ALL_ON)
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    made = list(yaml.safe_load_all((GOLDEN_PODS / "smallest.yaml").read_text()))
    (driver,) = [it for it in made if it["kind"] == "Pod"]
    executor = yaml.safe_load(next(it for it in made if it["kind"] == "ConfigMap")["data"]["executor.yaml"])
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= driver["metadata"]["labels"].items()
    assert not wanted.items() <= executor["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in [port["name"] for port in driver["spec"]["containers"][0]["ports"]]
    assert (endpoint["path"], endpoint["interval"]) == ("/metrics", "15s")
    assert monitor["spec"]["namespaceSelector"] == {"any": True}
    (chosen,) = rendered(helm, "PodMonitor", {**ALL_ON, "watch": {"namespaces": ["shop", "billing"]}})
    assert chosen["spec"]["namespaceSelector"] == {"matchNames": ["shop", "billing"]}


def test_the_rules_and_the_dashboard_arrive_as_they_are(helm: Helm) -> None:
    (rule,) = rendered(helm, "PrometheusRule", ALL_ON)
    assert rule["spec"] == yaml.safe_load(RULES.read_text())
    (dashboard,) = rendered(helm, "ConfigMap", ALL_ON)
    assert json.loads(dashboard["data"]["exactlyonce.json"]) == json.loads(DASHBOARD.read_text())
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


def alerts(helm: Helm, **changes: Any) -> dict[str, dict[str, Any]]:
    """The alerts that the chart installs with such values of `metrics.prometheusRule`, by name."""
    (rule,) = rendered(helm, "PrometheusRule", {"metrics": {"prometheusRule": {"enabled": True, **changes}}})
    return {it["alert"]: it for group in rule["spec"]["groups"] for it in group["rules"]}


def test_severity_duration_threshold_labels_and_page_of_an_alert_are_values(helm: Helm) -> None:
    settings = {"severity": "page", "for": "2h", "seconds": 7200, "labels": {"team": "shop"}}
    changed = alerts(
        helm,
        alerts={"ExactlyOnceNeverLanded": settings, "ExactlyOnceCheckpointGrows": {"bytes": 123_456_789_012}},
        alertLabels={"team": "streaming", "area": "data"},
        runbookUrl="https://git.example/exactlyonce/runbooks/",
    )
    never = changed["ExactlyOnceNeverLanded"]
    assert (never["for"], never["labels"]) == ("2h", {"severity": "page", "team": "shop", "area": "data"})
    assert "exactlyonce_stream_created_timestamp_seconds) > 7200\n" in never["expr"]
    assert "> 123456789012\n" in changed["ExactlyOnceCheckpointGrows"]["expr"]
    assert changed["ExactlyOnceLagHigh"]["labels"] == {"severity": "critical", "team": "streaming", "area": "data"}
    for name, alert in changed.items():
        assert alert["annotations"]["runbook_url"] == f"https://git.example/exactlyonce/runbooks/{name}.md"


def test_an_alert_that_is_switched_off_is_missing_and_its_group_with_the_last_one(helm: Helm) -> None:
    known = set(alerts(helm))
    assert known - set(alerts(helm, alerts={"ExactlyOnceDeadLetters": {"enabled": False}})) == {
        "ExactlyOnceDeadLetters"
    }
    off = {name: {"enabled": False} for name in known}
    kept = {**off, "ExactlyOnceCheckpointGrows": {"enabled": True}}
    values = {"metrics": {"prometheusRule": {"enabled": True, "alerts": kept}}}
    (rule,) = rendered(helm, "PrometheusRule", values)
    assert [(group["name"], len(group["rules"])) for group in rule["spec"]["groups"]] == [
        ("exactlyonce-checkpoints", 1)
    ]
    (rule,) = rendered(helm, "PrometheusRule", {"metrics": {"prometheusRule": {"enabled": True, "alerts": off}}})
    assert rule["spec"] == {"groups": []}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"alerts": {"ExactlyOnceLaghigh": {"enabled": False}}}, "ExactlyOnceLaghigh"),
        ({"alerts": {"ExactlyOnceLagHigh": {"seconds": 5}}}, "seconds"),
        ({"alerts": {"ExactlyOnceNeverLanded": {"seconds": 0}}}, "seconds"),
        ({"alerts": {"ExactlyOnceNeverLanded": {"seconds": "> 900"}}}, "seconds"),
        ({"alerts": {"ExactlyOnceNeverLanded": {"for": "soon"}}}, "for"),
        ({"alerts": {"ExactlyOnceNeverLanded": {"severity": None}}}, "severity"),
        ({"alerts": {"ExactlyOnceNeverLanded": {"labels": {"stream": "all"}}}}, "stream"),
        ({"alertLabels": {"a-b": "c"}}, "a-b"),
        ({"runbookUrl": "ftp://git.example"}, "runbookUrl"),
        ({"checkpointObjects": 5}, "checkpointObjects"),
    ],
)
def test_a_wrong_setting_of_an_alert_is_refused_by_name(helm: Helm, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(HelmFailed, match=re.escape(named)):
        alerts(helm, **changes)


def test_a_service_monitor_without_a_service_is_refused_in_a_sentence(helm: Helm) -> None:
    with pytest.raises(HelmFailed, match=r"metrics\.serviceMonitor: it finds the operator by the Service"):
        helm.render({"metrics": ALL_ON["metrics"], "service": {"enabled": False}})
