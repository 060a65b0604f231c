"""What people run today: a Spark job without reconciliation, at least once. The peers of the benchmark.

Reads by Spark's own Kafka source, with the settings that our driver uses; its sink is `noop`, or `df.write.jdbc`,
`df.write.parquet`, `write_deltalake`, pyiceberg's `append` or `df.write.format("kafka")` in foreachBatch; the last four also of
rows checked as ours are, which tells the cost of the sink alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from exactlyonce_spark.jars import ensure_jars
from testbed.spark import spark_kafka

SINKS = ("noop", "jdbc", "jdbc-rewrite", "parquet", "parquet-checked", "deltalake", "pyiceberg", "spark-kafka")
ICEBERG_TABLE = "bench.orders"
JDBC_LOCK = Path(__file__).with_name("jdbc.lock")


def session(cores: int) -> SparkSession:
    """Start Spark as a plain job would, with the same time zone and without a UI."""
    classpath = f"{ensure_jars()}/*:{ensure_jars(JDBC_LOCK)}/*:{spark_kafka()}"
    return (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraClassPath", classpath)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "WARN")
        .getOrCreate()
    )


def _parsed(records: DataFrame, schema: str) -> DataFrame:
    """Return rows as people parse them: one that is malformed becomes NULLs."""
    return records.select(f.from_json(f.col("value").cast("string"), schema).alias("row")).select("row.*")


def _checked(records: DataFrame, schema: str) -> DataFrame:
    """Return rows of which one that is malformed ends the query, as it does in our driver."""
    row = f.from_json(f.col("value").cast("string"), schema, {"mode": "FAILFAST"})
    return records.select(row.alias("row")).select("row.*")


def main() -> None:
    """Run until the topic's end, or for ever with --continuous."""
    parser = argparse.ArgumentParser(prog="python -m bench.bare_job", description=__doc__.split("\n")[0])
    parser.add_argument("sink", choices=SINKS)
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--schema", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--batch", required=True, help="maxOffsetsPerTrigger")
    parser.add_argument("--url", help="the JDBC URL, with user and password")
    parser.add_argument("--path", help="the folder of parquet files")
    parser.add_argument("--table", default="orders")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--continuous", action="store_true")
    options = parser.parse_args()
    spark = session(options.cores)
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.brokers)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.batch)
        .option("kafka.fetch.max.wait.ms", "10")
        .load()
    )
    checks = options.sink in ("parquet-checked", "deltalake", "pyiceberg", "spark-kafka")
    rows = _checked(records, options.schema) if checks else _parsed(records, options.schema)
    writer = rows.writeStream.option("checkpointLocation", options.checkpoint)
    if not options.continuous:
        writer = writer.trigger(availableNow=True)
    if options.sink == "noop":
        query = writer.format("noop").start()
    elif options.sink in ("parquet", "parquet-checked"):

        def write_files(batch: DataFrame, _number: int) -> None:
            batch.write.mode("append").parquet(options.path)

        query = writer.foreachBatch(write_files).start()
    elif options.sink == "deltalake":

        def write_table(batch: DataFrame, _number: int) -> None:
            write_deltalake(options.path, batch.toArrow(), mode="append")

        query = writer.foreachBatch(write_table).start()
    elif options.sink == "spark-kafka":
        query = writer.foreachBatch(_write_to_kafka(options.brokers, topic_of(Path(options.path)))).start()
    elif options.sink == "pyiceberg":
        query = writer.foreachBatch(_append_to_iceberg(options.url, options.path)).start()
    else:
        url = f"{options.url}&reWriteBatchedInserts=true" if options.sink == "jdbc-rewrite" else options.url

        def write(batch: DataFrame, _number: int) -> None:
            batch.write.mode("append").format("jdbc").options(
                url=url, dbtable=options.table, driver="org.postgresql.Driver"
            ).save()

        query = writer.foreachBatch(write).start()
    query.awaitTermination()


def topic_of(out: Path) -> str:
    """Return the topic that a run writes to, which is named by the folder that it would write to."""
    return f"rows-{out.parent.name}"


def _write_to_kafka(brokers: str, topic: str) -> Callable[[DataFrame, int], None]:
    def write(batch: DataFrame, _number: int) -> None:
        records = batch.select(f.col("id").cast("string").alias("key"), f.to_json(f.struct("*")).alias("value"))
        records.write.format("kafka").option("kafka.bootstrap.servers", brokers).option("topic", topic).save()

    return write


def catalog_uri(jdbc: str) -> str:
    """Return the address of a database as pyiceberg's catalog is told it, from that for JDBC."""
    return jdbc.replace("jdbc:postgresql:", "postgresql+psycopg2:")


def _append_to_iceberg(url: str, path: str) -> Callable[[DataFrame, int], None]:
    catalog = SqlCatalog("default", uri=catalog_uri(url))
    catalog.create_namespace(ICEBERG_TABLE.partition(".")[0])

    def append(batch: DataFrame, _number: int) -> None:
        rows = batch.toArrow()
        table = catalog.create_table_if_not_exists(ICEBERG_TABLE, rows.schema, f"file://{path}")
        table.append(rows)

    return append


if __name__ == "__main__":
    main()
