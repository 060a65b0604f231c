"""A user's template merged into the operator's pod: what each way of merging does, and what is refused with which sentence."""

from __future__ import annotations

import contextlib
import copy
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.launch import pod_template
from exactlyonce.launch.pod_template import DRIVER_ROLE, EXECUTOR_ROLE, TemplateRefused, merged

BASE: dict[str, Any] = {
    "metadata": {"labels": {"exactlyonce.dev/attempt": "17"}, "annotations": {"exactlyonce.dev/stream-id": "s"}},
    "spec": {
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "imagePullSecrets": [{"name": "registry"}],
        "containers": [
            {
                "name": "driver",
                "image": "spark:1",
                "env": [{"name": "EXACTLYONCE_SECRETS", "value": "/secrets"}],
                "ports": [{"name": "driver-rpc", "containerPort": 7078}],
                "resources": {"requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"memory": "2Gi"}},
                "volumeMounts": [
                    {"name": "tmp", "mountPath": "/tmp"},
                    {"name": "attempt", "mountPath": "/etc/attempt"},
                ],
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "attempt", "configMap": {"name": "orders-driver-17"}}],
    },
}


def with_template(template: dict[str, Any]) -> dict[str, Any]:
    before = copy.deepcopy(BASE)
    pod = merged(BASE, template, DRIVER_ROLE)
    assert before == BASE, "what is merged into is left as it was"
    return pod


def container(fields: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "driver", **fields}]}}


def driver(pod: dict[str, Any]) -> dict[str, Any]:
    return next(dict(entry) for entry in pod["spec"]["containers"] if entry["name"] == "driver")


@pytest.mark.parametrize("template", [{}, {"metadata": {}, "spec": {}}, {"metadata": None, "spec": None}])
def test_an_empty_template_changes_nothing(template: dict[str, Any]) -> None:
    assert with_template(template) == BASE


@pytest.mark.parametrize("field", ["restartPolicy", "securityContext", "containers", "volumes", "imagePullSecrets"])
def test_null_takes_nothing_away(field: str) -> None:
    assert with_template({"spec": {field: None}}) == BASE
    assert with_template(container({"securityContext": None, "env": None, "image": None})) == BASE


def test_objects_are_merged_field_by_field() -> None:
    template = {
        "metadata": {"labels": {"team": "shop"}},
        "spec": {"securityContext": {"fsGroup": 1000}, "affinity": {"podAntiAffinity": {"x": [1]}}},
    }
    pod = with_template(template)
    assert pod["metadata"]["labels"] == {"exactlyonce.dev/attempt": "17", "team": "shop"}
    assert pod["spec"]["securityContext"] == {**BASE["spec"]["securityContext"], "fsGroup": 1000}
    assert pod["spec"]["affinity"] == {"podAntiAffinity": {"x": [1]}}


def test_containers_are_joined_by_name_and_their_lists_by_theirs() -> None:
    pod = with_template(
        container(
            {
                "env": [{"name": "ZONE", "value": "a"}],
                "ports": [{"containerPort": 9000}, {"containerPort": 7078, "protocol": "TCP"}],
                "volumeMounts": [{"name": "lookup", "mountPath": "/lookup"}],
                "resources": {"limits": {"example.com/gpu": 1, "cpu": "3"}},
            }
        )
    )
    assert [entry["name"] for entry in driver(pod)["env"]] == ["EXACTLYONCE_SECRETS", "ZONE"]
    ports = [{"name": "driver-rpc", "containerPort": 7078, "protocol": "TCP"}, {"containerPort": 9000}]
    assert driver(pod)["ports"] == ports
    assert [entry["mountPath"] for entry in driver(pod)["volumeMounts"]] == ["/tmp", "/etc/attempt", "/lookup"]
    assert driver(pod)["resources"] == {
        "requests": {"cpu": "2", "memory": "2Gi"},
        "limits": {"memory": "2Gi", "example.com/gpu": 1, "cpu": "3"},
    }


def test_a_volume_is_taken_whole_so_that_it_is_not_of_two_kinds() -> None:
    volumes = [
        {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "lookup", "configMap": {"name": "c"}},
    ]
    pod = with_template({"spec": {"volumes": volumes}})
    assert pod["spec"]["volumes"] == [volumes[0], BASE["spec"]["volumes"][1], volumes[1]]


def test_lists_without_names_replace() -> None:
    tolerations = [{"key": "streams", "operator": "Exists"}]
    assert with_template({"spec": {"tolerations": tolerations}})["spec"]["tolerations"] == tolerations


def test_pull_secrets_are_added() -> None:
    pod = with_template({"spec": {"imagePullSecrets": [{"name": "mine"}, {"name": "registry"}]}})
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}, {"name": "mine"}]


def test_a_containers_own_security_is_filled_in_where_it_is_left_open() -> None:
    sidecar = {"name": "forwarder", "image": "f:1", "restartPolicy": "Always", "securityContext": {"runAsUser": 1000}}
    (init,) = with_template({"spec": {"initContainers": [sidecar]}})["spec"]["initContainers"]
    assert init["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsUser": 1000,
    }


def test_an_executor_may_have_containers_beside_it() -> None:
    base = copy.deepcopy(BASE)
    base["spec"]["containers"][0]["name"] = "executor"
    pod = merged(base, {"spec": {"containers": [{"name": "shipper", "image": "s:1"}]}}, EXECUTOR_ROLE)
    assert [entry["name"] for entry in pod["spec"]["containers"]] == ["executor", "shipper"]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("a name", {"metadata": {"name": "x"}}, "metadata.name: only labels and annotations may be given"),
    ("a finalizer", {"metadata": {"finalizers": ["x"]}}, "metadata.finalizers: only labels and annotations"),
    (
        "our label",
        {"metadata": {"labels": {"exactlyonce.dev/attempt": "18"}}},
        "metadata.labels[exactlyonce.dev/attempt]: the operator sets it itself",
    ),
    ("a restart policy", {"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy: an attempt runs once"),
    ("a deadline", {"spec": {"activeDeadlineSeconds": 60}}, "spec.activeDeadlineSeconds: a stream has no end"),
    (
        "a grace period",
        {"spec": {"terminationGracePeriodSeconds": 5}},
        "terminationGracePeriodSeconds: drainTimeout says",
    ),
    ("a service account", {"spec": {"serviceAccountName": "x"}}, "spec.serviceAccountName: driver.serviceAccountName"),
    ("a command", container({"command": ["sh"]}), "containers[driver].command: the operator says what runs here"),
    ("arguments", container({"args": ["x"]}), "containers[driver].args: the operator says what runs here"),
    ("an image", container({"image": "x"}), "containers[driver].image: image says it"),
    ("a message path", container({"terminationMessagePath": "/x"}), "terminationMessagePath: the last message"),
    (
        "our variable",
        container({"env": [{"name": "EXACTLYONCE_SECRETS", "value": "/x"}]}),
        "env[EXACTLYONCE_SECRETS]: the",
    ),
    (
        "memory",
        container({"resources": {"limits": {"memory": "1Gi"}}}),
        "limits.memory: driver.memory and driver.memoryO",
    ),
    ("cores", container({"resources": {"requests": {"cpu": "1"}}}), "requests.cpu: driver.cores says it"),
    (
        "our volume",
        {"spec": {"volumes": [{"name": "attempt", "emptyDir": {}}]}},
        "volumes[attempt]: the operator makes",
    ),
    (
        "our mount",
        container({"volumeMounts": [{"name": "x", "mountPath": "/tmp/"}]}),
        "volumeMounts[/tmp/]: the operator",
    ),
    (
        "a sidecar",
        {"spec": {"containers": [{"name": "side"}]}},
        "containers[side]: a container beside the driver would keep",
    ),
    (
        "root",
        {"spec": {"securityContext": {"runAsUser": 0}}},
        "spec.securityContext.runAsUser: no container runs as root",
    ),
    (
        "no non-root",
        {"spec": {"securityContext": {"runAsNonRoot": False}}},
        "securityContext.runAsNonRoot: no container",
    ),
    (
        "privilege",
        container({"securityContext": {"privileged": True}}),
        "containers[driver].securityContext.privileged",
    ),
    (
        "a host path",
        {"spec": {"volumes": [{"name": "d", "hostPath": {"path": "/"}}]}},
        "volumes[d].hostPath: this kind",
    ),
    (
        "its node's network",
        {"spec": {"hostNetwork": True}},
        "spec.hostNetwork: a pod shares no namespace with its node",
    ),
    ("an unknown part", {"sepc": {}}, "driver.podTemplate.sepc: a pod template has metadata and spec"),
    ("a directive", {"spec": {"$patch": "replace"}}, "spec.$patch: directives of a patch have no meaning"),
    ("a deep directive", {"spec": {"affinity": {"$retainKeys": []}}}, "spec.affinity.$retainKeys: directives"),
    ("text for a spec", {"spec": "x"}, "driver.podTemplate.spec: give an object"),
    ("text for containers", {"spec": {"containers": "x"}}, "spec.containers: give a list"),
    (
        "a container without name",
        {"spec": {"containers": [{"image": "x"}]}},
        "containers[0]: each entry is an object with name",
    ),
    ("a variable without name", container({"env": [{"value": "x"}]}), "env[0]: each entry is an object with name"),
    ("a number for resources", container({"resources": 5}), "containers[driver].resources: give an object"),
    (
        "text for limits",
        container({"resources": {"limits": "cpu"}}),
        "containers[driver].resources.limits: give an object",
    ),
    (
        "a name that is an object",
        {"spec": {"volumes": [{"name": {}}]}},
        "volumes[0]: each entry is an object with name",
    ),
    ("a number for a label", {"metadata": {"labels": {"a": 1}}}, "metadata.labels: give an object of strings"),
]


@pytest.mark.parametrize(("template", "told"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_may_not_be_overridden_is_refused_by_name_with_the_reason(template: dict[str, Any], told: str) -> None:
    with pytest.raises(TemplateRefused) as refused:
        with_template(template)
    assert told in str(refused.value)
    assert str(refused.value).startswith("driver.podTemplate")


ANYTHING: list[Any] = [
    "x",
    5,
    True,
    [],
    ["x"],
    [[]],
    {},
    {"x": "x"},
    {"name": {}},
    [{}],
    [{"name": "driver"}],
    [{"name": []}],
]
FIELDS = [
    "containers", "initContainers", "volumes", "securityContext", "affinity", "tolerations", "nodeSelector", "imagePullSecrets",
]  # fmt: skip
CONTAINER_FIELDS = [
    "env", "ports", "resources", "volumeMounts", "securityContext", "lifecycle", "livenessProbe", "restartPolicy",
]  # fmt: skip
DEEP = [
    "limits",
    "requests",
    "capabilities",
    "seccompProfile",
    "seLinuxOptions",
    "windowsOptions",
    "preStop",
    "httpGet",
    "sysctls",
]


@pytest.mark.parametrize("value", ANYTHING, ids=str)
def test_whatever_a_template_holds_is_merged_or_refused_with_a_sentence(value: Any) -> None:
    """What is left of it that is nonsense, the API server refuses."""
    templates: list[Any] = [value, {"metadata": value}, {"spec": value}, {"metadata": {"labels": value}}]
    templates += [{"spec": {field: value}} for field in FIELDS]
    templates += [container({field: value}) for field in CONTAINER_FIELDS]
    templates += [{"spec": {"initContainers": [{"name": "i", field: value}]}} for field in CONTAINER_FIELDS]
    templates += [container({outer: {field: value}}) for outer in CONTAINER_FIELDS for field in DEEP]
    templates += [container({"securityContext": {"capabilities": {field: value}}}) for field in ("add", "drop")]
    templates += [{"spec": {"securityContext": {field: value}}} for field in DEEP]
    templates += [{"spec": {"securityContext": {field: {"type": value}}}} for field in DEEP]
    for template in templates:
        with contextlib.suppress(TemplateRefused):
            with_template(template)


def test_every_problem_is_told_at_once() -> None:
    template = {"metadata": {"name": "x"}, "spec": {"restartPolicy": "Always", "hostname": "h"}}
    with pytest.raises(TemplateRefused) as refused:
        with_template(template)
    assert len(refused.value.problems) == 3


def test_every_field_that_is_refused_stands_in_the_page_about_pods() -> None:
    page = (Path(__file__).parents[2] / "docs" / "pods.md").read_text()
    fields = {*pod_template._SPEC, *pod_template._SPEC_OF_DRIVER, *pod_template._MAIN_CONTAINER} - {
        "restartPolicyRules"
    }
    assert [name for name in sorted(fields) if f"`{name}`" not in page] == []
