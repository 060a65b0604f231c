"""Rules of the whole spec for streams whose sink is a folder that Spark writes to, where that is on S3. Performs no I/O."""

from __future__ import annotations

from typing import Any

from exactlyonce.schema.constraints import Rule
from exactlyonce.schema.model import field_name
from exactlyonce.schema.places import S3_PREFIX, S3A_BUCKETS


def s3_sink_rules(connector: str, folder: str) -> tuple[Rule, ...]:
    """Return the `stream_rules` of a sink, named by its connector, whose rows go to the folder that a field names."""
    name = f"sink.{field_name(connector)}"
    sink, checkpoint = f"self.{name}", "self.checkpoint.s3"
    on_s3 = f"(has({sink}) && {sink}.{field_name(folder)}.startsWith('{S3_PREFIX}'))"
    both_on_s3 = f"({on_s3} && has({checkpoint}))"
    bucket = f"{sink}.{field_name(folder)}.split('/')[2]"
    one_bucket = f"({both_on_s3} && {bucket} == {checkpoint}.location.split('/')[2])"

    def same(field: str, part: str = "") -> str:
        """Return the expression that both have a field with the same value, or neither; CEL compares no objects of two."""
        here, there = f"{sink}.{field}", f"{checkpoint}.{field}"
        return f"has({here}) == has({there}) && (!has({here}) || {here}{part} == {there}{part})"

    def places(spec: Any) -> tuple[Any, Any]:
        """Return the sink's folder and the checkpoint's, each if it is on S3."""
        is_this = getattr(spec.sink, connector) is not None
        return spec.sink.spec.place_on_s3 if is_this else None, spec.checkpoint.s3

    def is_one_login(spec: Any) -> bool:
        rows, logs = places(spec)
        return rows is None or logs is None or rows.secret_ref == logs.secret_ref

    def is_one_service(spec: Any) -> bool:
        rows, logs = places(spec)
        if rows is None or logs is None or rows.bucket != logs.bucket:
            return True
        return all(getattr(rows, it) == getattr(logs, it) for it in ("endpoint", "region", "path_style"))

    def is_of_another_bucket(spec: Any) -> bool:
        rows, _ = places(spec)
        return rows is None or not any(key.startswith(f"{S3A_BUCKETS}{rows.bucket}.") for key in spec.spark_conf)

    return (
        Rule(
            f"!{both_on_s3} || ({same('secretRef', '.name')})",
            is_one_login,
            f"{name}.secretRef has to be that of checkpoint.s3: Spark's processes have one login to S3",
        ),
        Rule(
            f"!{one_bucket} || ({same('endpoint')} && {same('region')} && "
            f"{sink}.pathStyle == self.checkpoint.s3.pathStyle)",
            is_one_service,
            f"{name} and checkpoint.s3 name the same bucket: give both the same endpoint, region and pathStyle",
        ),
        Rule(
            f"!has(self.sparkConf) || !{on_s3} || !self.sparkConf.exists(key, key.startsWith('{S3A_BUCKETS}' + {bucket} + "
            "'.'))",
            is_of_another_bucket,
            f"sparkConf may not set what begins with {S3A_BUCKETS} and the bucket of {name}; describe its service in "
            f"spec.{name}",
        ),
    )
