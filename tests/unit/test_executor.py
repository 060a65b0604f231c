"""The command of an executor, against what Spark's own image would run for the same environment."""

import subprocess
import sys
from pathlib import Path

import pytest

from exactlyonce_spark.executor import NotAnExecutor, executor_command, spark_classpath

ENVIRONMENT = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.7:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-application-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "orders-exec-3",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "PATH": "/usr/bin",
}


def test_an_executor_gets_what_the_scheduler_told() -> None:
    assert executor_command(["/jre/bin/java", "-Xshare:auto"], ["/spark/jars/*"], ENVIRONMENT) == [
        "/jre/bin/java",
        "-Xshare:auto",
        "-Xms1g",
        "-Xmx1g",
        "-cp",
        "/spark/jars/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        "--driver-url",
        "spark://CoarseGrainedScheduler@10.0.0.7:7078",
        "--executor-id",
        "3",
        "--cores",
        "2",
        "--app-id",
        "spark-application-1",
        "--hostname",
        "10.0.0.8",
        "--resourceProfileId",
        "0",
        "--podName",
        "orders-exec-3",
    ]


def test_java_options_keep_their_order_beyond_nine_and_their_spaces() -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Doption={number} and a space" for number in range(12)}
    command = executor_command(["java"], ["/spark/jars/*"], {**ENVIRONMENT, **options})
    assert command[1:13] == [f"-Doption={number} and a space" for number in range(12)]


def test_the_jars_that_a_stream_adds_come_before_sparks_own() -> None:
    command = executor_command(["java"], ["/spark/jars/*"], {**ENVIRONMENT, "SPARK_CLASSPATH": "/opt/jars/*"})
    assert command[command.index("-cp") + 1] == "/opt/jars/*:/spark/jars/*"


def test_sparks_classpath_is_in_the_launchers_order_so_that_the_drivers_class_archive_fits(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    for jar in ("slf4j-api-2.0.17.jar", "jul-to-slf4j-2.0.17.jar", "spark-core_2.13-4.2.0.jar"):
        (tmp_path / "jars" / jar).touch()
    assert spark_classpath(tmp_path) == [
        f"{tmp_path}/conf",
        f"{tmp_path}/jars/slf4j-api-2.0.17.jar",
        f"{tmp_path}/jars/*",
    ]


@pytest.mark.parametrize("name", sorted(set(ENVIRONMENT) - {"PATH"}))
def test_a_container_that_the_scheduler_did_not_make_is_refused_by_the_variable_that_is_missing(name: str) -> None:
    without = {key: value for key, value in ENVIRONMENT.items() if key != name}
    with pytest.raises(NotAnExecutor, match=f"{name} is not set"):
        executor_command(["java"], ["/spark/jars/*"], without)


def test_started_by_hand_it_ends_with_a_sentence_and_no_trace() -> None:
    command = [sys.executable, "-m", "exactlyonce_spark.executor"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "this command is for the pods that Spark's Kubernetes scheduler makes" in ended.stderr
    assert "Traceback" not in ended.stderr
