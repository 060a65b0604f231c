"""A small Spark job that a test's pod runs: Kafka to Postgres and S3 through executors of its own. Sent as text.

Its environment: what `pods.pod` gives, and KAFKA, TOPIC, POSTGRES, S3, IMAGE, EXECUTOR (the pod template of an executor).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exactlyonce.api.format import Format


def insert(rows: Iterator[Any]) -> None:
    """Write records into the table `landed`: with the pod that does it, and whether a JVM there maps the class archive."""
    import os
    import socket
    from pathlib import Path

    import psycopg2

    archive = os.environ["EXACTLYONCE_CLASS_ARCHIVE"]
    mapped = any(archive in maps.read_text() for maps in Path("/proc").glob("[0-9]*/maps"))
    with psycopg2.connect(os.environ["POSTGRES"]) as connection, connection.cursor() as cursor:
        for row in rows:
            cursor.execute("insert into landed values (%s, %s, %s)", (int(row.value), socket.gethostname(), mapped))


def main() -> None:
    """Run the job with two executors."""
    from pyspark.sql import SparkSession

    from exactlyonce.connectors.kafka.bounds import KafkaBounds
    from exactlyonce.connectors.kafka.spec import KafkaSource
    from exactlyonce.positions.ranges import OffsetRange, Ranges
    from exactlyonce_spark.connectors.kafka.connector import KafkaReader

    given = os.environ
    template = Path("/tmp/executor.json")
    template.write_text(given["EXECUTOR"])
    settings = {
        "spark.driver.host": given["POD_IP"],
        "spark.driver.bindAddress": given["POD_IP"],
        "spark.driver.memory": "600m",
        "spark.driver.extraClassPath": f"{given['EXACTLYONCE_JARS']}/*",
        "spark.executor.extraClassPath": f"{given['EXACTLYONCE_JARS']}/*",
        "spark.executor.instances": "2",
        "spark.executor.memory": "600m",
        "spark.executorEnv.POSTGRES": given["POSTGRES"],
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.kubernetes.executor.request.cores": "100m",
        "spark.kubernetes.namespace": given["POD_NAMESPACE"],
        "spark.kubernetes.driver.pod.name": given["POD_NAME"],
        "spark.kubernetes.container.image": given["IMAGE"],
        "spark.kubernetes.executor.podTemplateFile": str(template),
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.hadoop.fs.s3a.endpoint": given["S3"],
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "testing-access-key",
        "spark.hadoop.fs.s3a.secret.key": "testing-secret-key",
        "spark.ui.enabled": "false",
    }
    master = f"k8s://https://{given['KUBERNETES_SERVICE_HOST']}:{given['KUBERNETES_SERVICE_PORT']}"
    builder = SparkSession.builder.master(master).appName("testbed")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    source = KafkaSource.model_validate({"bootstrapServers": given["KAFKA"], "topics": [given["TOPIC"]]})
    bounds = KafkaBounds(source, {}).view().bounds
    ranges = Ranges({key: OffsetRange(held.earliest, held.latest) for key, held in bounds.items()})
    given_format = Format.model_validate({"type": "Raw", "schema": "value STRING"})
    records = KafkaReader(source, given_format).batch(session, ranges).select("value.*")
    records.write.text("s3a://lake/records")
    records.foreachPartition(insert)
    print(f"the driver was {socket.gethostname()}")
    session.stop()


if __name__ == "__main__":
    main()
