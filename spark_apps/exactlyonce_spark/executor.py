"""`python3 -m exactlyonce_spark.executor`: become the executor that Spark's Kubernetes scheduler asks for.

The pip package of Spark brings no entrypoint for images. The scheduler starts an executor's container with the one argument
`executor` and tells the rest in the environment (Spark 4.2: BasicExecutorFeatureStep; its own image: entrypoint.sh).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from exactlyonce.launch.driver_document import CHECKPOINT_VARIABLE
from exactlyonce.launch.secrets import SECRETS_FOLDER, read_mounted
from exactlyonce_spark import class_archive
from exactlyonce_spark.s3_settings import give_login

_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
_AUTHENTICATES = "-Dspark.authenticate.secret.file="
_ON_KUBERNETES = "-Dspark.master=k8s://"
"""Spark 4.2 reads that file only where the master is Kubernetes (SecurityManager), and does not tell an executor its master
before it has authenticated itself. From then on the driver's own setting holds."""
_NUMBERED_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")


class NotAnExecutor(RuntimeError):
    """The environment is not that of an executor's container."""


def executor_command(java: Sequence[str], spark_classpath: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command of the executor that `environment` describes; `java` may have options. Performs no I/O.

    Raises:
        NotAnExecutor: if a variable that the scheduler always sets is missing.
    """
    absent = [name for name in [*_ARGUMENTS.values(), "SPARK_EXECUTOR_MEMORY"] if name not in environment]
    if absent:
        raise NotAnExecutor(
            f"{', '.join(absent)} is not set: this command is for the pods that Spark's Kubernetes scheduler makes."
        )
    numbered = sorted(
        (int(found.group(1)), value)
        for name, value in environment.items()
        if (found := _NUMBERED_OPTION.fullmatch(name))
    )
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    classpath = ":".join(filter(None, [environment.get("SPARK_CLASSPATH"), *spark_classpath]))
    arguments = [word for option, name in _ARGUMENTS.items() for word in (option, environment[name])]
    options = [value for _, value in numbered]
    if any(option.startswith(_AUTHENTICATES) for option in options):
        options.append(_ON_KUBERNETES)
    return [*java, *options, f"-Xms{memory}", f"-Xmx{memory}", "-cp", classpath, _BACKEND, *arguments]


def spark_classpath(home: Path) -> list[str]:
    """Return Spark's part of the classpath exactly as its launcher makes it for a driver.

    The class archive is made by a driver, and serves only a JVM whose classpath begins as that one's did.

    Source: Spark 4.2's AbstractCommandBuilder.buildClassPath.
    """
    logging = sorted(str(jar) for jar in (home / "jars").glob("slf4j-api-*.jar"))
    return [str(home / "conf"), *logging, str(home / "jars" / "*")]


def main() -> None:
    """Replace this process by the executor's Java."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    pyspark = importlib.util.find_spec("pyspark")
    if java is None or pyspark is None or pyspark.origin is None:
        raise SystemExit("An executor needs Java and pyspark, and this image lacks one of them.")
    try:
        program = [java, *class_archive.java_options().split()]
        command = executor_command(program, spark_classpath(Path(pyspark.origin).parent), os.environ)
    except NotAnExecutor as problem:
        raise SystemExit(str(problem)) from None
    secret = os.environ.get(CHECKPOINT_VARIABLE)
    if secret is not None:
        give_login(read_mounted(Path(os.environ[SECRETS_FOLDER]), secret), os.environ)
    sys.stdout.flush()
    os.execv(java, command)  # noqa: S606 - no shell is wanted: this process becomes Java


if __name__ == "__main__":
    main()
