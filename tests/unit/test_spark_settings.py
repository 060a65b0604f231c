"""Spark's settings of a driver: a process here, a pod there, a checkpoint on S3. No session is started."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.api.resource import ResourceInvalid, parse_stream
from exactlyonce.aws.clients import AnswerLimits, make_client
from exactlyonce.cli.local_stream import driver_document
from exactlyonce.launch.driver_pod import manifests_of
from exactlyonce.launch.pod_settings import resolve
from exactlyonce.schema.aws_login import LOGIN_KEYS
from exactlyonce_spark.kubernetes_settings import NotInAPod
from exactlyonce_spark.s3_settings import CertificateUnusable, give_login, trust_store
from exactlyonce_spark.session import session_settings
from exactlyonce_spark.settings import DocumentUnreadable, DriverSpec
from scripts.make_golden_pods import ATTEMPT, DEFAULTS, OWNER_UID
from tests.resource_documents import FULL, document

JARS = Path("/jars")
POD = {
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
    "KUBERNETES_SERVICE_PORT": "443",
    "EXACTLYONCE_POD_IP": "10.88.0.7",
}


def in_a_pod(tmp_path: Path, changes: dict[str, Any] | None = None) -> DriverSpec:
    """Read the document that the operator writes for a driver in a pod."""
    stream = parse_stream(document(changes or {}), "the test")
    made = manifests_of(resolve(stream, ATTEMPT, OWNER_UID, DEFAULTS))
    file = tmp_path / "driver.json"
    file.write_text(made.config_map["data"]["driver.json"])
    return DriverSpec.read(file)


def here(tmp_path: Path, changes: dict[str, Any] | None = None) -> DriverSpec:
    """Read the document that local mode writes for a driver process."""
    file = tmp_path / "spec.json"
    file.write_text(driver_document(parse_stream(document(changes or {}), "the test")).render())
    return DriverSpec.read(file)


def test_a_driver_in_a_pod_finds_the_api_server_and_tells_executors_its_own_address(tmp_path: Path) -> None:
    settings = session_settings(in_a_pod(tmp_path), JARS, POD)
    assert settings["spark.master"] == "k8s://https://10.96.0.1:443"
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "10.88.0.7"
    assert settings["spark.kubernetes.driver.pod.name"] == "orders-driver-17", "executors go with this pod"
    assert settings["spark.kubernetes.namespace"] == "shop"


@pytest.mark.parametrize("place", [here, in_a_pod])
@pytest.mark.parametrize(("memory", "heap"), [("700Mi", "700m"), ("2Gi", "2048m")])
def test_a_drivers_heap_is_told_as_java_reads_it(tmp_path: Path, place: Any, memory: str, heap: str) -> None:
    settings = session_settings(place(tmp_path, {"spec.driver": {"memory": memory}}), JARS, POD)
    assert settings["spark.driver.memory"] == heap, "java does not start with -Xmx700Mi"


def test_an_ipv6_cluster_has_its_addresses_in_brackets(tmp_path: Path) -> None:
    addresses = {"KUBERNETES_SERVICE_HOST": "fd00::1", "EXACTLYONCE_POD_IP": "fd00::7"}
    settings = session_settings(in_a_pod(tmp_path), JARS, {**POD, **addresses})
    assert settings["spark.master"] == "k8s://https://[fd00::1]:443"
    assert settings["spark.driver.host"] == "[fd00::7]"


def test_executors_are_what_the_resource_asks_for(tmp_path: Path) -> None:
    asked = {
        "instances": 3,
        "cores": 4,
        "memory": "2Gi",
        "memoryOverhead": "900Mi",
        "cpuRequest": "500m",
        "cpuLimit": "5",
    }
    changes = {
        "spec.executor": asked,
        "spec.image": "registry.example/spark:1",
        "spec.imagePullPolicy": "Always",
        "spec.imagePullSecrets": [{"name": "a"}, {"name": "b"}],
    }
    settings = session_settings(in_a_pod(tmp_path, changes), JARS, POD)
    assert (
        settings.items()
        >= {
            "spark.executor.instances": "3",
            "spark.executor.cores": "4",
            "spark.executor.memory": "2048m",
            "spark.executor.memoryOverhead": "900m",
            "spark.kubernetes.executor.request.cores": "500m",
            "spark.kubernetes.executor.limit.cores": "5",
            "spark.kubernetes.container.image": "registry.example/spark:1",
            "spark.kubernetes.container.image.pullPolicy": "Always",
            "spark.kubernetes.container.image.pullSecrets": "a,b",
            "spark.kubernetes.executor.podTemplateFile": "/etc/exactlyonce/attempt/executor.yaml",
            "spark.kubernetes.executor.podNamePrefix": "orders-17",
        }.items()
    )
    assert "spark.dynamicAllocation.enabled" not in settings


def test_more_executors_are_started_up_to_the_most_that_are_asked_for(tmp_path: Path) -> None:
    changes = {"spec.executor": {"instances": 2, "maxInstances": 9}}
    settings = session_settings(in_a_pod(tmp_path, changes), JARS, POD)
    assert (
        settings.items()
        >= {
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.minExecutors": "2",
            "spark.dynamicAllocation.maxExecutors": "9",
        }.items()
    )


def test_a_driver_in_a_pod_asks_for_no_right_but_to_make_pods(tmp_path: Path) -> None:
    settings = session_settings(in_a_pod(tmp_path), JARS, POD)
    assert settings["spark.kubernetes.executor.disableConfigMap"] == "true"
    for name in ("ownPersistentVolumeClaim", "reusePersistentVolumeClaim", "service.deleteOnTermination"):
        assert settings[f"spark.kubernetes.driver.{name}"] == "false"


@pytest.mark.parametrize("enabled", [True, False])
def test_sparks_user_interface_is_on_by_choice(tmp_path: Path, enabled: bool) -> None:
    changes = {"spec.sparkUi": {"enabled": enabled}, "spec.sparkConf": {"spark.ui.retainedJobs": "9"}}
    settings = session_settings(in_a_pod(tmp_path, changes), JARS, POD)
    assert settings["spark.ui.enabled"] == str(enabled).lower()
    assert settings.get("spark.ui.port") == ("4040" if enabled else None)
    assert session_settings(here(tmp_path, changes), JARS, {})["spark.ui.enabled"] == str(enabled).lower()
    assert settings["spark.ui.retainedJobs"] == "9"
    assert ("spark.metrics.conf.*.sink.prometheusServlet.class" in settings) is enabled, (
        "Spark's own metrics are served there"
    )


@pytest.mark.parametrize("place", [here, in_a_pod])
def test_a_task_and_a_stage_run_once_where_rows_may_land_at_most_once(place: Any, tmp_path: Path) -> None:
    once = session_settings(place(tmp_path, {"spec.delivery": "AtMostOnce"}), JARS, POD)
    assert once["spark.task.maxFailures"] == once["spark.stage.maxConsecutiveAttempts"] == "1"
    assert "spark.task.maxFailures" not in session_settings(place(tmp_path), JARS, POD)


@pytest.mark.parametrize("place", [here, in_a_pod])
def test_what_the_promise_depends_on_is_the_same_everywhere(place: Any, tmp_path: Path) -> None:
    settings = session_settings(place(tmp_path), JARS, POD)
    assert (
        settings.items()
        >= {
            "spark.sql.adaptive.enabled": "false",
            "spark.speculation": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.ansi.enabled": "true",
            "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
            "spark.driver.extraClassPath": "/jars/*",
            "spark.executor.extraClassPath": "/jars/*",
        }.items()
    )


def test_a_process_here_has_no_setting_of_a_pod(tmp_path: Path) -> None:
    settings = session_settings(here(tmp_path), JARS, {})
    assert settings["spark.master"].startswith("local[")
    assert not [key for key in settings if key.startswith("spark.kubernetes.")]


def test_what_a_resource_sets_is_kept_where_it_may(tmp_path: Path) -> None:
    conf = {
        "spark.sql.shuffle.partitions": "3",
        "spark.executor.failuresValidityInterval": "5m",
        "spark.log.level": "INFO",
    }
    settings = session_settings(in_a_pod(tmp_path, {"spec.sparkConf": conf}), JARS, POD)
    assert settings.items() >= conf.items()


EVERYTHING: dict[str, Any] = {
    "spec.sparkUi": {"enabled": True},
    "spec.executor": {"instances": 2, "maxInstances": 9, "cpuRequest": "1", "cpuLimit": "2"},
    "spec.image": "registry.example/spark:1",
    "spec.imagePullPolicy": "Always",
    "spec.imagePullSecrets": [{"name": "a"}],
    "spec.checkpoint.s3.endpoint": "https://s3.example:9000",
}


@pytest.mark.parametrize("delivery", ["ExactlyOnce", "AtMostOnce"])
@pytest.mark.parametrize("place", [here, in_a_pod])
def test_a_setting_is_refused_or_it_is_what_spark_is_started_with(place: Any, delivery: str, tmp_path: Path) -> None:
    """The oracle is the session: whatever it sets itself is tried in a resource, with a value that it does not have."""
    changes = {**EVERYTHING, "spec.delivery": delivery}
    refused, honoured = [], []
    for key in session_settings(place(tmp_path, changes), JARS, POD):
        value = (
            "7"
            if key == "spark.sql.shuffle.partitions"
            else "false"
            if key.endswith("arrow.pyspark.enabled")
            else "odd"
        )
        try:
            settings = session_settings(place(tmp_path, {**changes, "spec.sparkConf": {key: value}}), JARS, POD)
        except ResourceInvalid:
            refused.append(key)
            continue
        assert settings[key] == value, f"{key} is accepted and overridden"
        honoured.append(key)
    assert {"spark.sql.ansi.enabled", "spark.ui.enabled", "spark.hadoop.fs.s3a.bucket.lake.endpoint"} <= set(refused)
    assert {"spark.sql.shuffle.partitions", "spark.log.level"} <= set(honoured)


@pytest.mark.parametrize("missing", POD)
def test_a_document_for_a_pod_is_refused_elsewhere(missing: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in POD.items() if name != missing}
    with pytest.raises(NotInAPod, match=missing):
        session_settings(in_a_pod(tmp_path), JARS, environment)


@pytest.mark.parametrize("text", ["", "{}", "[]", "5", '{"streamId": "a"}'])
def test_a_document_of_another_release_is_refused_with_a_sentence(text: str, tmp_path: Path) -> None:
    file = tmp_path / "driver.json"
    file.write_text(text)
    with pytest.raises(DocumentUnreadable, match="images of the same release"):
        DriverSpec.read(file)
    with pytest.raises(DocumentUnreadable):
        DriverSpec.read(tmp_path / "nothing")


def test_a_field_that_this_release_does_not_know_is_told_by_name(tmp_path: Path) -> None:
    made = json.loads(driver_document(parse_stream(document(), "the test")).render())
    made["spec"]["quorum"] = 3
    file = tmp_path / "driver.json"
    file.write_text(json.dumps(made))
    with pytest.raises(DocumentUnreadable, match="quorum"):
        DriverSpec.read(file)


@pytest.mark.parametrize("place", [here, in_a_pod])
def test_a_checkpoint_on_s3_is_reached_by_settings_of_its_bucket_alone(place: Any, tmp_path: Path) -> None:
    s3 = {
        "location": "s3a://lake.eu/checkpoints/orders",
        "secretRef": {"name": "lake"},
        "endpoint": "https://s3.example:9000",
        "pathStyle": True,
    }
    settings = session_settings(place(tmp_path, {"spec.checkpoint": {"s3": s3}}), JARS, POD)
    bucket = "spark.hadoop.fs.s3a.bucket.lake.eu."
    assert {key.removeprefix(bucket): value for key, value in settings.items() if "s3a" in key} == {
        "aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
        "endpoint": "https://s3.example:9000",
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
    }
    assert settings["spark.sql.streaming.checkpointFileManagerClass"].endswith(
        "AbortableStreamBasedCheckpointFileManager"
    )


def test_amazons_own_s3_needs_no_endpoint(tmp_path: Path) -> None:
    checkpoint = {"s3": {"location": "s3a://lake/orders", "region": "eu-central-1"}}
    settings = session_settings(here(tmp_path, {"spec.checkpoint": checkpoint}), JARS, {})
    assert "spark.hadoop.fs.s3a.bucket.lake.endpoint" not in settings
    assert settings["spark.hadoop.fs.s3a.bucket.lake.endpoint.region"] == "eu-central-1"


def test_a_checkpoint_in_a_folder_is_written_by_sparks_own_manager(tmp_path: Path) -> None:
    settings = session_settings(here(tmp_path, {"spec.checkpoint": {"local": {"path": "/c/orders"}}}), JARS, {})
    assert "spark.sql.streaming.checkpointFileManagerClass" not in settings
    assert not [key for key in settings if "s3a" in key]


def test_no_setting_is_a_credential(tmp_path: Path) -> None:
    """Settings stand on the JVM's command line."""
    (tmp_path / "full").mkdir()
    stream = parse_stream(FULL, "the test")
    file = tmp_path / "driver.json"
    file.write_text(manifests_of(resolve(stream, ATTEMPT, OWNER_UID, DEFAULTS)).config_map["data"]["driver.json"])
    settings = session_settings(DriverSpec.read(file), JARS, {**POD, "AWS_SECRET_ACCESS_KEY": "hidden"})
    assert "hidden" not in json.dumps(settings)
    assert not [key for key in settings if "access.key" in key or "secret.key" in key or "password" in key.lower()]


def test_a_secrets_login_replaces_whatever_the_environment_had() -> None:
    environment = {"AWS_ACCESS_KEY_ID": "old", "AWS_SECRET_ACCESS_KEY": "old", "AWS_SESSION_TOKEN": "old", "HOME": "/"}
    give_login({"AWS_ACCESS_KEY_ID": "new\n", "AWS_SECRET_ACCESS_KEY": "new"}, environment)
    assert {key: environment.get(key) for key in LOGIN_KEYS} == {
        "AWS_ACCESS_KEY_ID": "new",
        "AWS_SECRET_ACCESS_KEY": "new",
        "AWS_SESSION_TOKEN": None,
    }
    assert environment["HOME"] == "/"


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    ("given", "used"),
    [
        ({"AWS_ACCESS_KEY_ID": "own", "AWS_SECRET_ACCESS_KEY": "k", "AWS_SESSION_TOKEN": "t"}, ("own", "k", "t")),
        ({"AWS_SHARED_CREDENTIALS_FILE": "FILE"}, ("of the file", "f", None)),
    ],
)
def test_the_login_of_a_secret_for_s3_is_not_that_of_other_services(
    given: dict[str, str], used: tuple[str, ...], again: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A data stream without a secret is read with what the pod was given, such as a web identity."""
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = of the file\naws_secret_access_key = f\n")
    environment = {key: value.replace("FILE", str(file)) for key, value in given.items()}
    for _ in range(1 + again):
        give_login({"AWS_ACCESS_KEY_ID": "of S3", "AWS_SECRET_ACCESS_KEY": "s"}, environment)
    assert environment["AWS_ACCESS_KEY_ID"] == "of S3", "which the JVM is given"
    for key in LOGIN_KEYS:
        monkeypatch.delenv(key, raising=False)
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    client = make_client("kinesis", AnswerLimits(1.0, 1.0, 1.0, 1), None, region="eu-west-1")
    found = client._get_credentials()
    assert (found.access_key, found.secret_key, found.token) == used


@pytest.mark.parametrize("secret", [{}, {"AWS_SESSION_TOKEN": " "}])
def test_without_a_login_in_the_secret_the_environment_stays(secret: dict[str, str]) -> None:
    environment = {"AWS_ACCESS_KEY_ID": "given", "AWS_WEB_IDENTITY_TOKEN_FILE": "/token"}
    give_login(secret, environment)
    assert environment == {"AWS_ACCESS_KEY_ID": "given", "AWS_WEB_IDENTITY_TOKEN_FILE": "/token"}


def test_a_certificate_in_the_secret_is_trusted_beside_the_jres_own(tmp_path: Path) -> None:
    pem = make_certificate(tmp_path, "one") + make_certificate(tmp_path, "two")
    environment = {"JAVA_TOOL_OPTIONS": "-Dx=1"}
    give_login({"ca.crt": f"a comment\n{pem}"}, environment)
    first, trusts, password = environment["JAVA_TOOL_OPTIONS"].split()
    assert (first, password) == ("-Dx=1", "-Djavax.net.ssl.trustStorePassword=changeit")
    store = trusts.removeprefix("-Djavax.net.ssl.trustStore=")
    listed = subprocess.run(
        ["keytool", "-list", "-keystore", store, "-storepass", "changeit"], capture_output=True, text=True, check=True
    ).stdout
    assert "exactlyonce-0" in listed
    assert "exactlyonce-1" in listed
    assert listed.count("trustedCertEntry") > 50, "and the public authorities are there too"


@pytest.mark.parametrize("text", ["no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"])
def test_a_certificate_that_is_none_is_told(text: str) -> None:
    with pytest.raises(CertificateUnusable, match=r"ca\.crt of the secret for S3"):
        trust_store(text)


def make_certificate(folder: Path, name: str) -> str:
    """Return a certificate that signs itself, as PEM, made by the JRE's own keytool."""
    store = folder / f"{name}.p12"
    common = ["-keystore", str(store), "-storepass", "changeit", "-alias", name]
    subprocess.run(
        ["keytool", "-genkeypair", "-keyalg", "EC", "-dname", f"CN={name}", *common], check=True, capture_output=True
    )
    return subprocess.run(
        ["keytool", "-exportcert", "-rfc", *common], check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize(("changes", "batches"), [({}, "100"), ({"spec.checkpointRetention.batches": 1000}, "1000")])
def test_spark_keeps_as_many_batches_as_the_resource_says_and_by_default_as_many_as_by_itself(
    tmp_path: Path, changes: Any, batches: str
) -> None:
    settings = session_settings(here(tmp_path, changes), JARS, POD)
    assert settings["spark.sql.streaming.minBatchesToRetain"] == batches
