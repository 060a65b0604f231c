"""Spark settings that the rest of a stream's spec forbids: accepted, they would be overridden in silence. Performs no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from exactlyonce.schema.constraints import Rule, cel_list
from exactlyonce.schema.places import S3A_BUCKETS

if TYPE_CHECKING:
    from exactlyonce.api.spec import StreamSpec

_TRIES = ("spark.task.maxFailures", "spark.stage.maxConsecutiveAttempts")


def _is_of_another_bucket(spec: StreamSpec) -> bool:
    if spec.checkpoint.s3 is None:
        return True
    own = f"{S3A_BUCKETS}{spec.checkpoint.s3.bucket}."
    return not any(key.startswith(own) for key in spec.spark_conf)


CONF_RULES = (
    Rule(
        f"!has(self.sparkConf) || !has(self.checkpoint.s3) || !self.sparkConf.exists(key, "
        f"key.startsWith('{S3A_BUCKETS}' + self.checkpoint.s3.location.split('/')[2] + '.'))",
        _is_of_another_bucket,
        f"sparkConf may not set what begins with {S3A_BUCKETS} and the checkpoint's own bucket: the operator reads the "
        "checkpoint too; describe its service in spec.checkpoint.s3",
    ),
    Rule(
        f"self.delivery != 'AtMostOnce' || !has(self.sparkConf) || !self.sparkConf.exists(key, key in {cel_list(_TRIES)})",
        lambda it: it.delivery != "AtMostOnce" or not set(_TRIES) & set(it.spark_conf),
        f"sparkConf may not set {' and '.join(_TRIES)} with delivery: AtMostOnce, where a task and a stage run once",
    ),
)
"""Rules of the spec as a whole."""
