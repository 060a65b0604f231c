"""What a resource may not say of a topic of Kafka that it writes to: each case with its sentence."""

from __future__ import annotations

from typing import Any

from exactlyonce.connectors.kafka.sink_spec import SINK_REFUSED
from tests.resource_documents import DELETING, KAFKA_SINK, Refused


def of_kafka(name: str, at: str, sentence: str, on_server: str | None = None, **changed: Any) -> Refused:
    return Refused(name, {"spec.sink": {"kafka": {**KAFKA_SINK, **changed}}}, at, sentence, on_server)


def beside_kafka(name: str, sentence: str, **changed: Any) -> Refused:
    changes = {"spec.sink": {"kafka": KAFKA_SINK}, **{f"spec.{at}": value for at, value in changed.items()}}
    return Refused(name, changes, "spec", sentence)


REFUSED_KAFKA_SINKS = (
    of_kafka("rows into a topic of Kafka's own", "spec.sink.kafka.topic", "this topic is Kafka's own",
             topic="__consumer_offsets"),
    of_kafka("rows into a topic with a space", "spec.sink.kafka.topic", "write a topic's name", topic="a b"),
    of_kafka("a transaction of two hours", "spec.sink.kafka.transactionTimeout", "give a time from 10s to 1h",
             transactionTimeout="2h"),
    of_kafka("a header twice", "spec.sink.kafka.headers", "h stands in it twice; name it once", "Duplicate value",
             headers=[{"name": "h", "column": "a"}, {"name": "h", "column": "b"}]),
    *(
        of_kafka(f"the producer's property {key}", "spec.sink.kafka.properties", f"properties may not set {key}: {reason}",
                 properties={key: "x"})
        for key, reason in SINK_REFUSED.items()
    ),
    of_kafka("a password among the producer's properties", "spec.sink.kafka.properties",
             "credentials belong in the secret that sink.kafka.secretRef names", properties={"ssl.key.password": "x"}),
    of_kafka("another property of the producer", "spec.sink.kafka.properties", "properties may set nothing but client.id, ",
             properties={"retries": "0"}),
    of_kafka("a check of hosts that is empty in a sink", "spec.sink.kafka.properties", "is https, or none, which switches off",
             properties={"ssl.endpoint.identification.algorithm": ""}),
    of_kafka("a sink's login by IAM to brokers elsewhere", "spec.sink.kafka", "needs sink.kafka.bootstrapServers as Amazon",
             properties={"sasl.mechanism": "AWS_MSK_IAM", "security.protocol": "SASL_SSL"}),
    of_kafka("a sink's login without a secret", "spec.sink.kafka", "sasl.mechanism needs secretRef",
             properties={"sasl.mechanism": "PLAIN"}),
    beside_kafka("rows into Kafka at least once", "sink.kafka supports only delivery: ExactlyOnce", delivery="AtLeastOnce"),
    beside_kafka("dead letters of a stream into Kafka",
                 "source.format.onMalformed: DeadLetter needs a sink that keeps dead letters, not sink.kafka",
                 **{"source.format.onMalformed": "DeadLetter"}),
    beside_kafka("rows into Kafka that change", "sink.kafka needs outputMode: Append", outputMode="Update"),
    Refused(
        "deletions in Kafka", {**DELETING, "spec.sink": {"kafka": KAFKA_SINK}}, "spec",
        "source.format.onTombstone: Delete needs a sink whose rows can be deleted, not sink.kafka",
    ),
    Refused(
        "a topic that the stream reads",
        {"spec.sink": {"kafka": {"bootstrapServers": "kafka:9092", "topic": "orders"}},
         "spec.source.kafka.bootstrapServers": "kafka:9092", "spec.source.kafka.topics": ["orders"]},
        "spec", "sink.kafka.topic is a topic that the stream reads",
    ),
)  # fmt: skip
