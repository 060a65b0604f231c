"""Spark's own network: every attempt has a secret of its own, which stands in no manifest, argument, variable or setting."""

from __future__ import annotations

import base64
import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from exactlyonce import crash_points
from exactlyonce.api.resource import parse_stream
from exactlyonce.launch import kubernetes
from exactlyonce.launch.api_server import CONFLICT, FORBIDDEN, Answered, ApiServer, ApiServerUnreachable
from exactlyonce.launch.driver_document import DriverDocument
from exactlyonce.launch.driver_pod import Manifests, manifests_of
from exactlyonce.launch.kubernetes import KubernetesLauncher
from exactlyonce.launch.pod_settings import resolve
from exactlyonce.launch.port import Gone, LaunchFailed, NeverStarted, NotCreated
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark.executor import executor_command
from exactlyonce_spark.session import session_settings
from exactlyonce_spark.settings import DriverSpec
from scripts.make_golden_pods import DEFAULTS, OWNER_UID
from tests.resource_documents import document
from tests.unit.test_executor import ENVIRONMENT
from tests.unit.test_spark_settings import JARS, POD, here, in_a_pod

FIRST, SECOND = Epoch(1), Epoch(2)


def made(attempt: Epoch = FIRST) -> Manifests:
    return manifests_of(resolve(parse_stream(document({}), "the test"), attempt, OWNER_UID, DEFAULTS))


@dataclass
class Server:
    """An API server that keeps what it is given, and takes along what only a deleted object owned."""

    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    _uids: itertools.count[int] = field(default_factory=itertools.count)

    def read(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """Return an object."""
        if kind in self.unreadable:
            raise Answered(FORBIDDEN, f"{kind} is forbidden")
        return self.objects.get((kind, name))

    def create(self, manifest: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """Create an object and return it as it stands; a dry run is answered in the same way and creates nothing."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if kind in self.refused:
            raise Answered(self.refused[kind], f"{kind} is refused")
        if (kind, name) in self.objects:
            raise Answered(CONFLICT, "it exists")
        found: dict[str, Any] = json.loads(json.dumps(manifest))
        found["metadata"]["uid"] = f"uid-{next(self._uids)}"
        if dry_run:
            assert kind != "Secret" or "data" not in manifest, "no content is drawn for a question"
        else:
            self.objects[kind, name] = found
        return found

    def delete(self, found: dict[str, Any], kind: str, grace_seconds: int | None = None) -> None:
        """Delete an object with what it owns, as the garbage collector does."""
        del self.objects[kind, found["metadata"]["name"]]
        for key, other in list(self.objects.items()):
            owners = [owner["uid"] for owner in other["metadata"].get("ownerReferences", ())]
            if owners == [found["metadata"]["uid"]]:
                del self.objects[key]

    @property
    def secrets(self) -> list[dict[str, Any]]:
        """Every secret that there is."""
        return [found for (kind, _), found in self.objects.items() if kind == "Secret"]


def launcher(server: Server) -> KubernetesLauncher:
    return KubernetesLauncher(
        cast(ApiServer, server), "shop", "orders", OWNER_UID, lambda attempt, orders: made(attempt)
    )


def content(secret: dict[str, Any]) -> bytes:
    ((_, value),) = secret["data"].items()
    return base64.b64decode(value)


def test_each_attempt_has_a_secret_of_its_own_of_256_bits_that_never_changes_and_goes_with_its_config_map() -> None:
    server = Server()
    launcher(server).start(FIRST)
    launcher(server).start(SECOND)
    one, other = server.secrets
    assert len(bytes.fromhex(content(one).decode())) == 32
    assert content(one) != content(other)
    assert one["immutable"] is True
    config_map = server.objects["ConfigMap", "orders-driver-1"]
    (owner,) = one["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("ConfigMap", config_map["metadata"]["uid"])
    assert "blockOwnerDeletion" not in owner
    server.delete(config_map, "ConfigMap")
    assert server.secrets == [other]


def test_driver_and_executors_mount_the_secret_and_nothing_else_holds_it() -> None:
    server = Server()
    launcher(server).start(FIRST)
    (secret,) = server.secrets
    config_map, pod = server.objects["ConfigMap", "orders-driver-1"], server.objects["Pod", "orders-driver-1"]
    executor = yaml.safe_load(config_map["data"]["executor.yaml"])
    place = DriverDocument.parse(config_map["data"]["driver.json"]).kubernetes
    assert place is not None
    for of, container in ((pod, "driver"), (executor, "executor")):
        (volume,) = [
            volume
            for volume in of["spec"]["volumes"]
            if volume.get("secret", {}).get("secretName") == secret["metadata"]["name"]
        ]
        (main,) = [entry for entry in of["spec"]["containers"] if entry["name"] == container]
        (mount,) = [mount for mount in main["volumeMounts"] if mount["name"] == volume["name"]]
        assert mount["readOnly"] is True
        assert place.network_secret_file == f"{mount['mountPath']}/{next(iter(secret['data']))}"
    shown = json.dumps([found for found in server.objects.values() if found["kind"] != "Secret"])
    for form in (content(secret).decode(), base64.b64encode(content(secret)).decode()):
        assert form not in shown


def test_the_reconciliation_in_the_pod_has_no_use_of_the_secret_and_does_not_get_it() -> None:
    golden = Path(__file__).parents[1] / "golden" / "driver_pods" / "claim.yaml"
    (pod,) = [entry for entry in yaml.safe_load_all(golden.read_text()) if entry["kind"] == "Pod"]
    (reconcile,) = pod["spec"]["initContainers"]
    assert "/etc/exactlyonce/network" not in [mount["mountPath"] for mount in reconcile["volumeMounts"]]


def test_a_second_start_of_the_same_attempt_keeps_its_secret() -> None:
    server = Server()
    launcher(server).start(FIRST)
    before = content(server.secrets[0])
    launcher(server).start(FIRST)
    assert [content(found) for found in server.secrets] == [before]


class _DiedError(Exception):
    """The process is gone."""


@pytest.mark.parametrize("point", ["start.config-map-created", "start.network-secret-created"])
def test_who_dies_before_the_pod_leaves_an_attempt_that_never_ran_and_the_next_has_another_secret(
    point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()

    def die(reached: str, *_: str) -> None:
        if reached == point:
            raise _DiedError

    assert point in crash_points.POINTS
    with monkeypatch.context() as patched:
        patched.setattr(kubernetes, "reached", die)
        with pytest.raises(_DiedError):
            launcher(server).start(FIRST)
    left = [content(found) for found in server.secrets]
    assert isinstance(launcher(server).state_of(FIRST), Gone), "it counts as an attempt, and nothing ran in it"
    launcher(server).start(FIRST)
    launcher(server).start(SECOND)
    held = [content(found) for found in server.secrets]
    assert len(set(held)) == 2
    assert held[: len(left)] == left, "what was made is kept to by who makes the same attempt again"


@pytest.mark.parametrize("kind", ["Secret", "Pod"])
def test_what_is_refused_leaves_nothing_behind_and_no_secret_is_told(kind: str) -> None:
    server = Server(refused={kind: FORBIDDEN})
    with pytest.raises(LaunchFailed, match=f"{kind} shop/orders-.*-1 cannot be created: {kind} is refused"):
        launcher(server).start(FIRST)
    assert server.objects == {}
    assert isinstance(launcher(server).state_of(FIRST), NeverStarted)


def test_an_operator_without_the_right_to_create_secrets_is_told_before_an_attempt_is_recorded() -> None:
    """After an upgrade where somebody else gives the operator its rights."""
    server = Server(refused={"Secret": FORBIDDEN})
    with pytest.raises(NotCreated, match="Secret shop/orders-network-1 cannot be created: Secret is refused"):
        launcher(server).rehearse(FIRST)
    server.refused.clear()
    launcher(server).rehearse(FIRST)
    assert server.objects == {}


@pytest.mark.parametrize("owners", [[], [{"kind": "ConfigMap", "name": "orders-driver-1", "uid": "of-another-life"}]])
def test_a_secret_of_its_name_that_another_made_is_never_used(owners: list[dict[str, str]]) -> None:
    (ours,) = [found for found in made().all() if found["kind"] == "Secret"]
    theirs = {"metadata": {**ours["metadata"], "ownerReferences": owners}, "data": {"secret": "a25vd24="}}
    server = Server({("Secret", ours["metadata"]["name"]): theirs})
    with pytest.raises(LaunchFailed, match=r"Secret shop/orders-network-1 exists and is not this stream's"):
        launcher(server).start(FIRST)
    assert ("Pod", "orders-driver-1") not in server.objects
    server.unreadable = {"Secret"}
    with pytest.raises(ApiServerUnreachable, match=r"Secret shop/orders-network-1 cannot be read"):
        launcher(server).start(FIRST)
    assert ("Pod", "orders-driver-1") not in server.objects, "an operator of named secrets does not guess"


def test_a_driver_in_a_pod_authenticates_and_encrypts_whatever_its_resource_says(tmp_path: Path) -> None:
    wanted = {
        "spark.authenticate": "true",
        "spark.authenticate.secret.file": "/etc/exactlyonce/network/secret",
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.authEngineVersion": "2",
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
        "spark.network.crypto.saslFallback": "false",
    }
    driver = in_a_pod(tmp_path)
    assert wanted.items() <= session_settings(driver, JARS, POD).items()
    otherwise = DriverSpec(
        driver.stream_id,
        driver.spec,
        driver.master,
        {"spark.authenticate": "false", "spark.network.crypto.enabled": "false", "spark.network.crypto.cipher": "no"},
        driver.kubernetes,
    )
    assert wanted.items() <= session_settings(otherwise, JARS, POD).items()


def test_a_driver_on_this_machine_is_one_process_and_has_no_network_of_its_own(tmp_path: Path) -> None:
    settings = session_settings(here(tmp_path), JARS, {})
    assert settings["spark.master"].startswith("local")
    assert not any(key.startswith(("spark.authenticate", "spark.network")) for key in settings)


def test_an_executor_is_told_that_it_is_on_kubernetes_without_which_it_does_not_read_its_secret() -> None:
    """Spark 4.2 reads the file only where spark.master is k8s (SecurityManager), and does not tell executors their master."""
    options = {
        "SPARK_JAVA_OPT_0": "-Dspark.authenticate=true",
        "SPARK_JAVA_OPT_1": "-Dspark.authenticate.secret.file=/etc/exactlyonce/network/secret",
    }
    assert "-Dspark.master=k8s://" in executor_command(["java"], [], {**ENVIRONMENT, **options})
    assert "-Dspark.master=k8s://" not in executor_command(["java"], [], ENVIRONMENT)
