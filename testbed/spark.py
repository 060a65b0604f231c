"""One small Spark session with a driver's jars, for tests and scripts that need Spark without a driver process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from exactlyonce_spark import class_archive
from exactlyonce_spark.jars import ensure_jars

# Short-lived: compiling less is what makes it start sooner.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


SPARK_KAFKA_LOCK = Path(__file__).with_name("spark-kafka.lock")


def spark_kafka() -> str:
    """Return the class path of Spark's own Kafka source: its checkpoints are read, and benchmarks compare with it."""
    return f"{ensure_jars(SPARK_KAFKA_LOCK)}/*"


@contextmanager
def local_session(
    name: str, settings: Mapping[str, str] | None = None, *, with_kafka: bool = False
) -> Iterator[SparkSession]:
    """Start Spark in this process, two threads and two shuffle partitions, and stop it at the end.

    `with_kafka`: with Spark's own Kafka source, which no driver has.
    """
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", class_archive.LAUNCHER_OPTIONS)
    chosen = {
        "spark.driver.extraClassPath": f"{ensure_jars()}/*" + (f":{spark_kafka()}" if with_kafka else ""),
        "spark.driver.extraJavaOptions": f"{class_archive.java_options()} {QUICK_JVM}".strip(),
        "spark.driver.memory": "700m",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(settings or {}),
    }
    builder = SparkSession.builder.master("local[2]").appName(name)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
