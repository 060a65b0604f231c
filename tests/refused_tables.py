"""What a resource may not say of a Delta table: each case with its sentence."""

from __future__ import annotations

from tests.resource_documents import DELETING, Changes, Refused

CHECKPOINT = {"location": "s3a://lake/logs", "endpoint": "https://s3:9000", "secretRef": {"name": "lake"}}
ON_S3 = {**CHECKPOINT, "location": "s3a://lake/orders"}
TABLE: Changes = {"spec.sink": {"delta": {"location": "/lake/orders"}}}


def _table(**fields: object) -> Changes:
    return {"spec.sink": {"delta": {"location": "/lake/orders", **fields}}}


REFUSED_TABLES = (
    Refused(
        "a table at a path that is not a path",
        _table(location="lake/orders"),
        "spec.sink.delta.location",
        "write s3a://bucket/folder, an absolute path, or file:///path",
    ),
    Refused(
        "a table partitioned by a column twice",
        _table(partitionBy=["day", "day"]),
        "spec.sink.delta.partitionBy",
        "day stands in it twice; name it once",
        "Duplicate value",
    ),
    Refused(
        "an evolution that there is not",
        _table(schemaEvolution="Overwrite"),
        "spec.sink.delta.schemaEvolution",
        "is not one of",
        "Unsupported value",
    ),
    Refused(
        "a restore before the first version",
        _table(acceptedRestore=-1),
        "spec.sink.delta.acceptedRestore",
        "greater than or equal to 0",
    ),
    Refused(
        "a login to S3 for a table on a disk",
        _table(secretRef={"name": "lake"}),
        "spec.sink.delta",
        "secretRef, endpoint, region and pathStyle belong to a location on s3a://",
    ),
    Refused(
        "a table on S3 with another login than the checkpoint",
        {"spec.sink": {"delta": {**ON_S3, "secretRef": {"name": "another"}}}, "spec.checkpoint": {"s3": CHECKPOINT}},
        "spec",
        "sink.delta.secretRef has to be that of checkpoint.s3: Spark's processes have one login to S3",
    ),
    Refused(
        "a table in the checkpoint's bucket on another service",
        {"spec.sink": {"delta": {**ON_S3, "endpoint": "https://s4:9000"}}, "spec.checkpoint": {"s3": CHECKPOINT}},
        "spec",
        "sink.delta and checkpoint.s3 name the same bucket: give both the same endpoint, region and pathStyle",
    ),
    Refused(
        "a setting of Spark for the bucket of the table",
        {
            "spec.sink": {"delta": ON_S3},
            "spec.sparkConf": {"spark.hadoop.fs.s3a.bucket.lake.endpoint": "https://elsewhere"},
            "spec.checkpoint": {"s3": {**CHECKPOINT, "location": "s3a://logs/orders"}},
        },
        "spec",
        "sparkConf may not set what begins with spark.hadoop.fs.s3a.bucket. and the bucket of sink.delta",
    ),
    Refused(
        "a table with another delivery",
        {**TABLE, "spec.delivery": "AtLeastOnce"},
        "spec",
        "sink.delta supports only delivery: ExactlyOnce",
    ),
    Refused(
        "a table of rows that change",
        {**TABLE, "spec.outputMode": "Update"},
        "spec",
        "sink.delta needs outputMode: Append, since what has landed is never changed",
    ),
    Refused(
        "a table with deletions",
        {**DELETING, **TABLE},
        "spec",
        "source.format.onTombstone: Delete needs a sink whose rows can be deleted, not sink.delta",
    ),
    Refused(
        "a table with dead letters",
        {**TABLE, "spec.source.format.onMalformed": "DeadLetter"},
        "spec",
        "source.format.onMalformed: DeadLetter needs a sink that keeps dead letters, not sink.delta",
    ),
    Refused(
        "a table around the checkpoint",
        {**TABLE, "spec.checkpoint": {"local": {"path": "/lake/orders/logs"}}},
        "spec",
        "sink.delta.location and the checkpoint have to be different folders, neither of them in the other",
    ),
    Refused(
        "a ledger in the table",
        {**TABLE, "spec.ledger": {"objectLog": {"location": "file:///lake/orders/ledger"}}},
        "spec",
        "ledger.objectLog.location and sink.delta.location have to be different folders, neither of them in the other",
    ),
)
