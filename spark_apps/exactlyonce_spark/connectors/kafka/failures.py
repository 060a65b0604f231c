"""What errors that Spark tells say of Kafka. No pyspark here."""

from __future__ import annotations

import re

from exactlyonce_spark.connectors.recognised import Failures, Recognised

_GONE = re.compile(r"exactlyonce\.connectors\.kafka\.reading\.RecordsGone: ([^\n]+)")


def _lost(text: str) -> Recognised | None:
    """Recognise records that Kafka has lost: reconciliation looks at the source and says which partitions they were of."""
    gone = _GONE.search(text)
    return None if gone is None else Recognised("DataLost", gone[1])


FAILURES = Failures(recognise=_lost)
