"""Spark settings that a stream may not have, each with the reason. Performs no I/O.

A key is refused when it would break the promise (two runs of one task, an offset log written later than its batch, …)
or when the operator sets it itself. Source: docs/spark-settings.md, which lists every one.
"""

from __future__ import annotations

from collections.abc import Callable

from exactlyonce.schema.constraints import AllOf, Rule, cel_list
from exactlyonce.schema.places import S3A_BUCKETS

_OWN = "the operator sets it itself"

ALWAYS = {
    "spark.master": _OWN,
    "spark.app.name": _OWN,
    "spark.sql.session.timeZone": "times are UTC from the record to the table; convert them in the transform",
    "spark.sql.streaming.checkpointLocation": "the ledger says which checkpoint is used",
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "a checkpoint is never deleted",
    "spark.sql.streaming.checkpointFileManagerClass": "the operator chooses it by the kind of storage",
    "spark.sql.streaming.minBatchesToRetain": "it has a field of its own, checkpointRetention.batches",
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
    "spark.dynamicAllocation.shuffleTracking.enabled": "give executor.maxInstances instead",
    "spark.ui.enabled": "it has a field of its own, sparkUi.enabled",
    "spark.ui.port": _OWN,
    "spark.ui.prometheus.enabled": "it follows from sparkUi.enabled",
    "spark.metrics.namespace": _OWN,
    "spark.metrics.conf.driver.source.jvm.class": "it follows from sparkUi.enabled",
    "spark.blockManager.port": _OWN,
    "spark.driver.blockManager.port": _OWN,
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "it follows from the state store's provider",
    "spark.driver.extraClassPath": _OWN,
    "spark.executor.extraClassPath": _OWN,
}

WHEN_TRUE = {
    "spark.speculation": "speculation runs a task twice at once; set nothing or false",
    "spark.sql.adaptive.enabled": "adaptive execution merges partitions, so that a task no longer reads exactly one of the "
    "source",
    "spark.sql.adaptive.streaming.stateless.enabled": "adaptive execution merges partitions, so that a task no longer "
    "reads exactly one of the source",
    "spark.sql.streaming.asyncProgressTrackingEnabled": "asynchronous progress tracking writes the offset log after its batch",
    "spark.sql.streaming.realTimeMode.enabled": "real-time mode writes the offset log after its batch",
    "spark.sql.streaming.realTimeMode.allowlistCheck": "real-time mode writes the offset log after its batch",
}

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"

WATERMARK_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"

ONE_OF = {
    "spark.sql.ansi.enabled": (
        ("true",),
        "an overflow or a failed cast is an error, never a NULL that lands without a word",
    ),
    "spark.sql.execution.arrow.pyspark.enabled": (("true",), "rows are handed to Python as Arrow"),
    WATERMARK_POLICY: (("min", "max"), "Spark knows no other policy"),
    STATE_STORE: ((ROCKSDB, IN_MEMORY), "reconciliation knows the state files of Spark's own two providers"),
}
"""Settings that have one of a few values, with the reason."""

S3A = "spark.hadoop.fs.s3a."
_MOVES = "it would move the checkpoint away from where the operator reads it"
S3A_REASON = (
    "it could move the checkpoint away from where the operator reads it; describe the checkpoint's service in "
    f"spec.checkpoint.s3, and another bucket with {S3A_BUCKETS}NAME"
)

S3A_TUNING = tuple(
    S3A + name
    for name in (
        "attempts.maximum", "block.size", "buffer.dir", "connection.acquisition.timeout", "connection.establish.timeout",
        "connection.idle.time", "connection.keepalive", "connection.maximum", "connection.request.timeout",
        "connection.timeout", "connection.ttl", "executor.capacity", "experimental.input.fadvise",
        "fast.upload.active.blocks", "fast.upload.buffer", "input.fadvise", "max.total.tasks", "multipart.size",
        "multipart.threshold", "paging.maximum", "readahead.range", "retry.interval", "retry.limit",
        "retry.throttle.interval", "retry.throttle.limit", "threads.keepalivetime", "threads.max",
    )
)  # fmt: skip
"""The settings of all buckets that change how fast something is read, and never from where."""

_ENCRYPTED = "drivers and executors always authenticate each other and encrypt what they send; the operator says how"

PREFIXES = {
    "spark.authenticate": _ENCRYPTED,
    "spark.network.crypto.": _ENCRYPTED,
    "spark.network.sasl.": _ENCRYPTED,
    "spark.ssl.rpc.": _ENCRYPTED,
    "spark.hadoop.fs.defaultFS": _MOVES,
    "spark.hadoop.fs.default.name": _MOVES,
    "spark.hadoop.fs.file.": _MOVES,
    "spark.hadoop.fs.AbstractFileSystem.": _MOVES,
    "spark.metrics.conf.*.sink.prometheusServlet.": "it follows from sparkUi.enabled",
    "spark.kubernetes.": _OWN,
    "spark.executor.instances": _OWN,
    "spark.submit.": _OWN,
    "spark.driver.host": _OWN,
    "spark.driver.bindAddress": _OWN,
    "spark.driver.port": _OWN,
    "spark.python.daemon.module": _OWN,
    "spark.python.worker.faulthandler": _OWN,
}


_MODES = ("realtimemode", "asyncprogress")
_MODES_REASON = "real-time mode and asynchronous progress tracking write the offset log after its batch"
SECRET_WORDS = (
    "password", "passwd", "passphrase", "secret", "token", "access.key", "accesskey", "account.key", "accountkey", "api.key",
    "apikey", "private.key", "privatekey",
)  # fmt: skip
"""What makes a setting a credential by its name, in any case of letters: those of S3, Azure, Google, TLS and HTTP services."""

_CREDENTIALS = "credentials belong in a secret, which a resource shows to no one"
_FOREIGN = "the names of Spark's settings begin with 'spark.'"


def refusal(key: str, value: str) -> str | None:
    """Return why a stream may not set `key` to `value`, or None where it may."""
    if not key.startswith("spark."):
        return _FOREIGN
    if key in ALWAYS:
        return ALWAYS[key]
    if key in WHEN_TRUE:
        return None if value.strip().lower() == "false" else WHEN_TRUE[key]
    if key in ONE_OF:
        values, reason = ONE_OF[key]
        return None if value in values else reason
    for prefix, reason in PREFIXES.items():
        if key.startswith(prefix):
            return reason
    if _moves_s3(key):
        return S3A_REASON
    if any(mode in key.lower() for mode in _MODES):
        return _MODES_REASON
    if any(word in key.lower() for word in SECRET_WORDS):
        return _CREDENTIALS
    return None


def _moves_s3(key: str) -> bool:
    return key.startswith(S3A) and not key.startswith(S3A_BUCKETS) and key not in S3A_TUNING


def _never(what: str, reason: str, cel: str, refused: Callable[[str, str], bool]) -> Rule:
    return Rule(
        f"!({cel})",
        lambda conf: not any(refused(key, value) for key, value in conf.items()),
        f"sparkConf may not set {what}: {reason}",
    )


def _exactly(name: str, reason: str) -> Rule:
    return _never(name, reason, f"'{name}' in self", lambda key, _: key == name)


def _when_true(name: str, reason: str) -> Rule:
    cel = f"'{name}' in self && self['{name}'].trim().lowerAscii() != 'false'"
    return _never(name, reason, cel, lambda key, value: key == name and refusal(key, value) is not None)


def _one_of(name: str, values: tuple[str, ...], reason: str) -> Rule:
    cel = f"'{name}' in self && !(self['{name}'] in {cel_list(values)})"
    what = f"{name} to anything but {' and '.join(values)}"
    return _never(what, reason, cel, lambda key, value: key == name and value not in values)


def _prefixed(prefix: str, reason: str) -> Rule:
    cel = f"self.exists(key, key.startsWith('{prefix}'))"
    return _never(f"what begins with {prefix}", reason, cel, lambda key, _: key.startswith(prefix))


def _with_word(word: str, reason: str) -> Rule:
    known = cel_list(WHEN_TRUE)
    cel = f"self.exists(key, key.lowerAscii().contains('{word}') && !(key in {known}))"
    return _never(
        f"what has {word} in its name", reason, cel, lambda key, _: word in key.lower() and key not in WHEN_TRUE
    )


RULES = AllOf(
    (
        _never(
            "what is not a setting of Spark",
            _FOREIGN,
            "self.exists(key, !key.startsWith('spark.'))",
            lambda key, _: not key.startswith("spark."),
        ),
        *(_exactly(name, reason) for name, reason in ALWAYS.items()),
        *(_when_true(name, reason) for name, reason in WHEN_TRUE.items()),
        *(_one_of(name, values, reason) for name, (values, reason) in ONE_OF.items()),
        *(_prefixed(prefix, reason) for prefix, reason in PREFIXES.items()),
        _never(
            f"what begins with {S3A}, but for how fast something is read",
            S3A_REASON,
            f"self.exists(key, key.startsWith('{S3A}') && !key.startsWith('{S3A_BUCKETS}') && "
            f"!(key in {cel_list(S3A_TUNING)}))",
            lambda key, _: _moves_s3(key),
        ),
        *(_with_word(word, _MODES_REASON) for word in _MODES),
        *(_with_word(word, _CREDENTIALS) for word in SECRET_WORDS),
    )
)
"""`refusal` for all settings of a stream, a sentence for each."""
