"""Make the CustomResourceDefinitions, the chart's copies and the reference page from the models in operator/exactlyonce/api.

    python -m scripts.generate_crd [--check]

`--check` only tells whether all are up to date. The kinds are those of `scripts/resource_kinds.py`.
"""

from __future__ import annotations

import sys
from typing import Any

import yaml

from exactlyonce.api.conditions import STANDINGS
from exactlyonce.api.immutable import update_rules
from exactlyonce.api.resource import API_VERSION, NAME_RULE
from exactlyonce.api.stream_replay_status import REPLAY_TRANSITIONS
from exactlyonce.schema.constraints import VALIDATIONS
from exactlyonce.schema.structural_schema import Schema, structural_schema
from scripts.generated import ROOT, write_or_check
from scripts.resource_kinds import GROUP as GROUP
from scripts.resource_kinds import KINDS, REPLAY, STREAM, ResourceKind
from scripts.resource_kinds import VERSION as VERSION

PLURAL, COLUMNS, UNSEEN = STREAM.names.plural, STREAM.columns, STREAM.unseen
CRD, CHART = STREAM.crd, STREAM.chart
PAGE = ROOT / "docs" / "reference.md"
MARK = "<!-- made by scripts/generate_crd.py: do not edit below -->\n"


def definition(kind: ResourceKind = STREAM) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind."""
    name_rule = NAME_RULE.to_document()
    name_rule["rule"] = name_rule["rule"].replace("self.", "self.metadata.name.", 1)
    names = kind.names
    spec = {**structural_schema(kind.spec), "description": f"The desired state of {names.stands_for}."}
    if kind.spec_rules:
        spec[VALIDATIONS] = [*spec.get(VALIDATIONS, []), *kind.spec_rules]
    schema: Schema = {
        "description": kind.description,
        "type": "object",
        "required": ["spec"],
        VALIDATIONS: [name_rule, *kind.rules],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{API_VERSION}."},
            "kind": {"type": "string", "description": f"{names.kind}."},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": {
                **structural_schema(kind.status, with_defaults=False),
                "description": f"The observed state of {names.stands_for}; only the operator writes it.",
                "default": kind.unseen,
            },
        },
    }
    columns = [
        {"name": name, "type": type_, "jsonPath": path, "description": words, **({"priority": rank} if rank else {})}
        for name, type_, path, words, rank in kind.columns
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": names.kind,
                "listKind": f"{names.kind}List",
                "plural": names.plural,
                "singular": names.kind.lower(),
                "shortNames": [names.short],
                "categories": ["streaming"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def crd_text(kind: ResourceKind = STREAM) -> str:
    """Return the CustomResourceDefinition as the file has it."""
    head = "# Made by scripts/generate_crd.py from operator/exactlyonce/api: do not edit.\n"
    return head + yaml.dump(definition(kind), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


def chart_text(kind: ResourceKind = STREAM) -> str:
    """Return the definition as the chart has it: a template, so that an upgrade upgrades it; kept when the chart goes."""
    text = crd_text(kind).replace("{{", '{{ "{{" }}')
    name = f"metadata:\n  name: {kind.names.plural}.{GROUP}\n"
    assert name in text
    more = (
        "  annotations: {helm.sh/resource-policy: keep}\n"
        '  labels:\n    {{- include "exactlyonce-operator.labels" . | nindent 4 }}\n'
    )
    return "{{- if .Values.crds.install }}\n" + text.replace(name, name + more) + "{{- end }}\n"


class _Dumper(yaml.SafeDumper):
    """Writes every value out where it stands."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def page_text(head: str) -> str:
    """Return the reference page: what a person wrote above the mark, and what the models say below."""
    lines = ["", "## spec", "", *_part(STREAM, "spec")]
    lines += ["## What may change", "", *_changes(), "## status", "", "Written by the operator alone.", ""]
    lines += [*_part(STREAM, "status"), "## Phases and conditions", "", *_phases(), *_columns(STREAM, "eos")]
    lines += [
        "",
        f"# {REPLAY.names.kind}",
        "",
        REPLAY.description,
        "It is described in [failed-ranges.md](failed-ranges.md).",
    ]
    lines += ["", "## spec of a StreamReplay", "", *_part(REPLAY, "spec")]
    lines += ["## status of a StreamReplay", "", "Written by the operator alone.", "", *_part(REPLAY, "status")]
    lines += ["## Phases of a StreamReplay", "", *_replay_phases(), *_columns(REPLAY, REPLAY.names.plural)]
    return head + MARK + "\n".join([*lines, ""])


def _part(kind: ResourceKind, part: str) -> list[str]:
    root = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return _object(root["properties"][part], part)


def _columns(kind: ResourceKind, asked: str) -> list[str]:
    lines = [f"## Columns of `kubectl get {asked}`", "", "| Column | Where it stands | What it is |", "|---|---|---|"]
    return lines + [
        f"| {name}{' (`-o wide`)' if rank else ''} | `{path}` | {words} |"
        for name, _, path, words, rank in kind.columns
    ]


def _replay_phases() -> list[str]:
    lines = ["| From | To | When |", "|---|---|---|"]
    for before, following in REPLAY_TRANSITIONS.items():
        lines += [f"| {before} | {after} | {words} |" for after, words in following.items()]
    return [*lines, ""]


def _object(schema: Schema, path: str) -> list[str]:
    """Return the table of an object's fields, its rules, then the same for the objects in it."""
    required = schema.get("required", [])
    lines = ["| Field | Kind | Default | What it is |", "|---|---|---|---|"]
    for name, field in schema["properties"].items():
        default = "required" if name in required else _default(field)
        lines.append(f"| `{name}` | {_kind(field)} | {default} | {_in_table(field['description'])} |")
    rules = [*schema.get(VALIDATIONS, [])]
    rules += [{**rule, "of": name} for name, field in schema["properties"].items() for rule in _rules_of(field)]
    lines += ["", *_sentences(rules)]
    for name, field in schema["properties"].items():
        inner, mark = (field["items"], "[]") if field["type"] == "array" else (field, "")
        if "properties" in inner:
            level = "#" * min(2 + path.count(".") + 1, 5)
            lines += [f"{level} {path}.{name}{mark}", "", *_object(inner, f"{path}.{name}{mark}")]
    return lines


def _rules_of(field: Schema) -> list[dict[str, str]]:
    """Return the rules of a value that is not an object with a section of its own."""
    rules = [] if "properties" in field else [*field.get(VALIDATIONS, [])]
    for part in ("items", "additionalProperties"):
        if part in field and "properties" not in field[part]:
            rules += field[part].get(VALIDATIONS, [])
    return rules


def _sentences(rules: list[dict[str, str]]) -> list[str]:
    """Return a list of sentences, each once; the settings of Spark have a page of their own."""
    told = []
    for rule in rules:
        sentence = f"{rule['message']}."
        if sentence.startswith("sparkConf may not set"):
            sentence = "none of what [spark-settings.md](spark-settings.md) lists."
        told.append(f"- {'`' + rule['of'] + '`: ' if 'of' in rule else ''}{sentence}")
    return [*dict.fromkeys(told), *([""] if told else [])]


def _kind(field: Schema) -> str:
    match field["type"]:
        case "array":
            kind = f"list of {_kind(field['items']).replace(', at', ' at')}"
        case "object" if "additionalProperties" in field:
            kind = f"map of {_kind(field['additionalProperties']).replace(', at', ' at')}"
        case "object":
            kind = "object"
        case "string" if "enum" in field:
            kind = ", ".join(f"`{value}`" for value in field["enum"])
        case "string":
            kind = "string" if field.get("format") != "date-time" else "timestamp"
        case plain:
            kind = plain
    return kind + _bounds(field)


def _bounds(field: Schema) -> str:
    least, most = field.get("minimum"), field.get("maximum")
    if least is not None and most is not None:
        return f", {least} to {most}" if most < 10**9 else f", at least {least}"
    most = field.get("maxLength") or field.get("maxItems") or field.get("maxProperties")
    unit = {"string": "characters", "array": "entries", "object": "entries"}.get(field["type"])
    return f", at most {most} {unit}" if most and unit else ""


def _default(field: Schema) -> str:
    if "default" not in field or "properties" in field:
        return ""
    value = field["default"]
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _in_table(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _changes() -> list[str]:
    lines = ["Everything may change at any time, but:", ""]
    return [*lines, *(f"- `{rule['fieldPath'][1:]}`: {rule['message']}." for rule in update_rules()), ""]


def _phases() -> list[str]:
    lines = [
        "Exactly one of the conditions Ready, Reconciling and Stalled is True. Halted and BackingOff have the verdict or the",
        "driver's ending for a reason where one lies behind them; a spec that is invalid is Stalled with the reason",
        "SpecInvalid in every phase. A stream that was rolled back (`recovery.onBadUpdate`) is Stalled with the reason",
        "RolledBack, unless it is Halted, Suspended or Completed.",
        "",
        "| Phase | Condition that is True | Reason | What it means |",
        "|---|---|---|---|",
    ]
    lines += [f"| {phase} | {at.holds} | {at.reason} | {at.message} |" for phase, at in STANDINGS.items()]
    return [*lines, ""]


def main() -> int:
    """Write the files, or check them."""
    made = {CRD: crd_text(), CHART: chart_text(), PAGE: page_text(PAGE.read_text().partition(MARK)[0])}
    for kind in KINDS[1:]:
        made |= {kind.crd: crd_text(kind), kind.chart: chart_text(kind)}
    return write_or_check(made, "the models say", "generate_crd")


if __name__ == "__main__":
    sys.exit(main())
