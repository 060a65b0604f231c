"""Make the rules of Prometheus from `scripts.alerts`: the chart's PrometheusRule, and a plain file with the chart's defaults.

    python -m scripts.alert_rules [--check]

The template reads severities, `for`, thresholds, labels and switches from the chart's values; the plain file is for a
Prometheus without the Prometheus operator. `--check` only tells whether both are up to date.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterator
from string import Template
from typing import Any

from scripts.alerts import GROUPS, Alert, Group
from scripts.chart_values import CHART, SCHEMA
from scripts.generated import write_or_check

RULES = CHART / "alerts" / "rules.yaml"
TEMPLATE = CHART / "templates" / "prometheusrule.yaml"
COMMON = ("enabled", "severity", "for", "labels")
"""What every alert has in the values; whatever else one has is a threshold."""

Settings = dict[str, Any]
_SAYS = "made by scripts/alert_rules.py from scripts/alerts.py: do not edit."


def settings() -> Settings:
    """Return the schema of `metrics.prometheusRule` in the chart's values."""
    schema = json.loads(SCHEMA.read_text())
    return dict(schema["properties"]["metrics"]["properties"]["prometheusRule"]["properties"])


def defaults(alert: Alert) -> Settings:
    """Return the default settings of an alert."""
    return dict(settings()["alerts"]["properties"][alert.name]["default"])


def thresholds(alert: Alert) -> list[str]:
    """Return the names of an alert's thresholds."""
    return [name for name in defaults(alert) if name not in COMMON]


def plain_text() -> str:
    """Return the file of rules, with every default."""
    lines = [f"# Prometheus' rules with the chart's defaults, {_SAYS}", "groups:"]
    for group in GROUPS:
        lines += _head(group)
        for alert in group.alerts:
            lines += ["", *_plain(alert)]
    return "\n".join([*lines, ""])


def template_text() -> str:
    """Return the template of the PrometheusRule."""
    lines = [
        f"{{{{- /* {_SAYS.capitalize()} */}}}}",
        "{{- $rule := .Values.metrics.prometheusRule }}",
        "{{- $alerts := $rule.alerts }}",
        "{{- if $rule.enabled }}",
        "apiVersion: monitoring.coreos.com/v1",
        "kind: PrometheusRule",
        "metadata:",
        '  name: {{ include "exactlyonce-operator.fullname" . }}',
        "  namespace: {{ .Release.Namespace }}",
        "  labels:",
        '    {{- include "exactlyonce-operator.labelsWith" (list . $rule.labels) | nindent 4 }}',
        "spec:",
        f"  groups:{{{{ if not {_any(alert for group in GROUPS for alert in group.alerts)} }}}} []{{{{ end }}}}",
    ]
    for group in GROUPS:
        lines.append(f"    {{{{- if {_any(group.alerts)} }}}}")
        lines += [f"  {line}" for line in _head(group)]
        for alert in group.alerts:
            lines += [f"  {line}" if line else line for line in _templated(alert)]
        lines.append("    {{- end }}")
    return "\n".join([*lines, "{{- end }}", ""])


def _any(alerts: Iterator[Alert] | tuple[Alert, ...]) -> str:
    return "(or " + " ".join(f"$alerts.{alert.name}.enabled" for alert in alerts) + ")"


def _head(group: Group) -> list[str]:
    interval = [] if group.interval is None else [f"    interval: {group.interval}"]
    return [f"  - name: {group.name}", *interval, "    rules:"]


def _plain(alert: Alert) -> Iterator[str]:
    chosen = defaults(alert)
    for line in textwrap.wrap(alert.comment, 110):
        yield f"      # {line}"
    yield from _rule(alert, lambda name: str(chosen[name]))
    yield f"        for: {chosen['for']}"
    yield f"        labels: {json.dumps({'severity': chosen['severity'], **chosen['labels']})}"
    yield from _annotations(alert, settings()["runbookUrl"]["default"], lambda text: text)


def _templated(alert: Alert) -> Iterator[str]:
    kinds = {name: type(value) for name, value in defaults(alert).items()}
    yield f"      {{{{- with $alerts.{alert.name} }}}}"
    yield "      {{- if .enabled }}"
    # A whole number of the values is a float to Helm, which would write large ones with an exponent.
    yield from _rule(alert, lambda name: f"{{{{ {'int64 ' if kinds[name] is int else ''}.{name} }}}}")
    yield '        for: {{ get . "for" | quote }}'
    yield "        labels:"
    yield '          {{- merge (dict "severity" .severity) .labels $rule.alertLabels | toYaml | nindent 12 }}'
    yield from _annotations(alert, '{{ trimSuffix "/" $rule.runbookUrl }}', _escaped)
    yield "      {{- end }}"
    yield "      {{- end }}"


def _rule(alert: Alert, threshold: Callable[[str], str]) -> Iterator[str]:
    chosen = {name: threshold(name) for name in thresholds(alert)}
    yield f"      - alert: {alert.name}"
    yield "        expr: |-"
    yield from textwrap.indent(Template(alert.expression).substitute(chosen), " " * 10).splitlines()


def _annotations(alert: Alert, base: str, escaped: Callable[[str], str]) -> Iterator[str]:
    yield "        annotations:"
    yield f"          summary: {escaped(json.dumps(alert.summary))}"
    yield f"          action: {escaped(json.dumps(alert.action))}"
    yield f'          runbook_url: "{base}/{alert.name}.md"'


def _escaped(text: str) -> str:
    """Return a text that Helm gives to Prometheus as it is."""
    return text.replace("{{", '{{ "{{" }}')


def main() -> int:
    """Write both files, or check them."""
    return write_or_check({RULES: plain_text(), TEMPLATE: template_text()}, "scripts/alerts.py says", "alert_rules")


if __name__ == "__main__":
    sys.exit(main())
