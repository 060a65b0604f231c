"""What errors that Spark tells say of Kafka. No pyspark here."""

from __future__ import annotations

import re

from exactlyonce_spark.connectors.recognised import Failures, Recognised

_GONE = re.compile(
    r"exactlyonce\.connectors\.kafka\.reading\.RecordsGone: ([^\n]+)|exactlyonce\.errors\.OriginMissing: (Kafka at [^\n]+)"
)


def _lost(text: str) -> Recognised | None:
    """Recognise records that Kafka has lost, or a whole topic: reconciliation looks at the source and says what is gone."""
    gone = _GONE.search(text)
    return None if gone is None else Recognised("DataLost", gone[1] or gone[2])


FAILURES = Failures(recognise=_lost)
