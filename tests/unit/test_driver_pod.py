"""What an attempt consists of on Kubernetes: golden files, and what holds for every one of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from exactlyonce.api.resource import parse_stream
from exactlyonce.api.spec import StreamSpec
from exactlyonce.launch.driver_document import DriverDocument
from exactlyonce.launch.driver_pod import Manifests, manifests_of
from exactlyonce.launch.pod_names import (
    driver_name,
    executor_prefix,
    label_value,
    labels_of,
    ui_service_name,
    volume_name,
)
from exactlyonce.launch.pod_settings import ImageMissing, PodDefaults, overhead_mib, resolve
from exactlyonce.launch.pod_template import TemplateRefused
from exactlyonce.launch.port import Orders
from exactlyonce.positions.ranges import Epoch
from scripts.make_golden_pods import ATTEMPT, DEFAULTS, GOLDEN, OWNER_UID, cases, made
from tests.resource_documents import FULL, VALID, document

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def manifests(changes: dict[str, Any] | None = None, *, resource: dict[str, Any] | None = None) -> Manifests:
    stream = parse_stream(resource or document(changes or {}), "the test")
    return manifests_of(resolve(stream, ATTEMPT, OWNER_UID, DEFAULTS))


def golden_documents() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for case in cases():
        yield case, list(yaml.safe_load_all((GOLDEN / f"{case}.yaml").read_text()))


def pod_of(documents: list[dict[str, Any]]) -> dict[str, Any]:
    return next(entry for entry in documents if entry["kind"] == "Pod")


@pytest.mark.parametrize("case", cases())
def test_an_attempt_consists_of_what_its_golden_file_says(case: str) -> None:
    """A difference is either a mistake or wanted: then `python scripts/make_golden_pods.py`, and look at it."""
    assert made(case) == (GOLDEN / f"{case}.yaml").read_text()


@pytest.mark.parametrize("name", VALID)
def test_of_every_valid_resource_manifests_can_be_made(name: str) -> None:
    made_of = manifests(resource=document(VALID[name]))
    document_read = DriverDocument.parse(made_of.config_map["data"]["driver.json"])
    assert document_read.kubernetes is not None
    assert document_read.kubernetes.pod_name == made_of.pod["metadata"]["name"]


@pytest.mark.parametrize("case", cases())
def test_everything_goes_with_the_stream(case: str) -> None:
    for manifest in yaml.safe_load_all(made(case)):
        if manifest["kind"] == "Secret":
            continue  # it goes with the ConfigMap, whose uid the API server gives: tests/unit/test_spark_network.py
        (owner,) = manifest["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("ExactlyOnceStream", OWNER_UID, True)


@pytest.mark.parametrize("case", cases())
def test_every_container_reads_secrets_as_files_from_the_folder_it_is_told(case: str) -> None:
    documents = list(yaml.safe_load_all(made(case)))
    executor = yaml.safe_load(
        next(entry for entry in documents if entry["kind"] == "ConfigMap")["data"]["executor.yaml"]
    )
    named = set(re.findall(r"secretName: (\S+)", (GOLDEN / f"{case}.yaml").read_text()))
    assert "warehouse" in named or case == "longest-name"
    for pod, container in ((pod_of(documents), "driver"), (executor, "executor")):
        main = next(entry for entry in pod["spec"]["containers"] if entry["name"] == container)
        folder = next(entry["value"] for entry in main["env"] if entry["name"] == "EXACTLYONCE_SECRETS")
        volumes = {entry["name"]: entry for entry in pod["spec"]["volumes"]}
        mounted = {
            mount["mountPath"]: volumes[mount["name"]]["secret"]["secretName"]
            for mount in main["volumeMounts"]
            if "secret" in volumes[mount["name"]]
        }
        own = pod_of(documents)["metadata"]["name"].replace("-driver-", "-network-")
        if case == "longest-name":
            own = mounted["/etc/exactlyonce/network"]  # a name that is cut has a hash
        assert mounted.pop("/etc/exactlyonce/network") == own
        assert mounted == {f"{folder}/{secret}": secret for secret in named - {own}}


@pytest.mark.parametrize("case", cases())
def test_no_variable_takes_its_value_from_a_secret(case: str) -> None:
    """A variable would show it to whoever may look at the process, and would keep it after it was rotated."""
    assert "secretKeyRef" not in made(case)
    assert "envFrom" not in made(case)


@pytest.mark.parametrize("case", cases())
def test_every_name_and_label_is_one_that_kubernetes_takes(case: str) -> None:
    for manifest in yaml.safe_load_all(made(case)):
        metadata = manifest["metadata"]
        assert DNS_LABEL.fullmatch(metadata["name"]), metadata["name"]
        assert all(LABEL_VALUE.fullmatch(value) for value in metadata["labels"].values())
        for volume in manifest.get("spec", {}).get("volumes", ()):
            assert DNS_LABEL.fullmatch(volume["name"]), volume["name"]


def test_a_config_map_and_a_pod_of_an_attempt_have_its_name_and_the_map_never_changes() -> None:
    made_of = manifests()
    assert made_of.config_map["metadata"]["name"] == made_of.pod["metadata"]["name"] == "orders-driver-17"
    assert made_of.config_map["immutable"] is True


def test_what_is_created_last_is_the_pod_so_that_all_it_needs_is_there() -> None:
    kinds = [entry["kind"] for entry in manifests({"spec.sparkUi": {"enabled": True}}).all()]
    assert kinds == ["Service", "ConfigMap", "Secret", "Pod"]
    assert [entry["kind"] for entry in manifests().all()] == ["ConfigMap", "Secret", "Pod"]


def test_the_grace_period_is_longer_than_the_drain_timeout() -> None:
    assert manifests({"spec.drainTimeout": "90s"}).pod["spec"]["terminationGracePeriodSeconds"] > 90


def test_the_driver_document_holds_what_the_driver_reads_and_is_not_as_by_default() -> None:
    text = manifests(resource=FULL).config_map["data"]["driver.json"]
    spec = json.loads(text)["spec"]
    assert spec["checkpoint"]["s3"]["endpoint"] == "https://s3.example:9000"
    unread = ["podTemplate", "recovery", "drainTimeout", "history", "objectives", "startTimeout", "restartNonce"]
    assert [name for name in unread if name in text] == []
    smallest = json.loads(manifests().config_map["data"]["driver.json"])["spec"]
    assert set(smallest) == {"source", "sink", "checkpoint"}


@pytest.mark.parametrize("name", VALID)
def test_a_driver_reads_the_same_spec_that_the_operator_did(name: str) -> None:
    stream = parse_stream(document(VALID[name]), "the test")
    read = StreamSpec.model_validate(json.loads(json.dumps(stream.spec.differences())))
    assert read == stream.spec


@pytest.mark.parametrize(
    ("heap", "given", "expected"), [(512, None, 384), (4096, None, 1638), (4096, "100Mi", 100), (4096, "1Gi", 1024)]
)
def test_memory_beside_the_heap_is_what_is_given_or_what_python_needs(
    heap: int, given: str | None, expected: int
) -> None:
    assert overhead_mib(heap, given) == expected


def test_an_image_comes_from_the_resource_or_from_the_operator() -> None:
    default = manifests().pod["spec"]
    assert default["containers"][0]["image"] == "exactlyonce-spark:0.1.0"
    assert default["imagePullSecrets"] == [{"name": "operators-registry"}]
    own = manifests({"spec.image": "registry.example/mine:1"}).pod["spec"]
    assert own["containers"][0]["image"] == "registry.example/mine:1"
    assert "imagePullSecrets" not in own, "the operator's login is for the operator's registry"
    assert "imagePullPolicy" not in own["containers"][0]


def test_reconciliation_in_a_pod_comes_after_the_users_init_containers_and_cannot_be_replaced() -> None:
    (pod,) = [entry for entry in yaml.safe_load_all(made("claim-with-containers")) if entry["kind"] == "Pod"]
    assert [entry["name"] for entry in pod["spec"]["initContainers"]] == ["proxy", "reconcile"]
    mine = {"driver": {"podTemplate": {"spec": {"initContainers": [{"name": "reconcile", "image": "mine"}]}}}}
    with pytest.raises(TemplateRefused, match=r"initContainers\[reconcile\]: the operator makes it itself"):
        manifests({f"spec.{key}": value for key, value in mine.items()})


def test_the_reconciliation_in_a_pod_has_every_login_that_a_template_gives_to_the_driver() -> None:
    """A web identity without a webhook: a projected token, and variables that name it."""
    token = {"name": "identity", "mountPath": "/var/run/identity", "readOnly": True}
    variable, more = {"name": "AWS_ROLE_ARN", "value": "arn:aws:iam::1:role/shop"}, {"secretRef": {"name": "more"}}
    template = {
        "spec": {
            "containers": [{"name": "driver", "env": [variable], "envFrom": [more], "volumeMounts": [token]}],
            "volumes": [{"name": "identity", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
        }
    }
    stream = parse_stream(document({"spec.driver.podTemplate": template}), "the test")
    orders = Orders("ticket-1", "{}")
    pod = manifests_of(resolve(stream, Epoch(1), "uid-1", DEFAULTS, orders)).pod["spec"]
    (reconcile,), (driver,) = pod["initContainers"], pod["containers"]
    assert variable in reconcile["env"]
    assert (token in reconcile["volumeMounts"], reconcile["envFrom"]) == (True, [more])
    names = [entry["name"] for entry in driver["env"] if entry not in reconcile["env"]]
    assert names == ["SPARK_LOCAL_DIRS", "EXACTLYONCE_POD_IP"], "what is Spark's own"
    not_shared = [mount["name"] for mount in driver["volumeMounts"] if mount not in reconcile["volumeMounts"]]
    assert not_shared == ["exactlyonce-network"], "the secret of Spark's network"
    assert [mount for mount in reconcile["volumeMounts"] if mount not in driver["volumeMounts"]] == []


def test_a_volume_is_given_to_the_images_group_in_drivers_and_executors() -> None:
    documents = list(yaml.safe_load_all(made("claim")))
    executor = yaml.safe_load(documents[0]["data"]["executor.yaml"])
    for pod in (pod_of(documents), executor):
        assert pod["spec"]["securityContext"]["fsGroup"] == 65532, "the group in the Dockerfile"
    assert "fsGroup" not in manifests().pod["spec"]["securityContext"]


def test_no_image_at_all_is_told() -> None:
    stream = parse_stream(document(), "the test")
    with pytest.raises(ImageMissing, match=r"set spec\.image"):
        resolve(stream, ATTEMPT, OWNER_UID, PodDefaults("driver"))


def test_a_template_that_cannot_be_is_refused_before_anything_is_made() -> None:
    with pytest.raises(TemplateRefused, match=r"executor\.podTemplate\.spec\.hostNetwork"):
        manifests({"spec.executor": {"podTemplate": {"spec": {"hostNetwork": True}}}})


LONG = "a-very-long-name-of-a-stream-that-fills-its-bound"


def test_names_that_differ_stay_different_when_they_are_cut() -> None:
    twins = [f"{LONG[:-1]}{ending}" for ending in "xyz"]
    assert len({executor_prefix(twin, Epoch(123456)) for twin in twins}) == 3
    assert len({volume_name("secret", f"{twin}.{twin}") for twin in twins}) == 3
    assert len({label_value(f"{twin}/{twin}") for twin in twins}) == 3
    assert volume_name("secret", "a.b") != volume_name("secret", "a-b"), "a changed dot too"
    assert label_value("a/b") != label_value("a-b")


@pytest.mark.parametrize("attempt", [1, 999, 12345678])
def test_names_stay_within_the_bounds_of_those_who_use_them(attempt: int) -> None:
    assert len(driver_name(LONG, Epoch(999))) <= 63, "a pod's host name"
    prefix = executor_prefix(LONG, Epoch(attempt))
    assert DNS_LABEL.fullmatch(f"{prefix}-exec-{2**31 - 1}"), "Spark's name for its last executor"
    assert prefix.endswith(f"-{attempt}"), "and one sees whose executor it is"
    assert all(LABEL_VALUE.fullmatch(value) for value in labels_of(LONG, Epoch(attempt), "driver").values())


@pytest.mark.parametrize("stream", ["orders", LONG, "0orders", "or.ders"])
def test_a_services_name_is_a_label_that_starts_with_a_letter(stream: str) -> None:
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", ui_service_name(stream))
