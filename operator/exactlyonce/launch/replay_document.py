"""The document that a replay reads, and the one that it leaves: what to land, and what became of it. Performs no I/O.

Who starts a replay writes the former and reads the latter, so both sides take their form from here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.positions.ranges import BatchNumber, Partition

DEFAULT_MOST_RECORDS = 10_000
"""Of one transaction; the rows of so many records pass through the memory of the replay's own process."""


@dataclass(frozen=True)
class ReplayDocument:
    """What a replay is started with: the stream's resolved spec, with the transform that is to be used, and its ranges.

    `most_records` is how many one transaction lands; `records_per_second` bounds how fast they are read, on average.
    """

    stream_id: str
    spec: Mapping[str, Any]
    master: str
    ranges: tuple[RangeKey, ...]
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    most_records: int = DEFAULT_MOST_RECORDS
    records_per_second: float | None = None

    def render(self) -> str:
        """Return the document as JSON."""
        document = {
            "streamId": self.stream_id,
            "spec": self.spec,
            "master": self.master,
            "sparkConf": self.spark_conf,
            "ranges": [[key.batch, key.partition.origin, key.partition.key, key.from_offset] for key in self.ranges],
            "mostRecords": self.most_records,
            "recordsPerSecond": self.records_per_second,
        }
        return json.dumps(document, indent=2)

    @classmethod
    def parse(cls, text: str) -> ReplayDocument:
        """Return what `render` wrote.

        Raises:
            KeyError, TypeError, ValueError: if the text is something else.
        """
        document = json.loads(text)
        return cls(
            document["streamId"],
            document["spec"],
            document["master"],
            tuple(
                RangeKey(BatchNumber(batch), Partition(origin, key), start)
                for batch, origin, key, start in document["ranges"]
            ),
            document["sparkConf"],
            document["mostRecords"],
            document["recordsPerSecond"],
        )


@dataclass(frozen=True)
class ReplayReport:
    """What a replay says as its last act, in records; `told` has a sentence for each part that it has not landed.

    `problem` is what ended it before it was done; None where nothing did.
    """

    landed: int = 0
    rows: int = 0
    lost: int = 0
    failed: int = 0
    told: tuple[str, ...] = ()
    problem: str | None = None

    def render(self) -> str:
        """Return the report as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> ReplayReport:
        """Return what `render` wrote.

        Raises:
            KeyError, TypeError, ValueError: if the text is something else.
        """
        found = json.loads(text)
        return cls(**{**found, "told": tuple(found["told"])})
