"""The chart's NetworkPolicies as rendered, evaluated by Kubernetes' rules: the test cluster does not enforce them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from scripts.chart_values import CHART
from tests.cluster.charts import Document, Helm, example, of_kind, only
from tests.cluster.network_policies import Place, may_connect, may_leave

GOLDEN_PODS = CHART.parents[1] / "tests" / "golden" / "driver_pods"


@pytest.fixture(scope="module")
def helm(helm_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """helm, without a cluster."""
    return Helm(helm_program, tmp_path_factory.mktemp("helm"))


MONITORING = Place("monitoring", {"app": "prometheus"})
STRANGER = Place("shop", {"app": "web"})


@pytest.fixture(scope="module")
def policies(helm: Helm) -> list[Document]:
    return of_kind(helm.render(example("locked-down")), "NetworkPolicy")


@pytest.fixture(scope="module")
def operator(helm: Helm) -> Place:
    pod = only(helm.render(example("locked-down")), "Deployment")["spec"]["template"]
    return Place("eo", pod["metadata"]["labels"])


@pytest.fixture(scope="module")
def spark() -> dict[str, Place]:
    """The pods that the operator really makes: driver and executor of a golden file, and the ports that they name."""
    made = list(yaml.safe_load_all((GOLDEN_PODS / "everything.yaml").read_text()))
    driver = only(made, "Pod")
    executor = yaml.safe_load(only(made, "ConfigMap")["data"]["executor.yaml"])
    return {
        "driver": Place("shop", driver["metadata"]["labels"]),
        "executor": Place("shop", executor["metadata"]["labels"]),
    }


def test_metrics_are_read_by_who_is_named_and_nothing_else_is_reached(
    policies: list[Document], operator: Place
) -> None:
    assert may_connect(policies, MONITORING, operator, 8080)
    assert not may_connect(policies, MONITORING, operator, 8081)
    assert not may_connect(policies, STRANGER, operator, 8080)


def test_driver_and_executors_reach_each_other_on_sparks_ports(
    policies: list[Document], spark: dict[str, Place]
) -> None:
    assert may_connect(policies, spark["executor"], spark["driver"], 7078)
    for source in spark.values():
        for target in spark.values():
            assert may_connect(policies, source, target, 7079)
            assert not may_connect(policies, source, target, 22)


def test_nobody_else_reaches_them_but_who_may_see_the_user_interface(
    policies: list[Document], spark: dict[str, Place], operator: Place
) -> None:
    elsewhere = Place("billing", spark["executor"].labels)
    for target in spark.values():
        for source in (STRANGER, MONITORING, elsewhere, operator):
            assert not may_connect(policies, source, target, 7078)
            assert not may_connect(policies, source, target, 7079)
    for port in (4040, 7080):
        assert may_connect(policies, MONITORING, spark["driver"], port)
        assert not may_connect(policies, STRANGER, spark["driver"], port)


def test_the_ports_are_those_that_the_driver_opens(policies: list[Document]) -> None:
    made = list(yaml.safe_load_all((GOLDEN_PODS / "everything.yaml").read_text()))
    opened = {
        port["containerPort"]
        for container in only(made, "Pod")["spec"]["containers"]
        for port in container.get("ports", [])
        if container["name"] == "driver"
    }
    (policy,) = [entry for entry in policies if entry["metadata"]["name"] == "exactlyonce-driver"]
    assert {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]} == opened


def test_where_they_may_go_is_open_unless_it_is_said(
    helm: Helm, operator: Place, spark: dict[str, Place], policies: list[Document]
) -> None:
    values = {
        "watch": {"namespaces": ["shop"]},
        "networkPolicy": {"operator": {"enabled": True}, "drivers": {"enabled": True}},
    }
    by_default = of_kind(helm.render(values), "NetworkPolicy")
    for place in (operator, *spark.values()):
        assert may_leave(by_default, place, 5432)
        assert not may_leave(policies, place, 5432)
    assert may_connect(by_default, MONITORING, operator, 8080), "metrics are for the cluster by default"
    assert not may_connect(by_default, MONITORING, spark["driver"], 4040)


def test_an_empty_list_of_peers_is_nobody(helm: Helm, operator: Place) -> None:
    closed = of_kind(
        helm.render({"networkPolicy": {"operator": {"enabled": True, "from": [], "egress": []}}}), "NetworkPolicy"
    )
    assert not may_connect(closed, MONITORING, operator, 8080)
    assert not may_leave(closed, operator, 443)


def test_without_a_choice_there_are_none(helm: Helm) -> None:
    assert of_kind(helm.render(), "NetworkPolicy") == []
