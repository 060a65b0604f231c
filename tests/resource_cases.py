"""Resources, valid ones and ones made invalid in a known way: the change is the oracle, and the sentence is what is told.

The same cases go through `exactlyonce validate`'s own check (tests/unit/test_resource_schema.py) and through a real API server
(tests/cluster/test_resource.py).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from exactlyonce.api import refused_conf, refused_properties

Document = dict[str, Any]
Changes = Mapping[str, Any]

GONE = object()
"""In changes: the field is taken away."""

KAFKA = {"bootstrapServers": "kafka:9092", "topics": ["orders"]}
POSTGRES = {"secretRef": {"name": "warehouse"}, "table": "public.orders"}
NAME_SENTENCE = "write metadata.name with at most 49 lowercase letters, digits and hyphens"
OBJECT_NAME = "write the name of a Kubernetes object: lowercase letters, digits, hyphens and dots"
MEMORY = "write it in mebibytes or gibibytes, as 512m or 2g"
BY_KEY = {**POSTGRES, "write": "Upsert", "keys": ["id"]}
DELETING: Changes = {
    "spec.source.format.onTombstone": "Delete",
    "spec.transform": {"sql": "SELECT CAST(CAST(_key AS STRING) AS BIGINT) AS id, amount, _deleted FROM source"},
    "spec.sink.postgres": BY_KEY,
}
"""A stream whose tombstones delete rows."""
DELETES = "source.format.onTombstone: Delete needs sink.postgres.write: Upsert, whose keys say which row is deleted"
DURATION = "write it like 500ms, 10s, 5m or 1h30m"
LABEL_VALUE = "write a label's value: letters, digits, hyphens, underscores and dots"
OWN_NAMES = "names that begin with exactlyonce.dev/ are the operator's own; use another prefix"


@dataclass(frozen=True)
class Refused:
    """A change that makes the resource invalid, and the sentence told of it: here, and on the server where it differs."""

    name: str
    changes: Changes
    at: str
    sentence: str
    on_server: str | None = None

    @property
    def server_sentence(self) -> str:
        """What the API server says."""
        return self.sentence if self.on_server is None else self.on_server


def document(changes: Changes | None = None, *, name: str = "orders", namespace: str = "shop") -> Document:
    """Return the smallest resource, with changes: values by paths with dots, such as `spec.delivery`."""
    made: Document = {
        "apiVersion": "exactlyonce.dev/v1alpha1",
        "kind": "ExactlyOnceStream",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "source": {"kafka": dict(KAFKA), "format": {"schema": "id BIGINT, amount DECIMAL(12,2)"}},
            "sink": {"postgres": dict(POSTGRES)},
            "checkpoint": {"location": "s3a://lake/checkpoints/orders"},
        },
    }
    return changed(made, changes or {})


def changed(before: Document, changes: Changes) -> Document:
    """Return a copy with changes."""
    made = copy.deepcopy(before)
    for path, value in changes.items():
        *folders, last = path.split(".")
        place = made
        for folder in folders:
            place = place.setdefault(folder, {})
        if value is GONE:
            del place[last]
        else:
            place[last] = copy.deepcopy(value)
    return made


_POD_TEMPLATE = {
    "metadata": {"labels": {"team": "shop", "example.com/empty": ""}, "annotations": {"note": "hä? 100 %"}},
    "spec": {"nodeSelector": {"disk": "ssd"}, "containers": [{"name": "driver", "env": [{"name": "A", "value": "1"}]}]},
}
_POD = {"cores": 3, "memory": "2g", "memoryOverhead": "900m", "cpuRequest": "500m", "cpuLimit": "2.5"}

FULL = document(
    {
        "spec.streamId": "Shop/orders_1.x-y",
        "spec.delivery": "ExactlyOnce",
        "spec.image": "registry.example:5000/team/spark@sha256:0123",
        "spec.imagePullPolicy": "IfNotPresent",
        "spec.imagePullSecrets": [{"name": "registry"}, {"name": "other.registry"}],
        "spec.source.kafka": {
            **KAFKA,
            "start": {"from": "Offsets", "offsets": [{"topic": "orders", "partition": 0, "offset": 10**15}]},
            "maxRatePerPartition": 10,
            "properties": {"security.protocol": "SASL_SSL"},
            "secretRef": {"name": "kafka-client"},
        },
        "spec.source.format": {
            "type": "Csv",
            "schema": "id BIGINT NOT NULL",
            "onMalformed": "DeadLetter",
            "onTombstone": "Skip",
            "options": {"sep": ";"},
        },
        "spec.transform": {"python": {"module": "shop.orders", "function": "clean"}},
        "spec.outputMode": "Append",
        "spec.sink.postgres": {
            **POSTGRES,
            "write": "Upsert",
            "keys": ["id", "Größe"],
            "version": "v",
            "commit": "Partition",
            "transactionTimeout": "30m",
            "ledgerSchema": "ledger_1",
        },
        "spec.checkpoint": {
            "location": "s3a://lake/checkpoints/or-ders_(1)",
            "secretRef": {"name": "lake"},
            "endpoint": "https://s3.example:9000",
            "region": "eu-central-1",
            "pathStyle": True,
        },
        "spec.trigger": {"interval": "1h30m5s500ms", "availableNow": False},
        "spec.recovery": {
            "onCheckpointLost": "Halt",
            "onBatchTooLarge": "Retry",
            "onSourceTruncated": "ResumeFromEarliest",
            "onTopicDeleted": "Forget",
            "onBadUpdate": "Stay",
            "maxFailuresPerBatch": 9,
            "backoff": {"initial": "0s", "max": "1m30s"},
        },
        "spec.driver": {**_POD, "serviceAccountName": "spark", "startTimeout": "5m", "podTemplate": _POD_TEMPLATE},
        "spec.executor": {**_POD, "instances": 2, "maxInstances": 8, "podTemplate": _POD_TEMPLATE},
        "spec.sparkConf": {"spark.sql.shuffle.partitions": "16", "spark.speculation": " False"},
        "spec.sparkUi": {"enabled": True},
        "spec.drainTimeout": "24h",
        "spec.suspend": True,
        "spec.restartNonce": 7,
        "spec.deletionPolicy": "Delete",
        "spec.history": 0,
        "spec.ledgerRetention": {
            "batches": {"count": 200, "age": "1h"},
            "closedFailures": {"age": "9999h"},
            "lostFailures": {"age": "8760h"},
            "deadLetters": {"age": "720h"},
        },
        "spec.objectives": {"lagSeconds": 300},
    }
)
"""A resource with nearly every field, none at its default but outputMode: the others do not go with commit: Partition."""

VALID: Mapping[str, Changes] = {
    "as little as possible": {},
    "a topic pattern": {"spec.source.kafka": {"bootstrapServers": "kafka:9092", "topicPattern": "orders-(eu|us)"}},
    "a topic pattern of all that is allowed": {
        "spec.source.kafka": {
            "bootstrapServers": "kafka:9092",
            "topicPattern": r"^(?:[a-z]+\.)*?(orders|returns)-\d{2,4}[\w.-]?$|^(a){3}_\{\}$",
        }
    },
    "chosen partitions": {
        "spec.source.kafka": {"bootstrapServers": "k:1", "assign": [{"topic": "orders", "partitions": [0, 2]}]}
    },
    "a start at a moment": {
        "spec.source.kafka.start": {"from": "Timestamp", "timestamp": "2026-01-31T00:00:00.5+01:00"}
    },
    "raw values": {"spec.source.format": {"type": "Raw", "schema": "value BINARY", "options": {}}},
    "a merge": {"spec.sink.postgres": {**POSTGRES, "write": "Merge", "keys": ["id"], "merge": {"total": "Sum"}}},
    "changed rows by key": {
        "spec.outputMode": "Update",
        "spec.sink.postgres": {**POSTGRES, "write": "Upsert", "keys": ["id"]},
    },
    "changed rows that are merged": {
        "spec.outputMode": "Update",
        "spec.sink.postgres": {**POSTGRES, "write": "Merge", "keys": ["id"], "merge": {"total": "Last", "top": "Max"}},
    },
    "the whole result": {"spec.outputMode": "Complete"},
    "the state store of Spark's own default": {"spec.sparkConf": {refused_conf.STATE_STORE: refused_conf.IN_MEMORY}},
    "the later watermark": {"spec.sparkConf": {"spark.sql.streaming.multipleWatermarkPolicy": "max"}},
    "a table with quotes": {"spec.sink.postgres.table": '"my ""odd"" schema"."or.ders"'},
    "another delivery": {"spec.delivery": "AtMostOnce"},
    "a path": {"spec.checkpoint": {"location": "/var/lib/exactlyonce/orders"}},
    "a claim": {"spec.checkpoint": {"location": "/c/orders", "persistentVolumeClaim": {"claimName": "lake"}}},
    "a claim for several streams": {
        "spec.checkpoint": {
            "location": "file:///checkpoints/orders",
            "persistentVolumeClaim": {"claimName": "lake", "mountPath": "/checkpoints"},
        }
    },
    "what is there now": {"spec.trigger": {"availableNow": True}},
    "a name of 49 characters": {"metadata.name": "o" + 47 * "-" + "9"},
    "a name of one character": {"metadata.name": "o"},
    "settings of S3 that move no checkpoint": {
        "spec.sparkConf": {
            "spark.hadoop.fs.s3a.bucket.other.endpoint": "https://s3.example",
            "spark.hadoop.fs.s3a.bucket.lakes.endpoint.region": "eu-central-1",
            "spark.hadoop.fs.s3a.threads.max": "64",
            "spark.sql.ansi.enabled": "true",
            "spark.task.maxFailures": "8",
            "spark.ui.retainedJobs": "10",
        },
    },
    "every Kafka property that a stream may have": {
        "spec.source.kafka.properties": dict.fromkeys(refused_properties.ALLOWED, "x"),
    },
    "nulls, which are no fields": {
        "spec.transform": None,
        "spec.delivery": None,
        "spec.sparkConf": {"spark.x": None},
        "spec.source.kafka.properties": {"client.id": None, "client.rack": "a"},
        "spec.driver": {"podTemplate": {"metadata": {"labels": {"team": None}}}},
    },
    "lists that are empty": {"spec.imagePullSecrets": [], "spec.sink.postgres.keys": [], "spec.sparkConf": {}},
}

_RESULTS: Mapping[str, Changes] = {
    "Update": {**POSTGRES, "write": "Upsert", "keys": ["id"]},
    "Complete": {**POSTGRES},
}
"""The sink that each output mode beside Append may have."""

_TRIES = "sparkConf may not set spark.task.maxFailures and spark.stage.maxConsecutiveAttempts with delivery: AtMostOnce"

CASES = (
    *(
        Refused(f"{name}, once", {"spec.delivery": "AtMostOnce", "spec.sparkConf": {name: "2"}}, "spec", _TRIES)
        for name in ("spark.task.maxFailures", "spark.stage.maxConsecutiveAttempts")
    ),
    *(
        Refused(
            f"the {name} of the checkpoint's own bucket",
            {"spec.sparkConf": {f"spark.hadoop.fs.s3a.bucket.lake.{name}": "x"}},
            "spec",
            "sparkConf may not set what begins with spark.hadoop.fs.s3a.bucket. and the checkpoint's own bucket",
        )
        for name in ("endpoint", "endpoint.region", "path.style.access", "aws.credentials.provider", "requester.pays.enabled")
    ),
    Refused("an upper-case name", {"metadata.name": "Orders"}, "metadata.name", NAME_SENTENCE, "lowercase RFC 1123"),
    Refused("a name with a dot", {"metadata.name": "or.ders"}, "metadata.name", NAME_SENTENCE),
    Refused("a name with a digit first", {"metadata.name": "1orders"}, "metadata.name", NAME_SENTENCE),
    Refused("a name of 50 characters", {"metadata.name": 50 * "o"}, "metadata.name", NAME_SENTENCE),
    Refused("no spec", {"spec": GONE}, "spec", "this field is required", "Required value"),
    Refused("a stream id with a space", {"spec.streamId": "a b"}, "spec.streamId", "write letters, digits, dots"),
    Refused(
        "a stream id that is too long", {"spec.streamId": 201 * "a"}, "spec.streamId", "at most 200", "Too long: may not"
    ),
    Refused("an unknown delivery", {"spec.delivery": "Sometimes"}, "spec.delivery", "is not one of", "Unsupported value"),
    Refused("an image with a space", {"spec.image": "spark 1"}, "spec.image", "write an image as registry.example/"),
    Refused("an unknown pull policy", {"spec.imagePullPolicy": "Maybe"}, "imagePullPolicy", "not one of", "Unsupported"),
    Refused(
        "a pull secret twice",
        {"spec.imagePullSecrets": [{"name": "a"}, {"name": "a"}]},
        "spec.imagePullSecrets",
        "a stands in it twice; name it once",
        "Duplicate value",
    ),
    Refused(
        "a secret's name in upper case",
        {"spec.sink.postgres.secretRef": {"name": "Warehouse"}},
        "spec.sink.postgres.secretRef.name",
        OBJECT_NAME,
    ),
    Refused("no source", {"spec.source.kafka": GONE}, "spec.source", "give exactly one of: kafka"),
    Refused("no sink", {"spec.sink": {}}, "spec.sink", "give exactly one of: postgres"),
    Refused("a sink that is null", {"spec.sink.postgres": None}, "spec.sink", "give exactly one of: postgres"),
    Refused("an unknown sink", {"spec.sink.doris": {}}, "doris", "there is no such field", "unknown field"),
    Refused("an unknown field", {"spec.sourc": {}}, "sourc", "there is no such field", "unknown field"),
    Refused("a text for an object", {"spec.source": "kafka"}, "spec.source", "valid dictionary", "must be of type object"),
    Refused(
        "no topics at all",
        {"spec.source.kafka": {"bootstrapServers": "kafka:9092"}},
        "spec.source.kafka",
        "give exactly one of topics, topicPattern and assign",
    ),
    Refused(
        "topics and a pattern",
        {"spec.source.kafka.topicPattern": "o.*"},
        "spec.source.kafka",
        "give exactly one of topics, topicPattern and assign",
    ),
    Refused(
        "a pattern with lookahead",
        {"spec.source.kafka": {"bootstrapServers": "kafka:9092", "topicPattern": "(?!__).*"}},
        "spec.source.kafka.topicPattern",
        "use letters, digits, _ and -",
    ),
    Refused("an empty list of topics", {"spec.source.kafka.topics": []}, "topics", "give at least 1", "at least 1 items"),
    Refused("a topic twice", {"spec.source.kafka.topics": ["a", "a"]}, "topics", "stands in it twice", "Duplicate value"),
    Refused("a topic with a space", {"spec.source.kafka.topics": ["a b"]}, "topics", "write a topic's name"),
    Refused("a topic that is null", {"spec.source.kafka.topics": [None]}, "topics", "valid string", "must be of type string"),
    Refused(
        "a partition twice",
        {"spec.source.kafka": {"bootstrapServers": "k:1", "assign": [{"topic": "a", "partitions": [1, 1]}]}},
        "partitions",
        "1 stands in it twice; name it once",
        "Duplicate value",
    ),
    Refused(
        "a negative partition",
        {"spec.source.kafka": {"bootstrapServers": "k:1", "assign": [{"topic": "a", "partitions": [-1]}]}},
        "partitions",
        "greater than or equal to 0",
    ),
    Refused(
        "an assigned topic twice",
        {
            "spec.source.kafka": {
                "bootstrapServers": "k:1",
                "assign": [{"topic": "a", "partitions": [1]}, {"topic": "a", "partitions": [2]}],
            }
        },
        "assign",
        "a stands in it twice; name it once",
        "Duplicate value",
    ),
    Refused(
        "two limits",
        {
            "spec.source.kafka.maxOffsetsPerTrigger": 5,
            "spec.source.kafka.maxRatePerPartition": 5,
            "spec.trigger.interval": "1s",
        },
        "spec.source.kafka",
        "give maxOffsetsPerTrigger or maxRatePerPartition, not both",
    ),
    Refused(
        "a rate without an interval",
        {"spec.source.kafka.maxRatePerPartition": 5},
        "spec",
        "source.kafka.maxRatePerPartition needs trigger.interval: a rate is a number in a time",
    ),
    Refused(
        "a limit of nothing", {"spec.source.kafka.maxOffsetsPerTrigger": 0}, "maxOffsets", "greater than or equal to 1"
    ),
    Refused(
        "a limit beyond all numbers",
        {"spec.source.kafka.maxOffsetsPerTrigger": 10**18 + 1000},
        "maxOffsetsPerTrigger",
        "less than or equal to 1000000000000000000",
    ),
    Refused(
        "offsets with Earliest",
        {"spec.source.kafka.start": {"offsets": [{"topic": "a", "partition": 0, "offset": 1}]}},
        "spec.source.kafka.start",
        "offsets belongs to from: Offsets, and from: Offsets needs it",
    ),
    Refused(
        "Offsets without any",
        {"spec.source.kafka.start": {"from": "Offsets", "offsets": []}},
        "spec.source.kafka.start",
        "offsets belongs to from: Offsets, and from: Offsets needs it",
    ),
    Refused(
        "a start of one partition twice",
        {"spec.source.kafka.start": {"from": "Offsets", "offsets": 2 * [{"topic": "a", "partition": 0, "offset": 1}]}},
        "spec.source.kafka.start.offsets",
        "a, 0 stands in it twice; name it once",
        "Duplicate value",
    ),
    Refused(
        "a timestamp with Latest",
        {"spec.source.kafka.start": {"from": "Latest", "timestamp": "2026-01-31T00:00:00Z"}},
        "spec.source.kafka.start",
        "timestamp belongs to from: Timestamp, and from: Timestamp needs it",
    ),
    Refused(
        "a moment without a zone",
        {"spec.source.kafka.start": {"from": "Timestamp", "timestamp": "2026-01-31T00:00:00"}},
        "spec.source.kafka.start.timestamp",
        "is no moment; write it as 2026-01-31T00:00:00Z",
        "must be of type date-time",
    ),
    Refused(
        "a moment that never was",
        {"spec.source.kafka.start": {"from": "Timestamp", "timestamp": "2026-02-31T00:00:00Z"}},
        "spec.source.kafka.start.timestamp",
        "valid datetime",
        "must be of type date-time",
    ),
    Refused("no schema", {"spec.source.format": {}}, "schema", "this field is required", "Required value"),
    Refused("an empty schema", {"spec.source.format.schema": ""}, "schema", "at least 1 character", "at least 1 chars"),
    Refused(
        "an option of another format",
        {"spec.source.format.options": {"sep": ";"}},
        "spec.source.format",
        "options may set nothing but allowComments, ",
    ),
    Refused(
        "an unknown option of CSV",
        {"spec.source.format": {"type": "Csv", "schema": "a INT", "options": {"mode": "DROPMALFORMED"}}},
        "spec.source.format",
        "options may set nothing but comment, ",
    ),
    Refused(
        "an option of raw values",
        {"spec.source.format": {"type": "Raw", "schema": "a INT", "options": {"sep": ";"}}},
        "spec.source.format",
        "options may set nothing for Raw",
    ),
    Refused("a transform of nothing", {"spec.transform": {}}, "spec.transform", "give exactly one of sql and python"),
    Refused(
        "two transforms",
        {"spec.transform": {"sql": "SELECT 1", "python": {"module": "m"}}},
        "spec.transform",
        "give exactly one of sql and python",
    ),
    Refused(
        "a module with a hyphen",
        {"spec.transform": {"python": {"module": "my-module"}}},
        "spec.transform.python.module",
        "write a module's name as Python imports it",
    ),
    Refused(
        "a function with an umlaut",
        {"spec.transform": {"python": {"module": "m", "function": "änder"}}},
        "spec.transform.python.function",
        "write a function's name",
    ),
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
        {"spec.sink.postgres": {**POSTGRES, "write": "Merge", "keys": ["id"], "merge": {"id": "Sum"}}},
        "spec.sink.postgres",
        "merge may not name a column of keys",
    ),
    Refused(
        "a Merge by an average",
        {"spec.sink.postgres": {**POSTGRES, "write": "Merge", "keys": ["id"], "merge": {"a": "Average"}}},
        "spec.sink.postgres.merge",
        "is not one of",
        "Unsupported value",
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
        "a transaction a partition at least once",
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
            f"{mode} a transaction a partition",
            {"spec.outputMode": mode, "spec.sink.postgres": {**sink, "commit": "Partition"}},
            "spec",
            "outputMode: Update and Complete need sink.postgres.commit: Batch",
        )
        for mode, sink in _RESULTS.items()
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
            "spec.sink.postgres": {**POSTGRES, "write": "Merge", "keys": ["id"], "merge": {"n": "Max", "total": "Sum"}},
        },
        "spec",
        "outputMode: Update emits each total anew, and merge: Sum would add it to the former one; write Last",
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
        {**DELETING, "spec.sink.postgres": {**POSTGRES, "write": "Merge", "keys": ["id"], "merge": {"n": "Sum"}}},
        "spec",
        DELETES,
    ),
    Refused(
        "tombstones that delete beside a version",
        {**DELETING, "spec.sink.postgres": {**BY_KEY, "version": "at"}},
        "spec",
        "source.format.onTombstone: Delete excludes sink.postgres.version: a deleted row keeps none, so an older record would "
        "bring the row back",
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
            f"a checkpoint at {location}",
            {"spec.checkpoint": {"location": location}},
            "spec.checkpoint.location",
            "write s3a://bucket/folder, an absolute path, or file:///path",
        )
        for location in (
            "relative/path", "s3://bucket/folder", "s3a://bucket", "s3a://bucket/", "s3a://Bucket/x", "s3a://b.x/a b",
            "file://host/path", "hdfs://name/path",
        )
    ),
    *(
        Refused(
            f"a checkpoint at {location}",
            {"spec.checkpoint": {"location": location}},
            "spec.checkpoint.location",
            "write the location without . and .. as parts of it",
        )
        for location in ("s3a://lake/a/../b", "s3a://lake/..", "s3a://lake/./a", "/c/../d", "/c/.", "file:///../c")
    ),
    Refused(
        "an endpoint for a path",
        {"spec.checkpoint": {"location": "/c", "endpoint": "http://s3:9000"}},
        "spec.checkpoint",
        "secretRef, endpoint, region and pathStyle belong to a location on s3a://",
    ),
    Refused(
        "path style for a path",
        {"spec.checkpoint": {"location": "/c", "pathStyle": True}},
        "spec.checkpoint",
        "secretRef, endpoint, region and pathStyle belong to a location on s3a://",
    ),
    Refused(
        "an endpoint without a scheme",
        {"spec.checkpoint.endpoint": "s3:9000"},
        "spec.checkpoint.endpoint",
        "write it as https://host:port",
    ),
    Refused(
        "a region with a space",
        {"spec.checkpoint.region": "my region"},
        "spec.checkpoint.region",
        "write a region's name, such as eu-central-1",
    ),
    Refused(
        "a claim for a bucket",
        {"spec.checkpoint.persistentVolumeClaim": {"claimName": "lake"}},
        "spec.checkpoint",
        "persistentVolumeClaim belongs to a location that is a path",
    ),
    Refused(
        "a claim mounted elsewhere",
        {
            "spec.checkpoint": {
                "location": "/checkpoints-of-orders",
                "persistentVolumeClaim": {"claimName": "lake", "mountPath": "/checkpoints"},
            }
        },
        "spec.checkpoint",
        "persistentVolumeClaim.mountPath is to be the location's folder or one above it",
    ),
    Refused(
        "a mount path with a colon",
        {
            "spec.checkpoint": {
                "location": "/a:b/c", "persistentVolumeClaim": {"claimName": "lake", "mountPath": "/a:b"},
            }
        },
        "spec.checkpoint.persistentVolumeClaim.mountPath",
        "write an absolute path without a colon or a slash at its end",
    ),
    Refused(
        "two triggers",
        {"spec.trigger": {"interval": "1s", "availableNow": True}},
        "spec.trigger",
        "give interval or availableNow, not both",
    ),
    *(
        Refused(f"a drain timeout of {text!r}", {"spec.drainTimeout": text}, "spec.drainTimeout", DURATION)
        for text in ("5", "5 m", "1.5h", "-5m", "5m1h", "PT5M", "5M", "\u0665m", "12345h")
    ),
    Refused(
        "another answer to a bad update",
        {"spec.recovery": {"onBadUpdate": "Rollback"}},
        "spec.recovery.onBadUpdate",
        "is not one of",
        "Unsupported value",
    ),
    Refused("a first wait that is none", {"spec.recovery.backoff": {"initial": "1x"}}, "backoff.initial", DURATION),
    Refused("no drain timeout", {"spec.drainTimeout": "0s"}, "spec.drainTimeout", "give a time from 1s to 24h"),
    Refused(
        "no time for a transaction",
        {"spec.sink.postgres.transactionTimeout": "0s"},
        "spec.sink.postgres.transactionTimeout",
        "give a time from 1s to 24h",
    ),
    Refused("an empty duration", {"spec.drainTimeout": ""}, "spec.drainTimeout", DURATION),
    Refused("an interval of days", {"spec.trigger.interval": "25h"}, "interval", "give a time from 0s to 24h"),
    Refused("a short start timeout", {"spec.driver.startTimeout": "9s"}, "startTimeout", "give a time from 10s to 24h"),
    Refused("a number for a duration", {"spec.drainTimeout": 5}, "drainTimeout", "5 is no duration", "of type string"),
    Refused(
        "a first wait above the longest",
        {"spec.recovery.backoff": {"initial": "2m", "max": "60s"}},
        "spec.recovery.backoff",
        "initial may not exceed max",
    ),
    Refused("a text for a number", {"spec.driver.cores": "2"}, "spec.driver.cores", "valid integer", "type integer"),
    Refused("a truth for a number", {"spec.driver.cores": True}, "spec.driver.cores", "valid integer", "must be of type"),
    Refused("a text for a truth", {"spec.suspend": "true"}, "spec.suspend", "valid boolean", "type boolean"),
    Refused("half a core", {"spec.driver.cores": 0.5}, "spec.driver.cores", "valid integer", "type integer"),
    Refused("no cores", {"spec.executor.cores": 0}, "spec.executor.cores", "greater than or equal to 1"),
    Refused("memory as Kubernetes has it", {"spec.driver.memory": "2Gi"}, "spec.driver.memory", MEMORY),
    Refused("no memory", {"spec.executor.memory": "0m"}, "spec.executor.memory", MEMORY),
    Refused("no CPU", {"spec.executor.cpuRequest": "0"}, "cpuRequest", "write it as 2, 0.5 or 500m"),
    Refused(
        "fewer executors than there are",
        {"spec.executor": {"instances": 3, "maxInstances": 2}},
        "spec.executor",
        "maxInstances may not be less than instances",
    ),
    Refused(
        "an operator's label",
        {"spec.driver.podTemplate": {"metadata": {"labels": {"exactlyonce.dev/stream": "x"}}}},
        "spec.driver.podTemplate.metadata.labels",
        OWN_NAMES,
    ),
    Refused(
        "an operator's annotation",
        {"spec.executor.podTemplate": {"metadata": {"annotations": {"exactlyonce.dev/x": "x"}}}},
        "spec.executor.podTemplate.metadata.annotations",
        OWN_NAMES,
    ),
    Refused(
        "a label with a space",
        {"spec.driver.podTemplate": {"metadata": {"labels": {"a": "b c"}}}},
        "spec.driver.podTemplate.metadata.labels",
        LABEL_VALUE,
    ),
    Refused(
        "a number for a label",
        {"spec.driver.podTemplate": {"metadata": {"labels": {"a": 1}}}},
        "spec.driver.podTemplate.metadata.labels",
        "valid string",
        "must be of type string",
    ),
    Refused(
        "a selector beside a template's spec",
        {"spec.driver.podTemplate": {"nodeSelector": {}}},
        "nodeSelector",
        "there is no such field",
        "unknown field",
    ),
    Refused(
        "a number of shuffles that is none",
        {"spec.sparkConf": {"spark.sql.shuffle.partitions": "08"}},
        "spec.sparkConf",
        "spark.sql.shuffle.partitions is a whole number from 1 to 999999",
    ),
    Refused("a number for a setting", {"spec.sparkConf": {"spark.x": 8}}, "sparkConf", "valid string", "of type string"),
    Refused(
        "fewer batches than a decision may need",
        {"spec.ledgerRetention": {"batches": {"count": 199}}},
        "spec.ledgerRetention.batches.count",
        "greater than or equal to 200",
    ),
    *(
        Refused(
            f"{rows} that are kept for no time",
            {"spec.ledgerRetention": {rows: {"age": "59m"}}},
            f"spec.ledgerRetention.{rows}.age",
            "give a time from 1h to 9999h",
        )
        for rows in ("batches", "closedFailures", "lostFailures", "deadLetters")
    ),
    Refused("an objective of no lag", {"spec.objectives.lagSeconds": 0}, "lagSeconds", "greater than or equal to 1"),
    Refused("no such policy", {"spec.deletionPolicy": "Keep"}, "deletionPolicy", "is not one of", "Unsupported value"),
    Refused("a history of wars", {"spec.history": 101}, "spec.history", "less than or equal to 100"),
    Refused("a nonce below nothing", {"spec.restartNonce": -1}, "restartNonce", "greater than or equal to 0"),
)  # fmt: skip


def refused() -> Iterator[Refused]:
    """Yield every case, with one for each setting and property that is refused by name."""
    yield from CASES
    conf = dict.fromkeys((*refused_conf.ALWAYS, *refused_conf.WHEN_TRUE), "x")
    conf |= {f"{prefix}x": "x" for prefix in refused_conf.PREFIXES}
    conf |= dict.fromkeys(refused_conf.ONE_OF, "x")
    conf |= {"hadoop.x": "x", "spark.my.realTimeMode.x": "x", "spark.my.asyncProgress.x": "x"}
    conf |= {f"spark.my.{word.title()}": "canary" for word in refused_conf.SECRET_WORDS}
    conf |= dict.fromkeys(
        (
            "spark.hadoop.fs.azure.account.key.lake.example", "spark.hadoop.fs.s3a.bucket.other.access.key",
            "spark.hadoop.fs.azure.sas.fixed.token", "spark.hadoop.fs.gs.auth.service.account.private.key",
            "spark.ssl.keyPassword", "spark.hadoop.fs.azure.account.oauth2.client.secret",
        ),
        "canary",
    )  # fmt: skip
    s3a = (
        "endpoint",
        "endpoint.region",
        "path.style.access",
        "impl",
        "proxy.host",
        "aws.credentials.provider",
        "encryption.algorithm",
    )
    conf |= {f"{refused_conf.S3A}{name}": "x" for name in s3a}
    for key, value in conf.items():
        at, sentence = "spec.sparkConf", "sparkConf may not set "
        if key in refused_conf.ALWAYS or key in refused_conf.WHEN_TRUE:
            sentence += f"{key}: {refused_conf.refusal(key, value)}"
        yield Refused(f"the setting {key}", {"spec.sparkConf": {key: value}}, at, sentence)
    for key in ("sasl.login.callback.handler.class", "ssl.engine.factory.class", "check.crcs", "Client.Id"):
        at = "spec.source.kafka.properties"
        yield Refused(f"the property {key}", {at: {key: "x"}}, at, "properties may set nothing but client.dns.lookup, ")
    properties = {**refused_properties.REFUSED, **{f"ssl.{word}": "" for word in refused_properties.SECRET_WORDS}}
    for key, reason in properties.items():
        at, sentence = "spec.source.kafka.properties", f"properties may not set {f'{key}: {reason}' if reason else ''}"
        yield Refused(f"the property {key}", {at: {key: "canary"}}, at, sentence)
