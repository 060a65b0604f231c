"""The chart's values are told once: what is made of their schema is up to date, and nothing in it is left open by mistake."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import exactlyonce
from scripts import chart_values, generate_crd

SCHEMA: dict[str, Any] = json.loads(chart_values.SCHEMA.read_text())
OPEN = {
    "global", "affinity", "podSecurityContext", "securityContext", "resources.requests", "resources.limits",
    "extraEnv[].valueFrom", "topologySpreadConstraints[]", "networkPolicy.operator.egress[]", "networkPolicy.drivers.egress[]",
}  # fmt: skip
"""What takes any object: another chart's values, and parts of a pod that the API server checks."""


def objects(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every value that is an object of the chart's own, by its path; the whole first."""
    if schema.get("type") == "object":
        yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from objects(field, f"{path}.{name}".lstrip("."))
    if "items" in schema:
        yield from objects(schema["items"], f"{path}[]")


def test_what_is_made_of_the_schema_is_up_to_date() -> None:
    assert chart_values.VALUES.read_text() == chart_values.values_text(), "python -m scripts.chart_values"
    head = chart_values.PAGE.read_text().partition(chart_values.MARK)[0]
    assert chart_values.PAGE.read_text() == chart_values.page_text(head), "python -m scripts.chart_values"


def test_a_default_that_was_changed_by_hand_fails_the_check_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    edited = tmp_path / "values.yaml"
    edited.write_text(chart_values.values_text().replace("replicas: 2", "replicas: 1"))
    monkeypatch.setattr(chart_values, "VALUES", edited)
    monkeypatch.setattr("scripts.generated.ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["chart_values.py", "--check"])
    assert chart_values.main() == 1
    assert "values.yaml" in capsys.readouterr().out


def test_every_value_is_described_and_has_a_default() -> None:
    given = {
        f"{path}.{name}": field
        for path, schema in objects(SCHEMA)
        for name, field in schema.get("properties", {}).items()
        if "[]" not in path and name != "global"
    }
    assert [name for name, field in given.items() if not field.get("description")] == []
    assert [name for name, field in given.items() if "default" not in field and "properties" not in field] == []


def test_every_object_refuses_a_name_that_it_does_not_know() -> None:
    found = {path for path, schema in objects(SCHEMA) if schema.get("additionalProperties") is not False}
    assert found == OPEN


def test_values_yaml_holds_the_defaults_and_nothing_else() -> None:
    def defaults(schema: dict[str, Any]) -> dict[str, Any]:
        return {
            name: defaults(field) if "properties" in field else field["default"]
            for name, field in schema["properties"].items()
            if name != "global"
        }

    assert yaml.safe_load(chart_values.VALUES.read_text()) == defaults(SCHEMA)


def test_the_charts_definition_is_the_one_in_crds_and_stays_when_the_chart_goes() -> None:
    text = generate_crd.CHART.read_text()
    assert text == generate_crd.chart_text(), "python -m scripts.generate_crd"
    assert text.startswith("{{- if .Values.crds.install }}\n")
    assert "helm.sh/resource-policy: keep" in text
    plain = [line for line in text.splitlines() if "{{" not in line and "resource-policy" not in line]
    assert [line for line in plain if line != "  labels:"] == generate_crd.CRD.read_text().splitlines()


def test_the_chart_has_the_version_of_the_code() -> None:
    chart = yaml.safe_load((chart_values.CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (exactlyonce.__version__, exactlyonce.__version__)
