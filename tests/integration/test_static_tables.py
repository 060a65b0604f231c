"""A table beside the source: what Spark reads again in each run of a batch takes effect once with each record, or is refused.

The table of these tests is another one for each driver: a transform in Python writes another version whenever it is called.
"""

from __future__ import annotations

import os

import pytest

from exactlyonce.reconcile.loop import Done, Halted
from tests.combinations import one_or_all
from tests.rig import Rig

VERSIONS = """
import gzip, json, pathlib
from pyspark.sql import functions

FOLDER = pathlib.Path(__file__).parent / "labels"
STATE_TIMEOUT = "EventTimeTimeout"

def labels(rows):
    FOLDER.mkdir(exist_ok=True)
    version = len(list(FOLDER.iterdir()))
    file = FOLDER / f"{version}.json"
    found = [{"key": key, "label": f"version-{version}"} for key in range(97)]
    file.write_text("\\n".join(json.dumps(row) for row in found))
    return rows.sparkSession.read.schema("key BIGINT, label STRING").json(str(file))

def labelled(rows):
    return rows.join(labels(rows), rows.id % 97 == functions.col("key")).selectExpr("id", "label as customer")

def shuffled_after(rows):
    joined = rows.join(labels(rows).hint("merge"), rows.id % 97 == functions.col("key"))
    return joined.repartition("label").selectExpr("id", "label as customer")

def shuffled_once_it_is_known_to_be_large(rows):
    file = FOLDER / "large.json.gz"
    FOLDER.mkdir(exist_ok=True)
    keys = [number * 7919 % 10007 for number in range(10007)]
    file.write_bytes(gzip.compress("\\n".join(json.dumps({"key": key}) for key in keys).encode()))
    table = rows.sparkSession.read.schema("key BIGINT").json(str(file)).cache()
    return rows.join(table, rows.id % 97 == table.key).selectExpr("id", "'any' as customer").repartition("id")

def counted_after(rows):
    return rows.join(labels(rows), rows.id % 97 == functions.col("key")).groupBy("label").count().selectExpr("count as id")

def counted_where(rows):
    labels(rows).createOrReplaceTempView("labels")
    rows.createOrReplaceTempView("orders")
    return rows.sparkSession.sql("SELECT count(*) AS id FROM orders WHERE id > (SELECT min(key) FROM labels)")

def timed_out(rows):
    return rows.withWatermark("ts", "0 seconds").groupBy("id").applyInPandasWithState(
        lambda key, frames, state: frames, "id BIGINT", "n BIGINT", "append", STATE_TIMEOUT)
"""


def use(rig: Rig, function: str) -> dict[str, str]:
    """Let the stream use a function of the module; returns the environment in which it finds it."""
    (rig.folder / "tables_of_a_test.py").write_text(VERSIONS)
    rig.overrides["spec.transform"] = {"python": {"module": "tables_of_a_test", "function": function}}
    return {"PYTHONPATH": os.pathsep.join([str(rig.folder), *filter(None, [os.environ.get("PYTHONPATH")])])}


def test_a_record_is_joined_once_with_the_rows_that_the_run_that_landed_has_found(rig: Rig) -> None:
    environment = use(rig, "labelled")
    rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = 100
    rig.produce(300)
    result = rig.run(crash="batch.rows-written@2=kill-driver", environment=environment)
    assert result == Done(completed=True), rig.story()
    assert rig.verdicts() == ["FirstStart", "ReplayBatch"]
    rig.assert_exactly_once()
    found = dict(rig.sql("select customer, count(*) from orders group by customer"))
    first, second = sorted(found)
    assert (found[first], found[second]) == (100, 200), (
        "the batch that was killed has landed as its second run joined it"
    )


REFUSED = [
    ("counted_after", {"Update": "id"}, "keeps state (StateStoreSave) of records that it has joined or compared"),
    ("counted_where", {"Update": "id"}, "keeps state (StateStoreSave) of records that it has joined or compared"),
    ("shuffled_after", {}, "shuffles records that it has joined with other rows (Scan json)"),
    ("timed_out", {}, 'set spark.sql.streaming.stateStore.formatValidation.enabled: "false" in spec.sparkConf'),
]


@pytest.mark.parametrize(("function", "mode", "told"), one_or_all(REFUSED))
def test_what_another_run_could_make_otherwise_is_refused_before_a_row_lands(
    rig: Rig, function: str, mode: dict[str, str], told: str
) -> None:
    """By default each rule over the shapes of plans, and one with Spark: tests/unit/test_tables_read_again.py."""
    environment = use(rig, function)
    if mode:
        rig.sql("alter table orders add primary key (id)")
        rig.overrides |= {
            "spec.outputMode": "Update",
            "spec.sink.postgres": {
                **rig.document()["spec"]["sink"]["postgres"],
                "write": "Upsert",
                "keys": ["id"],
            },
        }
    rig.produce(4)
    halted = rig.run(environment=environment)
    assert isinstance(halted, Halted), rig.story()
    assert told in halted.message
    assert rig.landed() == 0


def test_a_plan_that_differs_from_the_first_one_is_inspected_too(rig: Rig) -> None:
    """A table that is cached is small as a file and large in memory: a broadcast is planned for the first batch alone."""
    environment = use(rig, "shuffled_once_it_is_known_to_be_large")
    rig.overrides["spec.sparkConf"] = {"spark.sql.autoBroadcastJoinThreshold": "60000"}
    rig.produce(300)
    halted = rig.run(environment=environment)
    assert isinstance(halted, Halted), rig.story()
    assert "shuffles records that it has joined with other rows" in halted.message
    assert rig.landed() == 0
