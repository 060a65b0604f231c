"""What a query over Kafka writes into a checkpoint, by Spark's own source or by ours. Performs no I/O.

Source: KafkaSourceOffset and KafkaSourceInitialOffsetWriter in org.apache.spark.sql.kafka010 of Spark 4.2.0.
"""

from __future__ import annotations

import json

from exactlyonce.checkpoint.files import FileEmpty, FileTorn, text_of, version_of
from exactlyonce.positions.ranges import MalformedPositions, Positions


class KafkaCodec:
    """A `PositionCodec` for Kafka's positions: `{"topic": {"0": 5}}`."""

    def parse_entry(self, text: str) -> Positions:
        """Parse Kafka's line of `offsets/N`."""
        try:
            positions = Positions.from_json(text)
        except MalformedPositions as problem:
            raise FileTorn(str(problem)) from problem
        named = [partition for partition in positions if isinstance(partition.key, str)]
        if named:
            raise FileTorn(
                f"topic {named[0].origin!r} has a partition named {named[0].key!r}, and Kafka's have numbers"
            )
        return positions

    def render_entry(self, positions: Positions) -> str:
        """Return that line as Spark writes it for a source in Python: it compares positions as texts."""
        return json.dumps(json.loads(positions.to_json()))

    def parse_start(self, content: bytes) -> Positions:
        """Parse `sources/0/0`: the first byte is zero (SPARK-19517), then come a version line and the positions."""
        if not content:
            raise FileEmpty("it has no bytes")
        if content[0] != 0:
            raise FileTorn("its first byte is not zero")
        if len(content) == 1:
            raise FileTorn("it ends after its first byte")
        lines = text_of(content[1:]).split("\n", 2)
        version_of(lines[0], (1,), "Kafka source log")
        return self.parse_entry(lines[1] if len(lines) > 1 else "")

    def render_start(self, positions: Positions) -> bytes:
        """Return the content of that file."""
        return f"\0v1\n{positions.to_json()}".encode()


CODEC = KafkaCodec()
