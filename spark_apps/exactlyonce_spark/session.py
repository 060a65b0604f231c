"""The Spark session of a driver: its settings, and the refusal of what would break the promise."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from exactlyonce.api.refused_conf import refusal
from exactlyonce.api.spec import SHUFFLE_PARTITIONS, Delivery
from exactlyonce.errors import Refused
from exactlyonce_spark import class_archive
from exactlyonce_spark.settings import DriverSpec

_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    # One task is one Kafka range, and a replayed batch has the same tasks: see the shared trap of adaptive execution.
    "spark.sql.adaptive.enabled": "false",
    "spark.speculation": "false",
    # State files with unique names: two processes on one checkpoint cannot spoil each other's.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    # A cast or a sum that overflows in a transform is an error, never a NULL that lands without a word.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.cleaner.periodicGC.interval": "10min",
    "spark.log.level": "WARN",
}

_AT_MOST_ONCE = {
    # No task and no stage is run a second time; tasks that Spark restarts all the same refuse by themselves.
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
}


class ConfRefused(Refused):
    """Spark is configured, outside of the resource, in a way that would break the promise."""


def start_session(driver: DriverSpec, jars: Path) -> SparkSession:
    """Start Spark for one stream.

    Raises:
        ConfRefused: if spark-defaults.conf or the environment set what a resource may not.
    """
    settings = {**_DEFAULTS, **driver.spec.spark_conf, **driver.spark_conf, **_ALWAYS}
    if driver.spec.delivery is Delivery.AT_MOST_ONCE:
        settings.update(_AT_MOST_ONCE)
    settings[SHUFFLE_PARTITIONS] = str(driver.spec.shuffle_partitions)
    settings["spark.app.name"] = f"exactlyonce {driver.stream_id}"
    settings["spark.driver.memory"] = driver.spec.driver.memory
    settings["spark.driver.extraClassPath"] = f"{jars}/*"
    settings["spark.executor.extraClassPath"] = f"{jars}/*"
    given = settings.get("spark.driver.extraJavaOptions", "")
    settings["spark.driver.extraJavaOptions"] = f"{class_archive.java_options()} {given}".strip()
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", class_archive.LAUNCHER_OPTIONS)
    builder = SparkSession.builder.master(driver.master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    _refuse_from_elsewhere(dict(session.sparkContext.getConf().getAll()), settings)
    return session


def _refuse_from_elsewhere(found: Mapping[str, str], ours: Mapping[str, str]) -> None:
    """Settings that came from spark-defaults.conf or the environment are held to the same rules as a resource's."""
    for key, value in found.items():
        if key in ours or not key.startswith(("spark.speculation", "spark.sql.streaming", "spark.sql.adaptive")):
            continue
        reason = refusal(key, value)
        if reason is not None:
            raise ConfRefused(f"Spark is configured with {key}={value}, which no stream may have: {reason}. Remove it.")
