"""What the chart's values say is so in what it renders; and an installation begins with the choice of namespaces."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.control.driver_accounts import driver_account, driver_policy
from scripts.chart_values import CHART
from tests.cluster.charts import Document, Helm, HelmFailed, of_kind, only

ALL_ON: dict[str, Any] = {
    "watch": {"namespaces": ["shop"]},
    "metrics": {
        "serviceMonitor": {"enabled": True, "labels": {"team": "monitoring"}},
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
    },
    "networkPolicy": {"operator": {"enabled": True}, "drivers": {"enabled": True}},
}
READS = {"get", "list", "watch"}
WRITES = READS | {"create", "update", "patch", "delete", "deletecollection"}


@pytest.fixture(scope="module")
def helm(helm_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """helm, without a cluster."""
    return Helm(helm_program, tmp_path_factory.mktemp("helm"))


def install(helm: Helm, *options: str) -> str:
    """What a first `helm install` with these options would make, or the error that it ends with."""
    return helm.run("template", "exactlyonce", str(CHART), *options)


def test_an_installation_that_names_no_namespaces_is_refused_and_told_what_to_set(helm: Helm) -> None:
    with pytest.raises(HelmFailed) as refused:
        install(helm)
    assert "--set 'watch.namespaces={shop,billing}'" in str(refused.value)
    assert "--set watch.allNamespaces=true" in str(refused.value)
    with pytest.raises(HelmFailed, match="set one of the two"):
        install(helm, "--set=watch.allNamespaces=true", "--set=watch.namespaces={shop}")


def test_what_the_refusal_says_to_set_installs(helm: Helm) -> None:
    named = install(helm, "--set", "watch.namespaces={shop,billing}")
    assert 'EXACTLYONCE_OPERATOR_NAMESPACES, value: "shop,billing"' in named
    everywhere = install(helm, "--set", "watch.allNamespaces=true")
    assert "EXACTLYONCE_OPERATOR_NAMESPACES" not in everywhere


def test_common_labels_are_on_everything_that_is_made_and_in_no_selector(helm: Helm) -> None:
    plain, labelled = helm.render(ALL_ON), helm.render({**ALL_ON, "commonLabels": {"team": "streams", "cost": "7"}})
    assert len(plain) == len(labelled) > 15
    for before, after in zip(plain, labelled, strict=True):
        own = before["metadata"].get("labels", {})
        assert after["metadata"]["labels"] == {"team": "streams", "cost": "7", **own}, after["kind"]
        assert before.get("spec", {}).get("selector") == after.get("spec", {}).get("selector")
    pods = only(labelled, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert (pods["team"], pods["cost"]) == ("streams", "7")


def test_labels_of_one_object_win_over_common_ones(helm: Helm) -> None:
    documents = helm.render({**ALL_ON, "commonLabels": {"team": "streams"}, "podLabels": {"team": "operators"}})
    assert only(documents, "Deployment")["spec"]["template"]["metadata"]["labels"]["team"] == "operators"
    assert only(documents, "ServiceMonitor")["metadata"]["labels"]["team"] == "monitoring"


@pytest.mark.parametrize(
    "label", ["app.kubernetes.io/name", "app.kubernetes.io/component", "helm.sh/chart", "app.kubernetes.io/managed-by"]
)
def test_a_common_label_that_the_chart_sets_itself_is_refused(helm: Helm, label: str) -> None:
    with pytest.raises(HelmFailed, match=f"commonLabels: the chart sets {label} itself"):
        helm.render({"commonLabels": {label: "mine"}})


def images(documents: list[Document]) -> tuple[str, str]:
    """The operator's image, and the one that it gives to drivers."""
    (container,) = only(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    given = {entry["name"]: entry.get("value") for entry in container["env"]}
    return container["image"], given["EXACTLYONCE_OPERATOR_IMAGE"]


def test_one_registry_is_put_before_both_images(helm: Helm) -> None:
    assert images(helm.render({"imageRegistry": "registry.example:5000/streams"})) == (
        "registry.example:5000/streams/exactlyonce-operator:0.1.0",
        "registry.example:5000/streams/exactlyonce-spark:0.1.0",
    )
    digest = f"sha256:{'ab' * 32}"
    operator, _ = images(helm.render({"imageRegistry": "registry.example", "image": {"digest": digest}}))
    assert operator == f"registry.example/exactlyonce-operator@{digest}"


def test_two_registries_for_one_image_are_refused(helm: Helm) -> None:
    values = {"imageRegistry": "registry.example", "drivers": {"image": {"repository": "other.example/spark"}}}
    with pytest.raises(HelmFailed, match=r"drivers\.image\.repository: other\.example names a registry"):
        helm.render(values)


def test_security_contexts_and_the_history_are_those_of_the_values(helm: Helm) -> None:
    changed = {
        "podSecurityContext": {"runAsUser": 1001, "fsGroup": 1001},
        "securityContext": {"readOnlyRootFilesystem": None, "runAsGroup": 7},
        "revisionHistoryLimit": 0,
    }
    before, after = (only(helm.render(values), "Deployment")["spec"] for values in ({}, changed))
    restricted = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    container = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert before["template"]["spec"]["securityContext"] == restricted
    assert before["template"]["spec"]["containers"][0]["securityContext"] == container
    assert before["revisionHistoryLimit"] == 10

    assert after["template"]["spec"]["securityContext"] == {**restricted, "runAsUser": 1001, "fsGroup": 1001}
    del container["readOnlyRootFilesystem"]
    assert after["template"]["spec"]["containers"][0]["securityContext"] == {**container, "runAsGroup": 7}
    assert after["revisionHistoryLimit"] == 0


def test_the_account_of_drivers_is_the_same_by_the_chart_and_by_the_command(helm: Helm) -> None:
    documents = helm.render({"watch": {"namespaces": ["shop"]}})
    commanded = [*driver_account("shop", "exactlyonce-driver"), driver_policy("shop", "exactlyonce-driver")]
    for made in map(deepcopy, commanded):
        (charted,) = [
            document
            for document in of_kind(documents, made["kind"])
            if (document["metadata"]["name"], document["metadata"]["namespace"]) == ("exactlyonce-driver", "shop")
        ]
        labels = made["metadata"].pop("labels")
        assert labels.items() <= charted["metadata"].pop("labels").items()
        charted["metadata"].pop("annotations", None)
        assert made == charted


def aggregated(documents: list[Document]) -> dict[str, list[Document]]:
    """The rules that the cluster's own roles are given, by the role."""
    label = "rbac.authorization.k8s.io/aggregate-to-"
    return {
        key.removeprefix(label): role["rules"]
        for role in of_kind(documents, "ClusterRole")
        for key, value in role["metadata"]["labels"].items()
        if key.startswith(label) and value == "true"
    }


def test_view_edit_and_admin_of_the_cluster_are_given_streams_and_nobody_their_status_to_write(helm: Helm) -> None:
    rules = aggregated(helm.render())
    assert set(rules) == {"view", "edit", "admin"}
    for role, verbs in (("view", READS), ("edit", WRITES), ("admin", WRITES)):
        given = [(rule["apiGroups"], rule["resources"], set(rule["verbs"])) for rule in rules[role]]
        assert given == [
            (["exactlyonce.dev"], ["exactlyoncestreams", "streamreplays"], verbs),
            (["exactlyonce.dev"], ["exactlyoncestreams/status", "streamreplays/status"], {"get"}),
        ]
    assert aggregated(helm.render({"rbac": {"aggregate": False}})) == {}
