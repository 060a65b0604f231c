"""What a resource may not say of itself and of what it reads: each case with its sentence."""

from __future__ import annotations

from tests.resource_documents import GONE, Refused

NAME_SENTENCE = "write metadata.name with at most 49 lowercase letters, digits and hyphens"
OBJECT_NAME = "write the name of a Kubernetes object: lowercase letters, digits, hyphens and dots"
_TRIES = "sparkConf may not set spark.task.maxFailures and spark.stage.maxConsecutiveAttempts with delivery: AtMostOnce"

REFUSED_SOURCES = (
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
    Refused("no sink", {"spec.sink": {}}, "spec.sink", "give exactly one of: kafka, postgres"),
    Refused("a sink that is null", {"spec.sink.postgres": None}, "spec.sink", "give exactly one of: kafka, postgres"),
    Refused("an unknown sink", {"spec.sink.clickhouse": {}}, "clickhouse", "there is no such field", "unknown field"),
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
        "source.kafka.maxRatePerPartition needs trigger.interval: the rate is multiplied by that interval",
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
        "ConsumerGroup without a group",
        {"spec.source.kafka.start": {"from": "ConsumerGroup"}},
        "spec.source.kafka.start",
        "group belongs to from: ConsumerGroup, and from: ConsumerGroup needs it",
    ),
    Refused(
        "a group with Latest",
        {"spec.source.kafka.start": {"from": "Latest", "group": "billing"}},
        "spec.source.kafka.start",
        "group belongs to from: ConsumerGroup, and from: ConsumerGroup needs it",
    ),
    Refused(
        "a group with a line break",
        {"spec.source.kafka.start": {"from": "ConsumerGroup", "group": "bill\ning"}},
        "spec.source.kafka.start.group",
        "write a consumer group's name in printable ASCII",
    ),
    Refused(
        "a mirror without a group",
        {"spec.source.kafka.mirrorOffsets": {}},
        "spec.source.kafka.mirrorOffsets.group",
        "this field is required",
        "Required value",
    ),
    Refused(
        "a moment without a zone",
        {"spec.source.kafka.start": {"from": "Timestamp", "timestamp": "2026-01-31T00:00:00"}},
        "spec.source.kafka.start.timestamp",
        "is not a timestamp; write it as 2026-01-31T00:00:00Z",
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
        "options may set nothing but timeZone, ",
    ),
    Refused(
        "an unknown option of CSV",
        {"spec.source.format": {"type": "Csv", "schema": "a INT", "options": {"mode": "DROPMALFORMED"}}},
        "spec.source.format",
        "options may set nothing but sep, ",
    ),
    Refused(
        "an option of Spark's parser",
        {"spec.source.format": {"type": "Csv", "schema": "a INT", "options": {"emptyValue": "-"}}},
        "spec.source.format",
        "options may set nothing but sep, ",
    ),
    Refused(
        "numbers that are neither taken nor refused",
        {"spec.source.format.options": {"allowNonNumericNumbers": "yes"}},
        "spec.source.format",
        "options.allowNonNumericNumbers is true or false",
    ),
    Refused(
        "a unit of times in bytes",
        {"spec.source.format": {"type": "Raw", "schema": "a BINARY", "timestampUnit": "Seconds"}},
        "spec.source.format",
        "timestampUnit is for Json and Csv",
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
)  # fmt: skip
