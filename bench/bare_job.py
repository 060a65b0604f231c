"""What people run today: a Spark job without reconciliation, at least once. The peers of the benchmark.

Uses the connector and the settings that our driver uses; its sink is `noop`, or `df.write.jdbc` or
`df.write.parquet` in foreachBatch; the last also of rows that were checked as ours are, which says what the sink alone costs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from exactlyonce.api.format import Format
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce_spark import formats
from exactlyonce_spark.connectors.kafka.connector import KafkaReader
from exactlyonce_spark.jars import ensure_jars

JDBC_LOCK = Path(__file__).with_name("jdbc.lock")


def session(cores: int) -> SparkSession:
    """Start Spark as a plain job would, with the same time zone and without a UI."""
    classpath = f"{ensure_jars()}/*:{ensure_jars(JDBC_LOCK)}/*"
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
    """Return rows as our driver parses them: the query ends at one that is malformed."""
    given = Format.model_validate({"schema": schema})
    columns = KafkaReader(KafkaSource(bootstrap_servers="127.0.0.1:9092", topics=("orders",)), None, {}).columns(
        records
    )
    parsed = formats.parse_schema(given)
    return formats.parsed(records, columns, given, parsed).select(*parsed.names)


def main() -> None:
    """Run until the topic's end, or for ever with --continuous."""
    parser = argparse.ArgumentParser(prog="python -m bench.bare_job", description=__doc__.split("\n")[0])
    parser.add_argument("sink", choices=["noop", "jdbc", "jdbc-rewrite", "parquet", "parquet-checked"])
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
    rows = _checked(records, options.schema) if options.sink == "parquet-checked" else _parsed(records, options.schema)
    writer = rows.writeStream.option("checkpointLocation", options.checkpoint)
    if not options.continuous:
        writer = writer.trigger(availableNow=True)
    if options.sink == "noop":
        query = writer.format("noop").start()
    elif options.sink in ("parquet", "parquet-checked"):

        def write_files(batch: DataFrame, _number: int) -> None:
            batch.write.mode("append").parquet(options.path)

        query = writer.foreachBatch(write_files).start()
    else:
        url = f"{options.url}&reWriteBatchedInserts=true" if options.sink == "jdbc-rewrite" else options.url

        def write(batch: DataFrame, _number: int) -> None:
            batch.write.mode("append").format("jdbc").options(
                url=url, dbtable=options.table, driver="org.postgresql.Driver"
            ).save()

        query = writer.foreachBatch(write).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
