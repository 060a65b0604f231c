"""The alerts as files: each has a severity, a sentence, an act and a page, and asks for series that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from exactlyonce.control import metrics
from exactlyonce.monitor import labelled_series, series
from exactlyonce.monitor.checkpoints import MOST_OBJECTS
from exactlyonce.monitor.metric import Kind
from exactlyonce_spark import metrics as driver_metrics
from scripts import alert_rules, alerts
from scripts.chart_values import SCHEMA, VALUES

ROOT = Path(__file__).parents[2]
RULES = ROOT / "charts" / "exactlyonce-operator" / "alerts" / "rules.yaml"
DASHBOARD = ROOT / "charts" / "exactlyonce-operator" / "dashboards" / "exactlyonce.json"
RUNBOOKS = ROOT / "docs" / "runbooks"
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def exported() -> dict[str, set[str]]:
    """Every name that a scrape has, with its labels."""
    names: dict[str, set[str]] = {}
    for it in (*series.OF_FLEET, *labelled_series.OF_PARTITIONS, *metrics.ALL):
        histogram = [f"{it.name}_{part}" for part in ("count", "sum", "bucket")]
        names |= {name: set(it.labels) for name in (histogram if it.kind is Kind.HISTOGRAM else [it.name])}
    # The chart's PodMonitor gives what a driver tells the namespace and the stream of its pod.
    of_drivers = (*driver_metrics.ALL, *driver_metrics.OF_FOLDERS)
    return names | {it.name: {*it.labels, "namespace", "stream"} for it in of_drivers if it.kind != "histogram"}


def queries() -> list[tuple[str, str]]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    of_panels = [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", [])]
    return [(rule["alert"], rule["expr"]) for rule in ALERTS] + of_panels


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_each_alert_has_a_severity_a_sentence_an_act_and_a_page(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    told = rule["annotations"]
    assert told.keys() == {"summary", "action", "runbook_url"}
    assert told["summary"].endswith(".")
    assert told["action"].endswith(".")
    page = ROOT / told["runbook_url"]
    assert page == RUNBOOKS / f"{rule['alert']}.md"
    text = page.read_text()
    for part in (f"# {rule['alert']}\n", "**What it means.**", "**What to do.**\n\n1. "):
        assert part in text


def test_each_page_belongs_to_an_alert_and_its_links_lead_somewhere() -> None:
    pages = {page.stem for page in RUNBOOKS.glob("*.md")}
    assert pages == {rule["alert"] for rule in ALERTS}
    for page in RUNBOOKS.glob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_rules_that_are_made_are_up_to_date() -> None:
    assert RULES.read_text() == alert_rules.plain_text(), "python -m scripts.alert_rules"
    assert alert_rules.TEMPLATE.read_text() == alert_rules.template_text(), "python -m scripts.alert_rules"


def test_every_alert_has_its_values_and_every_threshold_is_one_of_them() -> None:
    values = yaml.safe_load(VALUES.read_text())["metrics"]["prometheusRule"]["alerts"]
    listed = {alert.name: alert for group in alerts.GROUPS for alert in group.alerts}
    assert values.keys() == listed.keys()
    for name, alert in listed.items():
        asked = set(re.findall(r"\$\{(\w+)\}", alert.expression))
        assert values[name].keys() == {"enabled", "severity", "for", "labels"} | asked, name


def test_the_schema_knows_each_setting_of_each_alert_and_no_other() -> None:
    schema = json.loads(SCHEMA.read_text())
    for name, field in alert_rules.settings()["alerts"]["properties"].items():
        known = schema["definitions"][field["$ref"].removeprefix("#/definitions/")]
        assert known["additionalProperties"] is False
        assert set(known["required"]) == known["properties"].keys() == field["default"].keys(), name


def test_the_checkpoint_alert_also_fires_where_counting_stops() -> None:
    (rule,) = [it for it in ALERTS if it["alert"] == "ExactlyOnceCheckpointGrows"]
    assert f">= {MOST_OBJECTS}\n" in rule["expr"]


OF_STREAM = [
    (panel["title"], target["expr"], target["legendFormat"])
    for panel in json.loads(DASHBOARD.read_text())["panels"]
    for target in panel.get("targets", [])
    if re.search(r"exactlyonce_(stream|partition)_", target["expr"]) and "by (phase)" not in target["expr"]
]


@pytest.mark.parametrize(("title", "query", "legend"), OF_STREAM, ids=lambda value: str(value)[:40])
def test_the_dashboard_keeps_streams_apart(title: str, query: str, legend: str) -> None:
    """Streams of one name in two namespaces, and two streams that read one topic, are lines of their own."""
    if query.startswith("count("):
        return  # how many, of all streams
    grouped = re.findall(r"by \(([^)]*)\)", query)
    assert grouped, title
    for labels in grouped:
        assert {"namespace", "stream"} <= set(labels.split(", ")), title
    assert "{{namespace}}/{{stream}}" in legend, title
    for name, matchers in re.findall(r"(exactlyonce_\w+)\{([^}]*)\}", query):
        assert 'namespace=~"$namespace"' in matchers, f"{title}: {name}"


def test_the_dashboard_has_a_variable_for_the_namespace_and_one_for_the_stream_in_it() -> None:
    asked = {it["name"]: it["query"] for it in json.loads(DASHBOARD.read_text())["templating"]["list"]}
    assert asked["namespace"] == "label_values(exactlyonce_stream_phase, namespace)"
    assert asked["stream"] == 'label_values(exactlyonce_stream_phase{namespace=~"$namespace"}, stream)'


@pytest.mark.parametrize(("title", "query"), queries(), ids=lambda value: str(value)[:40])
def test_each_query_asks_for_series_that_there_are(title: str, query: str) -> None:
    known = exported()
    asked = set(re.findall(r"\bexactlyonce_\w+", query))
    assert asked, "it asks for something of ours"
    assert asked <= known.keys(), title
    for name, matchers in re.findall(r"\b(exactlyonce_\w+)\{([^}]*)\}", query):
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        assert labels <= known[name] | {"instance", "pod", "job"}, f"{title}: {name} has no such label"
