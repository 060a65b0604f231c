"""A stream from Kafka into a topic of the same broker; ids are counted by a reader at read_committed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.kafka_readers import committed_records
from tests.rig import Rig


class KafkaSinkRig(Rig):
    """One stream into `NAME-rows`. Its ledger is a log in a folder beside the checkpoint."""

    def __init__(self, kafka: Kafka, postgres: Postgres, folder: Path, name: str, **overrides: Any) -> None:
        self.topic = f"{name}-rows"
        given = {
            "spec.transform": {
                "sql": "select id, customer, cast(id as string) as k, cast(_partition as string) as p, amount, ts from source"
            },
            "spec.sink": {
                "kafka": {
                    "bootstrapServers": kafka.bootstrap_servers,
                    "topic": self.topic,
                    "key": "k",
                    "headers": [{"name": "from", "column": "p"}],
                }
            },
            **overrides,
        }
        super().__init__(kafka, postgres, folder, name, given, partitions=2)
        kafka.create_topic(self.topic, 3)

    def rows(self, isolation: str = "read_committed") -> list[dict[str, Any]]:
        """Return the values that a reader at this isolation sees."""
        return [json.loads(record.value()) for record in committed_records(self.kafka, self.topic, isolation)]

    def counts(self, table: str = "") -> Counter[int]:
        """Return how often each id is in the topic."""
        return Counter(row["id"] for row in self.rows())

    def landed(self) -> int:
        """Return how many rows a reader sees."""
        return self.counts().total()
