"""What errors that Spark tells say of Kinesis. No pyspark here."""

from __future__ import annotations

import re

from exactlyonce_spark.connectors.recognised import Failures, Recognised

_EXPIRED = re.compile(r"exactlyonce\.connectors\.kinesis\.shard_reader\.PositionExpired: ([^\n]+)")


def _lost(text: str) -> Recognised | None:
    """Recognise records that may have expired unread: reconciliation looks at the source and says which shard it is."""
    expired = _EXPIRED.search(text)
    return None if expired is None else Recognised("DataLost", expired[1])


FAILURES = Failures(recognise=_lost)
