"""Resources as documents: the smallest, one with nearly every field, other valid ones, and changes that make one invalid."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exactlyonce.api import refused_conf
from exactlyonce.connectors.doris import load_properties
from exactlyonce.connectors.kafka import client_properties
from exactlyonce.connectors.kafka.sink_spec import SINK_ALLOWED

Document = dict[str, Any]
Changes = Mapping[str, Any]

GONE = object()
"""In changes: the field is taken away."""

KAFKA = {"bootstrapServers": "kafka:9092", "topics": ["orders"]}
POSTGRES = {"secretRef": {"name": "warehouse"}, "table": "public.orders"}
KAFKA_LOGIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example/oauth2/token",
    "ssl.endpoint.identification.algorithm": "none",
}
KAFKA_SINK = {"bootstrapServers": "kafka.sales:9092", "topic": "rows"}
DORIS = {"frontends": ["fe-1.doris:8030"], "database": "shop", "table": "orders", "secretRef": {"name": "doris"}}
BY_KEY = {**POSTGRES, "write": "Upsert", "keys": ["id"]}
DELETING: Changes = {
    "spec.source.format.onTombstone": "Delete",
    "spec.transform": {"sql": "SELECT CAST(CAST(_key AS STRING) AS BIGINT) AS id, amount, _deleted FROM source"},
    "spec.sink.postgres": BY_KEY,
}
"""A stream whose tombstones delete rows."""


def merging(**columns: str) -> Document:
    """Return a sink that merges these columns, each with how it is combined."""
    merge = [{"column": column, "combine": combine} for column, combine in columns.items()]
    return {**POSTGRES, "write": "Merge", "keys": ["id"], "merge": merge}


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
            "checkpoint": {"s3": {"location": "s3a://lake/checkpoints/orders"}},
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
_POD = {"cores": 3, "memory": "2Gi", "memoryOverhead": "900Mi", "cpuRequest": "500m", "cpuLimit": "2.5"}

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
            "timestampUnit": "Milliseconds",
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
        "spec.checkpoint.s3": {
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
            "onPoisonBatch": "Quarantine",
            "maxQuarantined": 1000,
            "backoff": {"initial": "0s", "max": "1m30s"},
        },
        "spec.replay": {
            "schedule": "*/15 3-5 1,15 * 0-6/2",
            "timeZone": "America/Argentina/Buenos_Aires",
            "whenFailedRecords": 1000,
            "whenFailedFor": "30m",
            "limit": 500,
            "history": 5,
            "suspend": True,
        },
        "spec.driver": {
            **_POD,
            "serviceAccountName": "spark",
            "startTimeout": "5m",
            "progressTimeout": "1h",
            "podTemplate": _POD_TEMPLATE,
        },
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
        "spec.checkpointRetention": {"batches": 1000, "generations": {"count": 1, "age": "1h"}},
        "spec.objectives": {"lagSeconds": 300},
    }
)
"""A resource with nearly every field, none at its default but outputMode: the others do not go with commit: Partition."""

NOT_IN_FULL = {"ledger"}
"""The fields that do not go with its sink, which holds the ledger."""

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
    "a merge": {"spec.sink.postgres": merging(total="Sum")},
    "files with the ledger beside the checkpoint": {"spec.sink": {"files": {"path": "/lake/orders"}}},
    "files whose folders have names that begin alike": {
        "spec.sink": {"files": {"path": "/lake/orders"}},
        "spec.checkpoint": {"local": {"path": "/lake/orders-logs"}},
        "spec.ledger": {"objectLog": {"location": "/lake/orders-ledger"}},
    },
    "files with the ledger named where it is by default": {
        "spec.sink": {"files": {"path": "/lake/orders"}},
        "spec.checkpoint": {"local": {"path": "/logs/orders/"}},
        "spec.ledger": {"objectLog": {"location": "file:///logs/orders/ledger"}},
    },
    "files with the ledger on S3": {
        "spec.sink": {"files": {"path": "/lake/orders"}},
        "spec.checkpoint": {"volume": {"claimName": "lake", "path": "/c/orders"}},
        "spec.ledger": {"objectLog": {"location": "s3a://ledgers/orders", "region": "eu-central-1"}},
    },
    "files on S3 beside the checkpoint": {
        "spec.checkpoint": {
            "s3": {"location": "s3a://lake/logs", "endpoint": "https://s3:9000", "secretRef": {"name": "lake"}}
        },
        "spec.sink": {
            "files": {"path": "s3a://lake/orders", "endpoint": "https://s3:9000", "secretRef": {"name": "lake"}}
        },
    },
    "files on S3 with what the pods are given": {
        "spec.checkpoint": {"s3": {"location": "s3a://logs/orders"}},
        "spec.sink": {"files": {"path": "s3a://lake/orders", "region": "eu-central-1"}},
        "spec.sparkConf": {"spark.hadoop.fs.s3a.bucket.others.endpoint": "https://elsewhere"},
    },
    "files with all that can be said of them": {
        "spec.sink": {
            "files": {
                "path": "file:///lake/orders",
                "format": "Csv",
                "partitionBy": ["day", "customer id"],
                "targetFileSize": "64Mi",
                "includePositions": True,
                "manifest": "None",
            }
        },
        "spec.ledger": {"postgres": {"secretRef": {"name": "warehouse"}}},
    },
    "a topic of Kafka with the ledger beside the checkpoint": {"spec.sink": {"kafka": KAFKA_SINK}},
    "a topic of Kafka with all that can be said of it": {
        "spec.sink": {
            "kafka": {
                **KAFKA_SINK,
                "secretRef": {"name": "kafka"},
                "key": "id",
                "value": "document",
                "headers": [{"name": "region", "column": "region"}],
                "transactionTimeout": "15m",
                "properties": {**dict.fromkeys(SINK_ALLOWED, "x"), **KAFKA_LOGIN},
            }
        },
        "spec.ledger": {"postgres": {"secretRef": {"name": "warehouse"}}},
    },
    "a topic of the same name on other brokers": {
        "spec.source.kafka.topics": ["rows"],
        "spec.sink": {"kafka": {**KAFKA_SINK, "bootstrapServers": "another.cluster:9092"}},
    },
    "a table of Doris with the ledger beside the checkpoint": {"spec.sink": {"doris": DORIS}},
    "a table of Doris with broker loads of large tasks": {
        "spec.sink": {
            "doris": {
                **DORIS,
                "load": "Auto",
                "brokerLoadAbove": "512Mi",
                "queryPort": 9031,
                "tls": "All",
                "properties": {"load_to_single_tablet": "true"},
                "columns": ["id"],
                "stagingLocation": {
                    "location": "s3a://lake/staging/orders",
                    "endpoint": "https://s3.internal:9000",
                    "pathStyle": True,
                    "secretRef": {"name": "writer"},
                    "readerSecretRef": {"name": "reader"},
                },
            }
        },
    },
    "a table of Doris with all that can be said of it": {
        "spec.sink": {
            "doris": {
                "frontends": ["fe-1.doris:8030", "[fd00::1]:80", "10.0.0.1:65535"],
                "database": "Größe",
                "table": "orders-1",
                "secretRef": {"name": "doris"},
                "write": "Upsert",
                "loadTimeout": "1h",
                "retries": 10,
                "labelFormat": "Compatible",
                "columns": ["id", "größe", "total=if(id > 1, concat(id, ','), 3)"],
                "properties": dict.fromkeys(load_properties.ALLOWED, "x ~"),
            }
        },
        "spec.ledger": {"objectLog": {"location": "s3a://ledgers/orders", "region": "eu-central-1"}},
    },
    "changed rows by key": {
        "spec.outputMode": "Update",
        "spec.sink.postgres": {**POSTGRES, "write": "Upsert", "keys": ["id"]},
    },
    "changed rows that are merged": {
        "spec.outputMode": "Update",
        "spec.sink.postgres": merging(total="Last", top="Max"),
    },
    "the whole result": {"spec.outputMode": "Complete"},
    "the state store of Spark's own default": {"spec.sparkConf": {refused_conf.STATE_STORE: refused_conf.IN_MEMORY}},
    "the later watermark": {"spec.sparkConf": {"spark.sql.streaming.multipleWatermarkPolicy": "max"}},
    "a table with quotes": {"spec.sink.postgres.table": '"my ""odd"" schema"."or.ders"'},
    "another delivery": {"spec.delivery": "AtMostOnce"},
    "a folder of this machine": {"spec.checkpoint": {"local": {"path": "/var/lib/exactlyonce/orders"}}},
    "a claim": {"spec.checkpoint": {"volume": {"claimName": "lake", "path": "/c/orders"}}},
    "a claim for several streams": {
        "spec.checkpoint": {
            "volume": {"claimName": "lake", "path": "file:///checkpoints/orders", "mountPath": "/checkpoints"}
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
        "spec.source.kafka.secretRef": {"name": "kafka-client"},
        "spec.source.kafka.properties": {**dict.fromkeys(client_properties.ALLOWED, "x"), **KAFKA_LOGIN},
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
