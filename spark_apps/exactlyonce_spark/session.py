"""The Spark session of a driver: its settings, and the refusal of what would break the promise."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from exactlyonce.api.places_on_s3 import login_to_s3
from exactlyonce.api.refused_conf import ROCKSDB, STATE_STORE, refusal
from exactlyonce.api.spec import SHUFFLE_PARTITIONS, Delivery
from exactlyonce.errors import Refused
from exactlyonce.launch.pod_settings import mib
from exactlyonce.launch.secrets import SECRETS_FOLDER, read_secret
from exactlyonce_spark import class_archive, kubernetes_settings
from exactlyonce_spark.s3_settings import give_login, s3_settings
from exactlyonce_spark.settings import DriverSpec

_STATE_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"

_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    # One task is one range of the source, and a replayed batch has the same tasks: see the shared trap of adaptive execution.
    "spark.sql.adaptive.enabled": "false",
    "spark.speculation": "false",
    # A cast or a sum that overflows in a transform is an error, never a NULL that lands without a word.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.daemon.module": "exactlyonce_spark.python_daemon",
}

_DEFAULTS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.cleaner.periodicGC.interval": "10min",
    "spark.log.level": "WARN",
    # A batch's report has its malformed records (formats.observed); nobody asks for any but the latest.
    "spark.sql.streaming.numRecentProgressUpdates": "1",
}

_AT_MOST_ONCE = {
    # No task and no stage is run a second time; tasks that Spark restarts all the same refuse by themselves.
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
}


class ConfRefused(Refused):
    """Spark is configured, outside of the resource, in a way that would break the promise."""


def session_settings(driver: DriverSpec, jars: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return every setting that a driver's session is made with. Performs no I/O.

    What the resource may choose comes first, what the promise and the launch depend on last. There is no credential among them.

    Raises:
        NotInAPod: if the document is for a driver in a pod, and `environment` is not that of one.
    """
    spec = driver.spec
    settings = {
        **_DEFAULTS,
        "spark.ui.enabled": str(spec.spark_ui.enabled).lower(),
        **kubernetes_settings.DEFAULTS,
        **spec.spark_conf,
        **driver.spark_conf,
        **_ALWAYS,
    }
    if spec.delivery is Delivery.AT_MOST_ONCE:
        settings.update(_AT_MOST_ONCE)
    provider = settings.setdefault(STATE_STORE, ROCKSDB)
    # State files with unique names: two processes on one checkpoint cannot spoil each other's. The other provider has none.
    settings[_STATE_FORMAT] = "2" if provider == ROCKSDB else "1"
    settings |= {
        SHUFFLE_PARTITIONS: str(spec.shuffle_partitions),
        "spark.sql.streaming.minBatchesToRetain": str(spec.checkpoint_retention.batches),
        "spark.app.name": f"exactlyonce {driver.stream_id}",
        "spark.master": driver.master,
        "spark.driver.memory": f"{mib(spec.driver.memory)}m",
        "spark.driver.extraClassPath": f"{jars}/*",
        "spark.executor.extraClassPath": f"{jars}/*",
        **s3_settings(spec),
    }
    if driver.kubernetes is not None:
        settings |= kubernetes_settings.kubernetes_settings(driver.kubernetes, environment)
    return settings


def start_session(driver: DriverSpec, jars: Path) -> SparkSession:
    """Start Spark for one stream.

    Raises:
        ConfRefused: if spark-defaults.conf or the environment set what a resource may not.
    """
    settings = session_settings(driver, jars, os.environ)
    given = settings.get("spark.driver.extraJavaOptions", "")
    settings["spark.driver.extraJavaOptions"] = f"{class_archive.java_options()} {given}".strip()
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", class_archive.LAUNCHER_OPTIONS)
    # Without it Spark takes the python3 of the PATH for its workers, which need not be the one with our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    give_login(read_secret(Path(os.environ[SECRETS_FOLDER]), login_to_s3(driver.spec)), os.environ)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    _refuse_from_elsewhere(dict(session.sparkContext.getConf().getAll()), settings)
    return session


def executors_of(session: SparkSession) -> int | None:
    """Return how many executors are registered; None where the driver's own process runs the tasks."""
    context = session.sparkContext._jsc.sc()
    return None if context.isLocal() else int(context.getExecutorMemoryStatus().size()) - 1


def _refuse_from_elsewhere(found: Mapping[str, str], ours: Mapping[str, str]) -> None:
    """Settings that came from spark-defaults.conf or the environment are held to the same rules as a resource's."""
    for key, value in found.items():
        if key in ours or not key.startswith(("spark.speculation", "spark.sql.streaming", "spark.sql.adaptive")):
            continue
        reason = refusal(key, value)
        if reason is not None:
            raise ConfRefused(f"Spark is configured with {key}={value}, which no stream may have: {reason}. Remove it.")
