"""What errors that Spark tells say of Kafka. No pyspark here."""

from __future__ import annotations

import re

from exactlyonce_spark.connectors.recognised import Failures, Recognised

_LOSS = re.compile(r"(?:Partition .+ offset was changed from|Some data may have been lost|KAFKA_DATA_LOSS)[^\n]*")
_AWAY = re.compile(r"org\.apache\.kafka\.common\.errors\.(?:Timeout|Disconnect|Network)Exception: ([^\n]+)")


def _lost(text: str) -> Recognised | None:
    """Recognise records that Kafka has lost."""
    lost = _LOSS.search(text)
    return None if lost is None else Recognised("DataLost", lost[0])


def _outage(text: str) -> str | None:
    """Recognise brokers that do not answer."""
    away = _AWAY.search(text)
    if away is None:
        return None
    said = away[1].rstrip(".")
    return f"The brokers of source.kafka do not answer ({said}); nothing has landed by this, and it will be retried."


FAILURES = Failures(recognise=_lost, outage=_outage)
