"""What a resource may not say of where rows and checkpoints are kept: each case with its sentence."""

from __future__ import annotations

from collections.abc import Mapping

from tests.resource_documents import BY_KEY, DELETING, POSTGRES, Changes, Refused, merging

DELETES = "source.format.onTombstone: Delete needs sink.postgres.write: Upsert, whose keys say which row is deleted"
NO_DOTS = "write the location without . and .. as parts of it"
ONE_PLACE = "give exactly one of: s3, volume, local"
NO_LEDGER_IN_DYNAMO_DB = (
    "dynamoDb was removed: no ledger is kept in DynamoDB; write objectLog with the location of an empty folder of this stream "
    "alone, on S3 or on a disk, or leave ledger out to keep the object log beside the checkpoint"
)
_RESULTS: Mapping[str, Changes] = {
    "Update": {**POSTGRES, "write": "Upsert", "keys": ["id"]},
    "Complete": {**POSTGRES},
}
"""The sink that each output mode beside Append may have."""

REFUSED_SINKS = (
    Refused(
        "a table with two dots",
        {"spec.sink.postgres.table": "a.b.c"},
        "spec.sink.postgres.table",
        "write it as table or schema.table, and a name with a dot in double quotes",
    ),
    Refused(
        "keys with Append",
        {"spec.sink.postgres.keys": ["id"]},
        "spec.sink.postgres",
        "keys belongs to write: Upsert and Merge, and they need it",
    ),
    Refused(
        "an Upsert without keys",
        {"spec.sink.postgres.write": "Upsert"},
        "spec.sink.postgres",
        "keys belongs to write: Upsert and Merge, and they need it",
    ),
    Refused(
        "a key twice",
        {"spec.sink.postgres": {**POSTGRES, "write": "Upsert", "keys": ["id", "id"]}},
        "spec.sink.postgres.keys",
        "id stands in it twice; name it once",
        "Duplicate value",
    ),
    Refused(
        "a Merge of nothing",
        {"spec.sink.postgres": {**POSTGRES, "write": "Merge", "keys": ["id"]}},
        "spec.sink.postgres",
        "merge belongs to write: Merge, and write: Merge needs it",
    ),
    Refused(
        "a Merge of a key",
        {"spec.sink.postgres": merging(id="Sum")},
        "spec.sink.postgres",
        "merge may not name a column of keys",
    ),
    Refused(
        "a Merge of a column twice",
        {"spec.sink.postgres": {**merging(), "merge": 2 * merging(total="Sum")["merge"]}},
        "spec.sink.postgres.merge",
        "total stands in it twice; name it once",
        "Duplicate value",
    ),
    Refused(
        "a Merge by an average",
        {"spec.sink.postgres": merging(a="Average")},
        "spec.sink.postgres.merge",
        "is not one of",
        "Unsupported value",
    ),
    Refused(
        "a ledger beside a sink that holds it",
        {"spec.ledger": {"objectLog": {"location": "s3a://lake/ledger"}}},
        "spec",
        "leave ledger out with sink.postgres: the ledger is in the sink's own database",
    ),
    Refused("no place for a ledger", {"spec.ledger": {}}, "spec.ledger", "give exactly one of: postgres, objectLog"),
    Refused(
        "a ledger in DynamoDB, where none is kept any longer",
        {"spec.ledger": {"dynamoDb": {"table": "ledgers", "region": "eu-central-1"}}},
        "spec.ledger",
        NO_LEDGER_IN_DYNAMO_DB,
    ),
    Refused(
        "a ledger in DynamoDB and in a folder",
        {"spec.ledger": {"objectLog": {"location": "s3a://lake/ledger"}, "dynamoDb": {"table": "ledgers"}}},
        "spec.ledger",
        NO_LEDGER_IN_DYNAMO_DB,
    ),
    Refused(
        "a ledger in a database and in a folder",
        {
            "spec.ledger": {
                "objectLog": {"location": "s3a://lake/ledger"},
                "postgres": {"secretRef": {"name": "ledgers"}},
            }
        },
        "spec.ledger",
        "give exactly one of: postgres, objectLog",
    ),
    Refused(
        "a ledger at a relative path",
        {"spec.ledger": {"objectLog": {"location": "ledger"}}},
        "spec.ledger.objectLog.location",
        "write s3a://bucket/folder, an absolute path, or file:///path",
    ),
    Refused(
        "a ledger's endpoint for a path",
        {"spec.ledger": {"objectLog": {"location": "/ledger", "endpoint": "http://s3:9000"}}},
        "spec.ledger.objectLog",
        "secretRef, endpoint, region and pathStyle belong to a location on s3a://",
    ),
    Refused(
        "a version with Append",
        {"spec.sink.postgres.version": "v"},
        "spec.sink.postgres",
        "version belongs to write: Upsert",
    ),
    Refused(
        "a version among the keys",
        {"spec.sink.postgres": {**POSTGRES, "write": "Upsert", "keys": ["id", "v"], "version": "v"}},
        "spec.sink.postgres",
        "version may not be one of the keys",
    ),
    Refused(
        "a ledger's schema in upper case",
        {"spec.sink.postgres.ledgerSchema": "Ledger"},
        "spec.sink.postgres.ledgerSchema",
        "write a plain name: lowercase letters, digits and underscores, no digit first",
    ),
    Refused(
        "a transaction per partition at least once",
        {"spec.sink.postgres.commit": "Partition", "spec.delivery": "AtLeastOnce"},
        "spec",
        "sink.postgres.commit: Partition belongs to delivery: ExactlyOnce",
    ),
    Refused("no such output mode", {"spec.outputMode": "Retract"}, "spec.outputMode", "is not one of", "Unsupported value"),
    *(
        Refused(
            f"{mode} {delivery}",
            {"spec.outputMode": mode, "spec.delivery": delivery, "spec.sink.postgres": sink},
            "spec",
            "outputMode: Update and Complete belong to delivery: ExactlyOnce",
        )
        for mode, sink in _RESULTS.items()
        for delivery in ("AtLeastOnce", "AtMostOnce")
    ),
    *(
        Refused(
            f"{mode} a transaction per partition",
            {"spec.outputMode": mode, "spec.sink.postgres": {**sink, "commit": "Partition"}},
            "spec",
            "outputMode: Update and Complete need sink.postgres.commit: Batch",
        )
        for mode, sink in _RESULTS.items()
    ),
    *(
        Refused(
            f"{mode} and {asked}",
            {"spec.outputMode": mode, "spec.sink.postgres": sink, "spec.recovery": {"onPoisonBatch": asked}},
            "spec",
            "recovery.onPoisonBatch: Quarantine and Bisect need outputMode: Append; the state of an aggregation would lack",
        )
        for mode, sink in _RESULTS.items()
        for asked in ("Quarantine", "Bisect")
    ),
    Refused(
        "changed rows that are appended",
        {"spec.outputMode": "Update"},
        "spec",
        "outputMode: Update emits a row again when it has changed, so it needs sink.postgres.write: Upsert or Merge",
    ),
    Refused(
        "totals that are added to themselves",
        {
            "spec.outputMode": "Update",
            "spec.sink.postgres": merging(n="Max", total="Sum"),
        },
        "spec",
        "outputMode: Update emits each total again, and combine: Sum would add it to the former one; write Last",
    ),
    Refused(
        "a whole result by key",
        {"spec.outputMode": "Complete", "spec.sink.postgres": {**POSTGRES, "write": "Upsert", "keys": ["id"]}},
        "spec",
        "outputMode: Complete replaces all rows of the table, so it needs sink.postgres.write: Append",
    ),
    Refused(
        "tombstones that delete from a table that is appended to",
        {**DELETING, "spec.sink.postgres": POSTGRES},
        "spec",
        DELETES,
    ),
    Refused(
        "tombstones that delete from a table that is merged into",
        {**DELETING, "spec.sink.postgres": merging(n="Sum")},
        "spec",
        DELETES,
    ),
    Refused(
        "tombstones that delete beside a version",
        {**DELETING, "spec.sink.postgres": {**BY_KEY, "version": "at"}},
        "spec",
        "source.format.onTombstone: Delete excludes sink.postgres.version: a deleted row keeps no version, so an older record "
        "would bring the row back",
    ),
    Refused(
        "tombstones that delete rows of an aggregation",
        {**DELETING, "spec.outputMode": "Update"},
        "spec",
        "source.format.onTombstone: Delete needs outputMode: Append, since a row of an aggregation belongs to no single record",
    ),
    Refused(
        "tombstones that delete without a transform that says what",
        {**DELETING, "spec.transform": None},
        "spec",
        "source.format.onTombstone: Delete needs a transform, which takes the keys of a deletion from _key",
    ),
    *(
        Refused(
            f"a checkpoint on S3 at {location}",
            {"spec.checkpoint.s3.location": location},
            "spec.checkpoint.s3.location",
            "write s3a://bucket/folder",
        )
        for location in (
            "relative/path", "/a/path", "s3://bucket/folder", "s3a://bucket", "s3a://bucket/", "s3a://Bucket/x",
            "s3a://b.x/a b", "hdfs://name/path",
        )
    ),
    *(
        Refused(
            f"a checkpoint in the folder {path}",
            {"spec.checkpoint": {"local": {"path": path}}},
            "spec.checkpoint.local.path",
            "write an absolute path, or file:///path",
        )
        for path in ("relative/path", "s3a://bucket/folder", "file://host/path", "hdfs://name/path")
    ),
    Refused(
        "a checkpoint at a relative path of a volume",
        {"spec.checkpoint": {"volume": {"claimName": "lake", "path": "orders"}}},
        "spec.checkpoint.volume.path",
        "write an absolute path, or file:///path",
    ),
    *(
        Refused(
            f"a checkpoint at {location}",
            {"spec.checkpoint.s3.location": location},
            "spec.checkpoint.s3.location",
            NO_DOTS,
        )
        for location in ("s3a://lake/a/../b", "s3a://lake/..", "s3a://lake/./a")
    ),
    *(
        Refused(
            f"a checkpoint at {path}", {"spec.checkpoint": {"local": {"path": path}}}, "spec.checkpoint.local.path", NO_DOTS
        )
        for path in ("/c/../d", "/c/.", "file:///../c")
    ),
    Refused("no place for a checkpoint", {"spec.checkpoint": {}}, "spec.checkpoint", ONE_PLACE),
    Refused("two places for a checkpoint", {"spec.checkpoint.local": {"path": "/c"}}, "spec.checkpoint", ONE_PLACE),
    Refused(
        "an endpoint without a scheme",
        {"spec.checkpoint.s3.endpoint": "s3:9000"},
        "spec.checkpoint.s3.endpoint",
        "write it as https://host:port",
    ),
    Refused(
        "a region with a space",
        {"spec.checkpoint.s3.region": "my region"},
        "spec.checkpoint.s3.region",
        "write a region's name, such as eu-central-1",
    ),
    Refused(
        "a claim mounted elsewhere",
        {
            "spec.checkpoint": {
                "volume": {"claimName": "lake", "path": "/checkpoints-of-orders", "mountPath": "/checkpoints"}
            }
        },
        "spec.checkpoint.volume",
        "mountPath has to be the folder of path, or one above it",
    ),
    Refused(
        "a mount path with a colon",
        {"spec.checkpoint": {"volume": {"claimName": "lake", "path": "/a:b/c", "mountPath": "/a:b"}}},
        "spec.checkpoint.volume.mountPath",
        "write an absolute path without a colon or a slash at its end",
    ),
)  # fmt: skip
