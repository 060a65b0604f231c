"""What a resource may not say of a sink of files: each case with its sentence."""

from __future__ import annotations

from tests.resource_documents import DELETING, Changes, Refused

CHECKPOINT = {"location": "s3a://lake/logs", "endpoint": "https://s3:9000", "secretRef": {"name": "lake"}}
ON_S3 = {**CHECKPOINT, "path": "s3a://lake/orders"}
del ON_S3["location"]
FILES: Changes = {"spec.sink": {"files": {"path": "/lake/orders"}}}

REFUSED_FILES = (
    Refused(
        "files at a path that is not a path",
        {"spec.sink": {"files": {"path": "lake/orders"}}},
        "spec.sink.files.path",
        "write s3a://bucket/folder, an absolute path, or file:///path",
    ),
    Refused(
        "files at a path that climbs",
        {"spec.sink": {"files": {"path": "/lake/../etc"}}},
        "spec.sink.files.path",
        "write the location without . and .. as parts of it",
    ),
    Refused(
        "a format that no file has",
        {"spec.sink": {"files": {"path": "/lake/orders", "format": "Excel"}}},
        "spec.sink.files.format",
        "is not one of",
        "Unsupported value",
    ),
    Refused(
        "a file size without a unit",
        {"spec.sink": {"files": {"path": "/lake/orders", "targetFileSize": "128"}}},
        "spec.sink.files.targetFileSize",
        "write a size such as 64Mi or 1Gi",
    ),
    Refused(
        "a partition column with a slash",
        {"spec.sink": {"files": {"path": "/lake/orders", "partitionBy": ["a/b"]}}},
        "spec.sink.files.partitionBy",
        "write a column's name of letters, digits, spaces, underscores and hyphens",
    ),
    Refused(
        "files partitioned by a source position",
        {"spec.sink": {"files": {"path": "/lake/orders", "partitionBy": ["_exactlyonce_offset"]}}},
        "spec.sink.files",
        "partitionBy may not name a column of the source position",
    ),
    Refused(
        "a former query's output without the log that readers follow",
        {"spec.sink": {"files": {"path": "/lake/orders", "manifest": "None", "continueAfterBatch": 12}}},
        "spec.sink.files",
        "continueAfterBatch needs manifest: SparkMetadata",
    ),
    Refused(
        "a former query's output with positions, which its rows do not have",
        {"spec.sink": {"files": {"path": "/lake/orders", "includePositions": True, "continueAfterBatch": 12}}},
        "spec.sink.files",
        "continueAfterBatch needs manifest: SparkMetadata",
    ),
    Refused(
        "a former query's output with what that query has read, by default",
        {"spec.sink": {"files": {"path": "/lake/orders", "continueAfterBatch": 12}}},
        "spec",
        "sink.files.continueAfterBatch needs source.kafka.start to say where that batch ends: Earliest would read again",
    ),
    Refused(
        "a former query's output behind a batch that cannot be",
        {"spec.sink": {"files": {"path": "/lake/orders", "continueAfterBatch": -1}}},
        "spec.sink.files.continueAfterBatch",
        "greater than or equal to 0",
    ),
    Refused(
        "files at a path on S3 without a folder",
        {"spec.sink": {"files": {"path": "s3a://lake"}}},
        "spec.sink.files.path",
        "write s3a://bucket/folder, an absolute path, or file:///path",
    ),
    Refused(
        "a login to S3 for files on a disk",
        {"spec.sink": {"files": {"path": "/lake/orders", "secretRef": {"name": "lake"}}}},
        "spec.sink.files",
        "secretRef, endpoint, region and pathStyle belong to a path on s3a://",
    ),
    Refused(
        "files on S3 with another login than the checkpoint",
        {"spec.sink": {"files": {**ON_S3, "secretRef": {"name": "another"}}}, "spec.checkpoint": {"s3": CHECKPOINT}},
        "spec",
        "sink.files.secretRef has to be that of checkpoint.s3: Spark's processes have one login to S3",
    ),
    Refused(
        "files on S3 without the login of the checkpoint",
        {"spec.sink": {"files": {"path": "s3a://other/orders"}}, "spec.checkpoint": {"s3": CHECKPOINT}},
        "spec",
        "sink.files.secretRef has to be that of checkpoint.s3: Spark's processes have one login to S3",
    ),
    Refused(
        "files in the checkpoint's bucket on another service",
        {"spec.sink": {"files": {**ON_S3, "endpoint": "https://s4:9000"}}, "spec.checkpoint": {"s3": CHECKPOINT}},
        "spec",
        "sink.files and checkpoint.s3 name the same bucket: give both the same endpoint, region and pathStyle",
    ),
    Refused(
        "a setting of Spark for the bucket of the files",
        {
            "spec.sink": {"files": ON_S3},
            "spec.sparkConf": {"spark.hadoop.fs.s3a.bucket.lake.endpoint": "https://elsewhere"},
            "spec.checkpoint": {"s3": {**CHECKPOINT, "location": "s3a://logs/orders"}},
        },
        "spec",
        "sparkConf may not set what begins with spark.hadoop.fs.s3a.bucket. and the bucket of sink.files",
    ),
    Refused(
        "files with another delivery",
        {**FILES, "spec.delivery": "AtLeastOnce"},
        "spec",
        "sink.files supports only delivery: ExactlyOnce",
    ),
    Refused(
        "files of rows that change",
        {**FILES, "spec.outputMode": "Update"},
        "spec",
        "sink.files needs outputMode: Append, since what has landed is never changed",
    ),
    Refused(
        "files with deletions",
        {**DELETING, **FILES},
        "spec",
        "source.format.onTombstone: Delete needs a sink whose rows can be deleted, not sink.files",
    ),
    Refused(
        "files with dead letters",
        {**FILES, "spec.source.format.onMalformed": "DeadLetter"},
        "spec",
        "source.format.onMalformed: DeadLetter needs a sink that keeps dead letters, not sink.files",
    ),
    Refused(
        "files with a checkpoint on a volume and no ledger",
        {**FILES, "spec.checkpoint": {"volume": {"claimName": "lake", "path": "/c/orders"}}},
        "spec",
        "give ledger where the checkpoint is on a volume: the operator needs the ledger and does not reach the volume",
    ),
    *(
        Refused(
            f"files {where} the checkpoint",
            {"spec.sink": {"files": {"path": files}}, "spec.checkpoint": {"local": {"path": checkpoint}}},
            "spec",
            "sink.files.path and the checkpoint have to be different folders, neither of them in the other",
        )
        for where, files, checkpoint in (
            ("in", "/lake/orders/out", "file:///lake/orders"),
            ("around", "file:///lake/orders", "/lake//orders/logs"),
            ("at the place of", "/lake/orders", "/lake/orders/"),
        )
    ),
    *(
        Refused(
            f"a ledger {where} the checkpoint",
            {
                **FILES,
                "spec.ledger": {"objectLog": {"location": ledger}},
                "spec.checkpoint": {"s3": {"location": checkpoint}},
            },
            "spec",
            "ledger.objectLog.location and the checkpoint have to be different folders, neither of them in the other, except "
            "for the folder ledger of the checkpoint's location",
        )
        for where, ledger, checkpoint in (
            ("in", "s3a://lake/logs/orders/other", "s3a://lake/logs/orders"),
            ("deep in", "s3a://lake/logs/ledger/orders", "s3a://lake/logs"),
            ("around", "s3a://lake/logs", "s3a://lake/logs/orders"),
            ("at the place of", "s3a://lake/logs", "s3a://lake/logs"),
        )
    ),
    *(
        Refused(
            f"a ledger {where} the files",
            {**FILES, "spec.ledger": {"objectLog": {"location": ledger}}},
            "spec",
            "ledger.objectLog.location and sink.files.path have to be different folders, neither of them in the other",
        )
        for where, ledger in (
            ("in", "file:///lake/orders/ledger"),
            ("around", "/lake"),
            ("at the place of", "/lake/orders//"),
        )
    ),
)
