"""The chart as it renders: values refused by a sentence, rights counted by hand, and what a real API server says of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.control.settings import PREFIX, OperatorSettings, read_settings
from exactlyonce.schema.places import S3Place
from scripts.chart_values import CHART
from testbed.cluster import Cluster, KubectlFailed
from tests.cluster.charts import EXAMPLES, Document, Grant, Helm, HelmFailed, example, grants, of_kind, only, values_of
from tests.cluster.pods import apply

OPERATOR, DRIVER = "exactlyonce-operator", "exactlyonce-driver"

IN_ITS_NAMESPACES = {
    "exactlyoncestreams.exactlyonce.dev": {"get", "list", "watch", "update"},
    "exactlyoncestreams/status.exactlyonce.dev": {"update"},
    "streamreplays.exactlyonce.dev": {"create", "list", "watch", "delete"},
    "streamreplays/status.exactlyonce.dev": {"update"},
    "pods": {"create", "get", "list", "watch", "patch", "delete"},
    "configmaps": {"create", "get", "list", "delete"},
    "services": {"create", "get", "delete"},
    "secrets": {"get", "create"},
    "events": {"create", "get", "patch"},
}
"""What the operator does with streams, counted from the code: operator/exactlyonce/control and launch."""

LEASE = {
    Grant("eo", "leases.coordination.k8s.io", "create"),
    Grant("eo", "leases.coordination.k8s.io", "get", OPERATOR),
    Grant("eo", "leases.coordination.k8s.io", "update", OPERATOR),
}
CLUSTER_ID = {Grant(None, "namespaces", "get", "kube-system")}
NODES = {Grant(None, "nodes", "get")}
OF_A_DRIVER = {"create", "get", "list", "watch", "patch", "delete", "deletecollection"}

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"replicasCount": 3}, "additional properties 'replicasCount' not allowed"),
    ({"replicas": "two"}, "at '/replicas': got string, want integer"),
    ({"watch": {"namespace": ["shop"]}}, "at '/watch': additional properties 'namespace' not allowed"),
    ({"watch": {"namespaces": "shop"}}, "at '/watch/namespaces': got string, want array"),
    ({"watch": {"namespaces": ["Shop"]}}, "at '/watch/namespaces/0': 'Shop' does not match pattern"),
    ({"watch": {"selector": "shard in {a}"}}, "at '/watch/selector': 'shard in {a}' does not match pattern"),
    ({"secrets": {"names": ["a", "a"]}}, "at '/secrets/names': items at 0 and 1 are equal"),
    (
        {"checkpoints": {"locations": [{"namespaces": ["a*b"], "prefixes": ["s3a://lake"]}]}},
        "at '/checkpoints/locations/0/namespaces/0': 'a*b' does not match pattern",
    ),
    (
        {"checkpoints": {"locations": [{"namespaces": ["shop"], "prefixes": ["s3a://{namespace}/checkpoints"]}]}},
        "at '/checkpoints/locations/0/prefixes/0': 's3a://{namespace}/checkpoints' does not match pattern",
    ),
    (
        {"checkpoints": {"locations": [{"namespaces": ["shop"]}]}},
        "at '/checkpoints/locations/0': missing property 'prefixes'",
    ),
    (
        {
            "sources": {
                "locations": [{"namespaces": ["shop"], "names": ["arn:aws:kinesis:eu-central-1:1:stream/orders"]}]
            }
        },
        "at '/sources/locations/0/names/0': 'arn:aws:kinesis:eu-central-1:1:stream/orders' does not match pattern",
    ),
    (
        {"sources": {"locations": [{"namespaces": ["shop"], "names": ["dynamodb://eu-central-1/{namespace}-*"]}]}},
        "at '/sources/locations/0/names/0': 'dynamodb://eu-central-1/{namespace}-*' does not match pattern",
    ),
    ({"lease": {"seconds": 2}}, "at '/lease/seconds': minimum: got 2, want 5"),
    ({"workers": 0}, "at '/workers': minimum: got 0, want 1"),
    ({"logFormat": "xml"}, "at '/logFormat': value must be one of 'json', 'text'"),
    (
        {"drivers": {"allowlists": [{"namespaces": ["shop"], "images": ["registry.example*"]}]}},
        "at '/drivers/allowlists/0/images/0': 'registry.example*' does not match pattern",
    ),
    ({"image": {"digest": "sha256:12"}}, "at '/image/digest': 'sha256:12' does not match pattern"),
    ({"image": {"pullPolicy": "never"}}, "at '/image/pullPolicy': value must be one of"),
    ({"imagePullSecrets": ["registry"]}, "at '/imagePullSecrets/0': got string, want object"),
    ({"healthPort": 80}, "at '/healthPort': minimum: got 80"),
    ({"podLabels": {"team": 7}}, "at '/podLabels/team': got number, want string"),
    ({"networkPolicy": {"operator": {"ingress": []}}}, "additional properties 'ingress' not allowed"),
    ({"serviceAccount": {"create": False}}, "serviceAccount.name: name the account that is there"),
    (
        {"watch": {"namespaces": ["shop"]}, "drivers": {"namespaces": ["billing"]}},
        "drivers.namespaces: no stream of billing is watched; add it to watch.namespaces",
    ),
    (
        {"extraEnv": [{"name": "EXACTLYONCE_OPERATOR_WORKERS", "value": "3"}]},
        "extraEnv: EXACTLYONCE_OPERATOR_WORKERS is set by a value of the chart; use that one",
    ),
    (
        {"podLabels": {"app.kubernetes.io/name": "mine"}},
        "podLabels: by app.kubernetes.io/name the Deployment finds its pods; choose another label",
    ),
]


every_example = pytest.mark.parametrize(
    "values", [{}, *map(values_of, EXAMPLES)], ids=["defaults", *(path.stem for path in EXAMPLES)]
)


@pytest.fixture(scope="module")
def helm(helm_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """helm, without a cluster."""
    return Helm(helm_program, tmp_path_factory.mktemp("helm"))


@every_example
def test_helm_finds_nothing_to_say_and_nothing_is_made_twice(helm: Helm, values: dict[str, Any]) -> None:
    said = helm.run("lint", "--strict", str(CHART), values=values)
    assert "0 chart(s) failed" in said
    assert [line for line in said.splitlines() if line.startswith(("[WARNING]", "[ERROR]"))] == []
    made = [
        (document["kind"], document["metadata"].get("namespace"), document["metadata"]["name"])
        for document in helm.render(values)
    ]
    assert len(made) == len(set(made))


@pytest.mark.parametrize(
    ("values", "sentence"), WRONG, ids=lambda given: None if isinstance(given, str) else str(given)[:60]
)
def test_a_wrong_value_is_refused_and_named(helm: Helm, values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(HelmFailed) as refused:
        helm.render(values)
    assert sentence in str(refused.value)


def test_in_named_namespaces_the_operator_has_these_rights_and_no_other(helm: Helm) -> None:
    documents = helm.render(example("two-namespaces"))
    named = {"warehouse", "lake", "kafka-client"}
    expected = {
        Grant(namespace, resource, verb, name)
        for namespace in ("shop", "billing")
        for resource, verbs in IN_ITS_NAMESPACES.items()
        for verb in verbs
        for name in (named if (resource, verb) == ("secrets", "get") else {None})
    }
    assert grants(documents, OPERATOR, "eo") == expected | LEASE | CLUSTER_ID, "of nodes it shall know nothing here"


def test_in_all_namespaces_the_operator_has_the_same_rights_everywhere_and_no_other(helm: Helm) -> None:
    everywhere = {Grant(None, resource, verb) for resource, verbs in IN_ITS_NAMESPACES.items() for verb in verbs}
    assert grants(helm.render(), OPERATOR, "eo") == everywhere | LEASE | CLUSTER_ID | NODES


def test_a_driver_may_do_with_pods_of_its_namespace_what_sparks_scheduler_does_and_nothing_else(helm: Helm) -> None:
    documents = helm.render(example("two-namespaces"))
    for namespace in ("shop", "billing"):
        assert grants(documents, DRIVER, namespace) == {Grant(namespace, "pods", verb) for verb in OF_A_DRIVER}
    everywhere = helm.render()
    (given,) = [role for role in of_kind(everywhere, "ClusterRole") if role["metadata"]["name"].endswith(":drivers")]
    assert given["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": given["rules"][0]["verbs"]}]
    assert set(given["rules"][0]["verbs"]) == OF_A_DRIVER
    bound = [binding["roleRef"]["name"] for binding in everywhere if binding["kind"].endswith("Binding")]
    assert [name for name in bound if name.endswith(":drivers")] == [], "it is for others to bind, in their namespaces"


@every_example
def test_no_role_has_a_wildcard_and_only_its_own_accounts_are_bound(helm: Helm, values: dict[str, Any]) -> None:
    documents = helm.render(values)
    for role in [*of_kind(documents, "Role"), *of_kind(documents, "ClusterRole")]:
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]], role["metadata"]["name"]
            assert rule["verbs"], "a rule that allows nothing is a mistake"
            assert set(rule["verbs"]) & {"impersonate", "bind", "escalate"} == set()
            if "secrets" in rule["resources"]:
                assert rule["resources"] == ["secrets"]
                assert rule["verbs"] in (["get"], ["create"]), "a rule of its own: RBAC cannot name what is created"
                assert rule["verbs"] == ["get"] or "resourceNames" not in rule
    for binding in [*of_kind(documents, "RoleBinding"), *of_kind(documents, "ClusterRoleBinding")]:
        for subject in binding["subjects"]:
            accounts = {
                (account["metadata"]["name"], account["metadata"]["namespace"])
                for account in of_kind(documents, "ServiceAccount")
            }
            assert (subject["kind"], (subject["name"], subject["namespace"]) in accounts) == ("ServiceAccount", True)


def test_two_releases_take_nothing_from_each_other(helm: Helm) -> None:
    def names(documents: list[Document]) -> set[tuple[str, str | None, str]]:
        return {
            (document["kind"], document["metadata"].get("namespace"), document["metadata"]["name"])
            for document in documents
        }

    first = names(helm.render({"watch": {"namespaces": ["shop"], "selector": "!shard"}}))
    assert first & names(helm.render(example("shard"))) == set(), "two shards of one namespace"
    second = {"watch": {"namespaces": ["billing"]}, "crds": {"install": False}}
    assert first & names(helm.render(second, namespace="elsewhere")) == set(), "releases of one name in two namespaces"


def test_who_acts_is_settled_by_a_lease_of_the_release(helm: Helm) -> None:
    shards = [helm.render({}), helm.render(example("shard"))]
    leases = [environment(documents)[f"{PREFIX}LEASE_NAME"] for documents in shards]
    assert leases == [OPERATOR, "exactlyonce-shard-b"]
    for documents, lease in zip(shards, leases, strict=True):
        account = only(documents, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
        allowed = {grant for grant in grants(documents, account, "eo") if grant.resource.startswith("leases")}
        assert {(grant.verb, grant.name) for grant in allowed} == {("create", None), ("get", lease), ("update", lease)}


def environment(documents: list[Document]) -> dict[str, str]:
    """The plain variables of the operator's container."""
    (container,) = only(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Reads the operator's settings from an environment."""

    def read(variables: dict[str, str]) -> OperatorSettings:
        with monkeypatch.context() as context:
            for name, value in variables.items():
                context.setenv(name, value)
            return read_settings([])

    return read


def test_the_operator_reads_what_the_values_say(helm: Helm, settings_of: Any) -> None:
    values = {
        **example("locked-down"),
        **example("all-namespaces"),
        "watch": {"namespaces": ["shop", "billing"], "selector": "a=b"},
    }
    values["drivers"] = {**example("locked-down")["drivers"], "serviceAccount": {"name": "spark"}}
    values |= {"healthPort": 9999, "lease": {"name": "turns", "seconds": 30}}
    values["metrics"] = {"intervalSeconds": 60, "partitionSeries": True}
    variables = environment(helm.render(values))
    read = settings_of(variables)
    assert (read.namespaces, read.selector, read.workers, read.log_format) == (("shop", "billing"), "a=b", 20, "text")
    assert (read.lease_name, read.lease_times.duration_seconds, read.health_port) == ("turns", 30, 9999)
    assert (read.defaults.service_account, read.defaults.image.name) == (
        "spark",
        "registry.example/streams/exactlyonce-spark:0.1.0-r3",
    )
    assert (read.defaults.image.pull_policy, read.defaults.image.pull_secrets) == ("Always", ("registry",))
    assert [entry.images for entry in read.allowlists.entries] == [("registry.example/streams/*",)]
    assert [entry.node_names for entry in read.allowlists.entries] == [()], "an empty list is not one that is left out"
    assert (read.monitor_seconds, read.partition_series) == (60, True)
    own, others = (S3Place(location=f"s3a://lake/checkpoints/{folder}/orders") for folder in ("shop", "billing"))
    assert (read.locations.allow("shop", own), read.locations.allow("shop", others)) == (True, False)
    assert not settings_of(environment(helm.render())).locations.allow("shop", own), "nothing by default"
    for name in variables:
        if name.startswith(PREFIX):
            without = {key: value for key, value in variables.items() if key != name}
            assert settings_of(without) != read, f"{name} is read by nobody"


def test_every_option_of_the_operator_can_be_set_by_a_value(helm: Helm, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings(["--help"])
    options = set(re.findall(r"^  --([a-z-]+) VALUE", capsys.readouterr().out, re.MULTILINE))
    assert "lease-name" in options
    values = {**example("locked-down"), "watch": {"namespaces": ["shop"], "selector": "a=b"}}
    (container,) = only(helm.render(values), "Deployment")["spec"]["template"]["spec"]["containers"]
    given = {entry["name"].removeprefix(PREFIX) for entry in container["env"] if entry["name"].startswith(PREFIX)}
    assert given == {option.upper().replace("-", "_") for option in options}


def test_pods_are_found_by_who_looks_for_them(helm: Helm) -> None:
    documents = helm.render({**example("locked-down"), "healthPort": 9999})
    deployment = only(documents, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": 9999}]
    for selector in (
        deployment["spec"]["selector"]["matchLabels"],
        only(documents, "Service")["spec"]["selector"],
        only(documents, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
        other = {**labels, "app.kubernetes.io/instance": "another-release"}
        assert not selector.items() <= other.items()


def test_one_replica_has_no_disruption_budget_that_would_hold_up_a_drain(helm: Helm) -> None:
    assert of_kind(helm.render({"replicas": 1}), "PodDisruptionBudget") == []
    assert only(helm.render({"replicas": 2}), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


@pytest.fixture(scope="module")
def shops(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, with the namespaces that examples name; they admit restricted pods only."""
    names = ("eo", "shop", "billing")
    for name in names:
        cluster.kubectl("create", "namespace", name)
        cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    yield cluster
    cluster.kubectl("delete", "namespace", *names, "--wait=false")


@every_example
def test_a_real_api_server_takes_every_manifest_and_admits_the_pods(
    helm: Helm, shops: Cluster, values: dict[str, Any]
) -> None:
    documents = helm.render(values)
    asked = ["apply", "--server-side", "--force-conflicts", "--validate=strict", "--filename=-", "--output=name"]
    everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    taken = shops.kubectl(*asked, "--dry-run=server", stdin=everything).split()
    assert len(taken) == len(documents)

    pod = only(documents, "Deployment")["spec"]["template"]
    account = next(
        entry
        for entry in of_kind(documents, "ServiceAccount")
        if entry["metadata"]["name"] == pod["spec"]["serviceAccountName"]
    )
    apply(shops, "eo", account)
    whole = {
        "apiVersion": "v1",
        "kind": "Pod",
        **pod,
        "metadata": {**pod["metadata"], "name": "operator", "namespace": "eo"},
    }
    assert admitted(shops, whole) is None
    whole["spec"]["securityContext"].pop("seccompProfile")
    refused = admitted(shops, whole)
    assert refused is not None
    assert 'violates PodSecurity "restricted' in refused, "the namespace does look at it"


def admitted(cluster: Cluster, pod: Document) -> str | None:
    """What the API server says against a pod, or None."""
    try:
        cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=json.dumps(pod))
    except KubectlFailed as problem:
        return str(problem)
    return None
