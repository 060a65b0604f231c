"""The alerts as files: each has a severity, a sentence, an act and a page, and asks for series that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from exactlyonce.control import metrics
from exactlyonce.monitor import series
from exactlyonce.monitor.checkpoints import MOST_OBJECTS
from exactlyonce.monitor.series import Kind

ROOT = Path(__file__).parents[2]
RULES = ROOT / "charts" / "exactlyonce-operator" / "alerts" / "rules.yaml"
DASHBOARD = ROOT / "charts" / "exactlyonce-operator" / "dashboards" / "exactlyonce.json"
RUNBOOKS = ROOT / "docs" / "runbooks"
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def exported() -> dict[str, set[str]]:
    """Every name that a scrape has, with its labels."""
    names: dict[str, set[str]] = {}
    for it in (*series.OF_FLEET, *series.OF_PARTITIONS, *metrics.ALL):
        histogram = [f"{it.name}_{part}" for part in ("count", "sum", "bucket")]
        names |= {name: set(it.labels) for name in (histogram if it.kind is Kind.HISTOGRAM else [it.name])}
    return names


def queries() -> list[tuple[str, str]]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    of_panels = [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", [])]
    return [(rule["alert"], rule["expr"]) for rule in ALERTS] + of_panels


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_each_alert_has_a_severity_a_sentence_an_act_and_a_page(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    told = rule["annotations"]
    assert told["summary"].endswith(".")
    assert told["action"].endswith(".")
    page = ROOT / told["runbook"]
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


def test_the_chart_replaces_the_sizes_that_the_rules_have_and_counting_stops_where_they_say() -> None:
    template = (RULES.parents[1] / "templates" / "prometheusrule.yaml").read_text()
    replaced = dict(re.findall(r'replace "> (\d+)" \$(\w+)', template))
    values = yaml.safe_load((RULES.parents[1] / "values.yaml").read_text())["metrics"]["prometheusRule"]
    assert replaced == {str(values["checkpointObjects"]): "objects", str(values["checkpointBytes"]): "bytes"}
    (rule,) = [it for it in ALERTS if it["alert"] == "ExactlyOnceCheckpointGrows"]
    for number, what in replaced.items():
        assert RULES.read_text().count(f"> {number}") == 1
        assert f"(exactlyonce_checkpoint_{what}[1h])) > {number}\n" in rule["expr"]
    assert f">= {MOST_OBJECTS}\n" in rule["expr"]


@pytest.mark.parametrize(("title", "query"), queries(), ids=lambda value: str(value)[:40])
def test_each_query_asks_for_series_that_there_are(title: str, query: str) -> None:
    known = exported()
    asked = set(re.findall(r"\bexactlyonce_\w+", query))
    assert asked, "it asks for something of ours"
    assert asked <= known.keys(), title
    for name, matchers in re.findall(r"\b(exactlyonce_\w+)\{([^}]*)\}", query):
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        assert labels <= known[name] | {"instance", "pod", "job"}, f"{title}: {name} has no such label"
