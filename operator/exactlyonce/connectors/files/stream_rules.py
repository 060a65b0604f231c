"""Rules of the whole spec for streams that write files. Performs no I/O."""

from __future__ import annotations

from typing import Any

from exactlyonce.connectors.manifest_rules import manifest_rules
from exactlyonce.schema.constraints import Rule
from exactlyonce.schema.places import S3_PREFIX, S3A_BUCKETS

_ON_S3 = f"(has(self.sink.files) && self.sink.files.path.startsWith('{S3_PREFIX}'))"
_BOTH_ON_S3 = f"({_ON_S3} && has(self.checkpoint.s3))"
_BUCKET = "self.sink.files.path.split('/')[2]"
_ONE_BUCKET = f"({_BOTH_ON_S3} && {_BUCKET} == self.checkpoint.s3.location.split('/')[2])"


def _same(field: str, part: str = "") -> str:
    """Return the expression that both have a field with the same value, or neither; CEL compares no objects of two fields."""
    files, checkpoint = f"self.sink.files.{field}", f"self.checkpoint.s3.{field}"
    return f"has({files}) == has({checkpoint}) && (!has({files}) || {files}{part} == {checkpoint}{part})"


def _places(spec: Any) -> tuple[Any, Any]:
    """Return the sink's folder and the checkpoint's, each if it is on S3."""
    return spec.sink.spec.place_on_s3 if spec.sink.files is not None else None, spec.checkpoint.s3


def _is_one_login(spec: Any) -> bool:
    files, checkpoint = _places(spec)
    return files is None or checkpoint is None or files.secret_ref == checkpoint.secret_ref


def _is_one_service(spec: Any) -> bool:
    files, checkpoint = _places(spec)
    if files is None or checkpoint is None or files.bucket != checkpoint.bucket:
        return True
    return all(getattr(files, name) == getattr(checkpoint, name) for name in ("endpoint", "region", "path_style"))


def _is_of_another_bucket(spec: Any) -> bool:
    files, _ = _places(spec)
    return files is None or not any(key.startswith(f"{S3A_BUCKETS}{files.bucket}.") for key in spec.spark_conf)


STREAM_RULES = (
    *manifest_rules("files"),
    Rule(
        f"!{_BOTH_ON_S3} || ({_same('secretRef', '.name')})",
        _is_one_login,
        "sink.files.secretRef has to be that of checkpoint.s3: Spark's processes have one login to S3",
    ),
    Rule(
        f"!{_ONE_BUCKET} || ({_same('endpoint')} && {_same('region')} && "
        "self.sink.files.pathStyle == self.checkpoint.s3.pathStyle)",
        _is_one_service,
        "sink.files and checkpoint.s3 name the same bucket: give both the same endpoint, region and pathStyle",
    ),
    Rule(
        f"!has(self.sparkConf) || !{_ON_S3} || !self.sparkConf.exists(key, key.startsWith('{S3A_BUCKETS}' + {_BUCKET} + '.'))",
        _is_of_another_bucket,
        f"sparkConf may not set what begins with {S3A_BUCKETS} and the bucket of sink.files; describe its service in "
        "spec.sink.files",
    ),
)
