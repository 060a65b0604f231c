"""Spark settings that a stream may not have, each with the reason. Performs no I/O.

A key is refused when it would break the promise (two runs of one task, an offset log written later than its batch, …)
or when the operator sets it itself. Source: docs/spark-settings.md, which lists every one.
"""

from __future__ import annotations

_OWN = "the operator sets it itself"

ALWAYS = {
    "spark.master": _OWN,
    "spark.app.name": _OWN,
    "spark.sql.session.timeZone": "times are UTC from the record to the table; convert them in the transform",
    "spark.sql.streaming.checkpointLocation": "the ledger says which checkpoint is used",
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "a checkpoint is never deleted",
    "spark.sql.streaming.checkpointFileManagerClass": "the operator chooses it by the kind of storage",
    "spark.sql.streaming.minBatchesToRetain": "reconciliation needs the logs that Spark retains by default",
    "spark.sql.streaming.multipleWatermarkPolicy": "a change of it changes what a stateful query emits",
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "the other way has no time limits",
    "spark.sql.streaming.stopTimeout": _OWN,
    "spark.sql.streaming.offsetLog.formatVersion": "reconciliation reads versions 1 and 2; Spark chooses between them",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": _OWN,
}

WHEN_TRUE = {
    "spark.speculation": "speculation runs a task twice at once; set nothing or false",
    "spark.sql.adaptive.enabled": "adaptive execution joins partitions, so that a task is no longer one Kafka partition",
    "spark.sql.adaptive.streaming.stateless.enabled": "adaptive execution joins partitions, so that a task is no longer "
    "one Kafka partition",
    "spark.sql.streaming.asyncProgressTrackingEnabled": "asynchronous progress tracking writes the offset log after its batch",
    "spark.sql.streaming.realTimeMode.enabled": "real-time mode writes the offset log after its batch",
    "spark.sql.streaming.realTimeMode.allowlistCheck": "real-time mode writes the offset log after its batch",
}

PREFIXES = {
    "spark.kubernetes.": _OWN,
    "spark.executor.instances": _OWN,
    "spark.submit.": _OWN,
    "spark.driver.host": _OWN,
    "spark.driver.bindAddress": _OWN,
    "spark.driver.port": _OWN,
    "spark.python.worker.faulthandler": _OWN,
}


def refusal(key: str, value: str) -> str | None:
    """Return why a stream may not set `key` to `value`, or None where it may."""
    if not key.startswith("spark."):
        return "Spark's settings start with spark."
    if key in ALWAYS:
        return ALWAYS[key]
    if key in WHEN_TRUE and value.strip().lower() != "false":
        return WHEN_TRUE[key]
    for prefix, reason in PREFIXES.items():
        if key.startswith(prefix):
            return reason
    if "realTimeMode" in key or "asyncProgress" in key:
        return "real-time mode and asynchronous progress tracking write the offset log after its batch"
    if any(word in key.lower() for word in ("password", "secret.key", "access.key", "session.token")):
        return "credentials belong in a secret, which a resource shows to no one"
    return None
