"""What a resource may not say of an Iceberg table: each case with its sentence."""

from __future__ import annotations

from tests.resource_documents import DELETING, GONE, Changes, Refused

CHECKPOINT = {"location": "s3a://lake/logs", "endpoint": "https://s3:9000", "secretRef": {"name": "lake"}}
ON_S3 = {**CHECKPOINT, "location": "s3a://lake/orders"}
CATALOG = {"sql": {"secretRef": {"name": "catalog"}}}


def _table(location: str = "/lake/orders", **fields: object) -> Changes:
    return {"spec.sink": {"iceberg": {"catalog": CATALOG, "table": "shop.orders", "location": location, **fields}}}


def _on_s3(**fields: object) -> Changes:
    return _table(**{**ON_S3, **fields})  # type: ignore[arg-type]


TABLE = _table()

REFUSED_ICEBERG = (
    Refused(
        "an Iceberg table at a path that is not a path",
        _table("lake/orders"),
        "spec.sink.iceberg.location",
        "write s3a://bucket/folder, an absolute path, or file:///path",
    ),
    Refused(
        "an Iceberg table partitioned by a column twice",
        _table(partitionBy=["day", "day"]),
        "spec.sink.iceberg.partitionBy",
        "day stands in it twice; name it once",
        "Duplicate value",
    ),
    Refused(
        "an evolution of an Iceberg table that there is not",
        _table(schemaEvolution="Overwrite"),
        "spec.sink.iceberg.schemaEvolution",
        "is not one of",
        "Unsupported value",
    ),
    Refused(
        "a rollback before the first batch",
        _table(acceptedRollback=-1),
        "spec.sink.iceberg.acceptedRollback",
        "greater than or equal to 0",
    ),
    Refused(
        "a catalog without a name",
        _table(catalog={"sql": {"secretRef": {"name": "catalog"}, "name": ""}}),
        "spec.sink.iceberg.catalog.sql.name",
        "write a name: letters, digits, underscores, dots and hyphens",
    ),
    Refused(
        "an Iceberg table without a namespace",
        _table(table="orders"),
        "spec.sink.iceberg.table",
        "write namespace.table: letters, digits, underscores and hyphens in each",
    ),
    Refused(
        "a login to S3 for an Iceberg table on a disk",
        _table(secretRef={"name": "lake"}),
        "spec.sink.iceberg",
        "secretRef, endpoint, region and pathStyle belong to a location on s3a://",
    ),
    Refused(
        "an Iceberg table on S3 with another login than the checkpoint",
        {**_on_s3(secretRef={"name": "another"}), "spec.checkpoint": {"s3": CHECKPOINT}},
        "spec",
        "sink.iceberg.secretRef has to be that of checkpoint.s3: Spark's processes have one login to S3",
    ),
    Refused(
        "an Iceberg table in the checkpoint's bucket on another service",
        {**_on_s3(endpoint="https://s4:9000"), "spec.checkpoint": {"s3": CHECKPOINT}},
        "spec",
        "sink.iceberg and checkpoint.s3 name the same bucket: give both the same endpoint, region and pathStyle",
    ),
    Refused(
        "a setting of Spark for the bucket of an Iceberg table",
        {
            **_on_s3(),
            "spec.sparkConf": {"spark.hadoop.fs.s3a.bucket.lake.endpoint": "https://elsewhere"},
            "spec.checkpoint": {"s3": {**CHECKPOINT, "location": "s3a://logs/orders"}},
        },
        "spec",
        "sparkConf may not set what begins with spark.hadoop.fs.s3a.bucket. and the bucket of sink.iceberg",
    ),
    Refused(
        "an Iceberg table with another delivery",
        {**TABLE, "spec.delivery": "AtLeastOnce"},
        "spec",
        "sink.iceberg supports only delivery: ExactlyOnce",
    ),
    Refused(
        "an Iceberg table of rows that change",
        {**TABLE, "spec.outputMode": "Update"},
        "spec",
        "sink.iceberg needs outputMode: Append, since what has landed is never changed",
    ),
    Refused(
        "an Iceberg table with deletions",
        {**DELETING, **TABLE},
        "spec",
        "source.format.onTombstone: Delete needs a sink whose rows can be deleted, not sink.iceberg",
    ),
    Refused(
        "an Iceberg table with dead letters",
        {**TABLE, "spec.source.format.onMalformed": "DeadLetter"},
        "spec",
        "source.format.onMalformed: DeadLetter needs a sink that keeps dead letters, not sink.iceberg",
    ),
    Refused(
        "an Iceberg table around the checkpoint",
        {**TABLE, "spec.checkpoint": {"local": {"path": "/lake/orders/logs"}}},
        "spec",
        "sink.iceberg.location and the checkpoint have to be different folders, neither of them in the other",
    ),
    *(
        Refused(
            f"a source whose {field} is in the stream's own Iceberg table",
            {**TABLE, "spec.source.kafka": GONE, "spec.source.files": {"path": "/incoming", **fields}},
            "spec",
            f"source.files.{field} and sink.iceberg.location have to be different folders, neither of them in the other",
        )
        for field, fields in (
            ("path", {"path": "/lake/orders/new"}),
            ("archivePath", {"cleanSource": "Archive", "archivePath": "/lake"}),
        )
    ),
    Refused(
        "a ledger in an Iceberg table",
        {**TABLE, "spec.ledger": {"objectLog": {"location": "file:///lake/orders/ledger"}}},
        "spec",
        "ledger.objectLog.location and sink.iceberg.location have to be different folders, neither of them in the other",
    ),
)
