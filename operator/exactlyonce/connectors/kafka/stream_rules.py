"""Rules of the whole spec for streams that read Kafka. Performs no I/O."""

from __future__ import annotations

from exactlyonce.schema.constraints import Rule

STREAM_RULES = (
    Rule(
        "!has(self.source.kafka) || !has(self.source.kafka.maxRatePerPartition) || has(self.trigger.interval)",
        lambda it: (
            it.source.kafka is None or it.source.kafka.max_rate_per_partition is None or it.trigger.interval is not None
        ),
        "source.kafka.maxRatePerPartition needs trigger.interval: the rate is multiplied by that interval",
    ),
)
