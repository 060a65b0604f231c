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


IN_SHOP = {"watch": {"namespaces": ["shop"]}}
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
    by_default = of_kind(helm.render(IN_SHOP), "NetworkPolicy")
    for place in (operator, *spark.values()):
        assert may_leave(by_default, place, 5432)
        assert not may_leave(policies, place, 5432)
    assert may_connect(by_default, MONITORING, operator, 8080), "metrics are for the cluster by default"
    assert not may_connect(by_default, MONITORING, spark["driver"], 4040)


def test_an_empty_list_of_peers_is_nobody(helm: Helm, operator: Place) -> None:
    closed = of_kind(helm.render({"networkPolicy": {"operator": {"from": [], "egress": []}}}), "NetworkPolicy")
    assert not may_connect(closed, MONITORING, operator, 8080)
    assert not may_leave(closed, operator, 443)


def test_nobody_has_to_choose_them_for_sparks_own_ports_to_be_closed_to_others(
    helm: Helm, operator: Place, spark: dict[str, Place]
) -> None:
    by_default = of_kind(helm.render(IN_SHOP), "NetworkPolicy")
    for target in spark.values():
        for port in (7078, 7079, 4040):
            assert not may_connect(by_default, STRANGER, target, port)
        assert may_connect(by_default, spark["executor"], target, 7079)
    assert may_connect(by_default, spark["executor"], spark["driver"], 7078)
    assert may_connect(by_default, MONITORING, spark["driver"], 7080), "metrics are for the cluster by default"
    assert not may_connect(by_default, STRANGER, operator, 9999)


def test_a_release_that_leaves_drivers_to_another_leaves_their_policy_to_it_too(helm: Helm) -> None:
    """Both would have one name, and helm refuses to install the second."""
    of_shard = of_kind(helm.render(example("shard")), "NetworkPolicy")
    assert [policy["metadata"]["namespace"] for policy in of_shard] == ["eo"], "the operator's own alone"


def test_who_does_not_want_them_has_none(helm: Helm) -> None:
    off = {"networkPolicy": {"operator": {"enabled": False}, "drivers": {"enabled": False}}}
    assert of_kind(helm.render({**IN_SHOP, **off}), "NetworkPolicy") == []


def test_the_notes_do_not_pretend_that_they_are_enforced(helm: Helm) -> None:
    said = "Nothing here can tell whether this cluster's network plugin enforces them"
    shown = ("install", "it", str(CHART), "--dry-run=client", "--namespace=eo")
    assert said in helm.run(*shown, values=IN_SHOP)
