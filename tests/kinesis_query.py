"""A query over Kinesis in a process of its own, which can be killed: `python -m tests.kinesis_query` with its orders as JSON.

Each batch is appended to a file as one line: its number, its ranges as the executed plan has them, its rows and its
malformed records.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from exactlyonce.api.format import Format
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce_spark.connectors.kinesis.connector import KinesisRecords
from exactlyonce_spark.formats import malformed_records, well_formed
from exactlyonce_spark.plan import PlanReader


def run(orders: dict[str, Any]) -> None:
    """Run the query until nothing is left, or until the batch in which it is to be killed."""
    builder = SparkSession.builder.master("local[2]")
    for key, value in orders["settings"].items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    given = Format.model_validate({"type": "Raw", "schema": "value STRING", "onMalformed": "DeadLetter"})
    reader = KinesisRecords(KinesisSource.model_validate(orders["source"]), given, None)
    records = reader.stream(session, 4, None)
    rows = well_formed(records, reader.columns(records), given)
    plans: list[PlanReader] = []

    def take(batch: DataFrame, number: int) -> None:
        if not plans:
            plans.append(PlanReader(session, query, reader))
        ranges = plans[0].read().ranges
        found = [[str(value) for value in row] for row in batch.collect()]
        again = reader.batch(session, ranges)
        letters = malformed_records(again, reader.columns(again), given).collect()
        line = {
            "batch": number,
            "ranges": json.loads(ranges.to_json()),
            "rows": found,
            "malformed": [[letter._partition, letter._position, letter._why] for letter in letters],
        }
        with Path(orders["out"]).open("a") as file:
            file.write(json.dumps(line) + "\n")
        if number == orders["killed_in"]:
            os.kill(os.getpid(), signal.SIGKILL)

    writer = rows.writeStream.foreachBatch(take).option("checkpointLocation", orders["checkpoint"])
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    print(query._jsq.explainInternal(True))  # what a person would see of the plan


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
