"""Print of some transforms whether a replay takes them, as Spark itself plans each: python -m tests.replayed_transforms"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from exactlyonce_spark.query import VIEW
from exactlyonce_spark.spark_records import TransformNotOfEachRecord, require_rows_of_each_record

OF_EACH_RECORD = (
    "select value, timestamp from source",
    "select value + 1 as value from source where value % 2 = 0",
    "select value, part from source lateral view explode(array(1, 2)) parts as part",
    "select s.value, t.total from source s join (select k, sum(v) as total from fixed group by k) t on s.value = t.k",
    "select value from source where value in (select k from fixed order by k limit 5)",
    "with mine as (select value from source) select value from mine union all select -value from mine",
)
OF_MANY = {
    "select count(*) as value from source": "Aggregate",
    "select distinct value from source": "Distinct",
    "select value from source limit 5": "Limit",
    "select value, row_number() over (order by timestamp) as place from source": "Window",
    "select a.value from source a join source b on a.value = b.value": "Join",
    "select value from source order by value": "Sort",
}


def main() -> None:
    """Print what each transform is refused for; null where it is taken."""
    settings = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}
    builder = SparkSession.builder.master("local[1]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sql("create temporary view fixed as select 1 as k, 2 as v")
    session.readStream.format("rate").load().createOrReplaceTempView(VIEW)
    found: dict[str, str | None] = {}
    for text in (*OF_EACH_RECORD, *OF_MANY):
        try:
            require_rows_of_each_record(session.sql(text))
            found[text] = None
        except TransformNotOfEachRecord as problem:
            found[text] = str(problem)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
