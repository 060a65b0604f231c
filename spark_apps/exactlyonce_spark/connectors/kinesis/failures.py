"""What errors that Spark tells say of Kinesis. No pyspark here."""

from __future__ import annotations

import re

from exactlyonce_spark.connectors.recognised import Failures, Recognised

_EXPIRED = re.compile(r"exactlyonce\.connectors\.kinesis\.shard_reader\.PositionExpired: ([^\n]+)")
_IN_A_SHARD = re.compile(r"Malformed record in stream \S+ shard ")


def _lost(text: str) -> Recognised | None:
    """Recognise records that may have expired unread: reconciliation looks at the source and says which shard it is."""
    expired = _EXPIRED.search(text)
    return None if expired is None else Recognised("DataLost", expired[1])


def _advice(said: str) -> str | None:
    """Return what to do about a malformed record of a shard: dead letters are refused, so they are no way out."""
    if _IN_A_SHARD.match(said) is None:
        return None
    return (
        "Mend the producer. A Kinesis source keeps no dead letters in this release: to pass over the record, make a stream "
        "with another streamId that starts behind it (source.kinesis.start, from: Positions)."
    )


FAILURES = Failures(recognise=_lost, malformed=_advice)
