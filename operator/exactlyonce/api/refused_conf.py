"""Spark settings that a stream may not have, each with the reason. Performs no I/O.

A key is refused when it would break the promise (two runs of one task, an offset log written later than its batch, …)
or when the operator sets it itself. Source: docs/spark-settings.md, which lists every one.
"""

from __future__ import annotations

from collections.abc import Mapping

from exactlyonce.api.constraints import Rule, cel_list, cel_map, cel_text

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
    "spark.driver.cores": "it has a field of its own, driver.cores",
    "spark.driver.memory": "it has a field of its own, driver.memory",
    "spark.driver.memoryOverhead": "it has a field of its own, driver.memoryOverhead",
    "spark.executor.cores": "it has a field of its own, executor.cores",
    "spark.executor.memory": "it has a field of its own, executor.memory",
    "spark.executor.memoryOverhead": "it has a field of its own, executor.memoryOverhead",
    "spark.dynamicAllocation.enabled": "give executor.maxInstances instead",
    "spark.dynamicAllocation.initialExecutors": "give executor.instances instead",
    "spark.dynamicAllocation.minExecutors": "give executor.instances instead",
    "spark.dynamicAllocation.maxExecutors": "give executor.maxInstances instead",
    "spark.driver.extraClassPath": _OWN,
    "spark.executor.extraClassPath": _OWN,
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


_MODES = ("realTimeMode", "asyncProgress")
_MODES_REASON = "real-time mode and asynchronous progress tracking write the offset log after its batch"
_SECRET_WORDS = ("password", "secret.key", "access.key", "session.token")
_CREDENTIALS = "credentials belong in a secret, which a resource shows to no one"
_FOREIGN_REASON = "the names of Spark's settings begin with 'spark.'"


def refusal(key: str, value: str) -> str | None:
    """Return why a stream may not set `key` to `value`, or None where it may."""
    if not key.startswith("spark."):
        return _FOREIGN_REASON
    if key in ALWAYS:
        return ALWAYS[key]
    if key in WHEN_TRUE and value.strip().lower() != "false":
        return WHEN_TRUE[key]
    for prefix, reason in PREFIXES.items():
        if key.startswith(prefix):
            return reason
    if any(mode in key for mode in _MODES):
        return _MODES_REASON
    if any(word in key.lower() for word in _SECRET_WORDS):
        return _CREDENTIALS
    return None


def _told(conf: Mapping[str, str]) -> str:
    refused = {key: reason for key, value in conf.items() if (reason := refusal(key, value)) is not None}
    return "; ".join(f"sparkConf may not set {key}: {reason}" for key, reason in refused.items())


def _refusal_cel() -> str:
    """Return `refusal` as an expression over `self` and `key`; an empty text where there is nothing against it."""
    prefixes = cel_map(PREFIXES)
    cases = {
        "!key.startsWith('spark.')": cel_text(_FOREIGN_REASON),
        f"key in {cel_list(ALWAYS)}": f"{cel_map(ALWAYS)}[key]",
        f"key in {cel_list(WHEN_TRUE)} && self[key].trim().lowerAscii() != 'false'": f"{cel_map(WHEN_TRUE)}[key]",
        f"{cel_list(PREFIXES)}.exists(prefix, key.startsWith(prefix))": (
            f"{prefixes}[{cel_list(PREFIXES)}.filter(prefix, key.startsWith(prefix))[0]]"
        ),
        f"{cel_list(_MODES)}.exists(mode, key.contains(mode))": cel_text(_MODES_REASON),
        f"{cel_list(_SECRET_WORDS)}.exists(word, key.lowerAscii().contains(word))": cel_text(_CREDENTIALS),
    }
    return "".join(f"{case} ? {reason} : " for case, reason in cases.items()) + "''"


RULE = Rule(
    f"self.all(key, ({_refusal_cel()}) == '')",
    lambda conf: not any(refusal(key, value) for key, value in conf.items()),
    "sparkConf may set nothing that would break the promise or the launch; docs/spark-settings.md lists what",
    told=_told,
    told_cel=(
        f"self.map(key, ({_refusal_cel()}) == '' ? '' : 'sparkConf may not set ' + key + ': ' + ({_refusal_cel()}))"
        ".filter(told, told != '').join('; ')"
    ),
)
"""`refusal` for all of a stream's settings."""
