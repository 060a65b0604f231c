"""The alerts against Prometheus' own rule engine (promtool): when they fire, when they do not, and what they say."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import debian
from tests.integration.operator_alert_cases import OPERATOR_CASES
from tests.integration.stream_alert_cases import STREAM_CASES
from tests.unit.test_alerts import ALERTS, RULES

OTHERS = ("returns",)
"""Streams for which a case's alert fires as well."""
CASES = [*STREAM_CASES, *OPERATOR_CASES]


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Debian's promtool; what asks for it is skipped, with the reason, where there is none."""
    try:
        return debian.ensure("prometheus", "usr/bin/promtool") / "usr/bin/promtool"
    except debian.PackageUnavailable as problem:
        pytest.skip(str(problem))


def test_prometheus_takes_the_rules(promtool: Path) -> None:
    ran = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_each_alert_has_a_case_in_which_it_fires_and_a_moment_in_which_it_is_quiet() -> None:
    fires = {case.values[0] for case in CASES if case.values[2] is not None}
    assert fires == {rule["alert"] for rule in ALERTS}


@pytest.fixture(scope="module")
def answers(promtool: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return what promtool says of each case, each with a file of rules of its own; one call, since each takes a second."""
    folder = tmp_path_factory.mktemp("alerts")
    for number, case in enumerate(CASES):
        alert = case.values[0]
        rules = folder / f"rules-{number}.yaml"
        rules.write_text(yaml.safe_dump({"groups": [{"name": alert, "rules": [rule_of(alert)]}]}))
        test = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [asked(*case.values)]}
        (folder / f"case-{number}.yaml").write_text(yaml.safe_dump(test))
    files = [str(folder / f"case-{number}.yaml") for number in range(len(CASES))]
    command: list[str | Path] = [promtool, "test", "rules", *files]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    said = dict(re.findall(r"^Unit Testing:\s+(\S+)\n(.*?)(?=^Unit Testing:|\Z)", ran.stdout, re.M | re.S))
    return [said[file] for file in files]


@pytest.mark.parametrize("case", [pytest.param(number, id=case.id) for number, case in enumerate(CASES)])
def test_an_alert_fires_when_it_should_and_says_what_is_so(answers: list[str], case: int) -> None:
    assert answers[case].split() == ["SUCCESS"], answers[case]


def asked(alert: str, inputs: list[dict[str, str]], fires_at: str | None, quiet_at: str, said: str) -> dict[str, Any]:
    """Return a case as promtool takes it: a moment at which the alert is quiet and one at which it fires, if it does."""
    moments: list[dict[str, Any]] = [{"eval_time": quiet_at, "alertname": alert, "exp_alerts": []}]
    if fires_at is not None:
        others = [stream for stream in OTHERS if any(f'stream="{stream}"' in one["series"] for one in inputs)]
        alerts = [
            expected(alert, said.replace("/orders", f"/{stream}"), inputs, stream) for stream in ("orders", *others)
        ]
        moments.append({"eval_time": fires_at, "alertname": alert, "exp_alerts": alerts})
    return {"interval": "1m", "input_series": inputs, "alert_rule_test": moments}


def rule_of(alert: str) -> dict[str, Any]:
    """The rule of an alert, as a cluster without the chart loads it."""
    return next(rule for rule in ALERTS if rule["alert"] == alert)


def expected(alert: str, said: str, inputs: list[dict[str, str]], stream: str) -> dict[str, Any]:
    """An alert with the labels of its stream, instance or store, and the sentence; the rest is taken from the file."""
    rule = rule_of(alert)
    labels = {"severity": rule["labels"]["severity"]}
    if 'stream="orders"' in inputs[0]["series"]:
        labels |= {"namespace": "shop", "stream": stream}
        into = re.search(r'into="([^"]*)"', inputs[0]["series"])
        labels |= {} if into is None else {"into": into[1]}
        labels |= {"replay": "mend"} if 'replay="mend"' in inputs[0]["series"] else {}
    elif alert == "ExactlyOnceOperatorStuck":
        labels["instance"] = "a"
    elif alert == "ExactlyOnceStoreErrors":
        labels["store"] = "kafka"
    elif alert == "ExactlyOnceShardWithoutLeader":
        labels["lease"] = "ops/second"
    told = {
        key: value.replace("{{ $labels.namespace }}", "shop")
        .replace("{{ $labels.stream }}", stream)
        .replace("{{ $labels.replay }}", "mend")
        for key, value in rule["annotations"].items()
    }
    return {"exp_labels": labels, "exp_annotations": {**told, "summary": said}}
