"""Files that the stand-in's backends read from S3, with the login that stands in a statement and no other."""

from __future__ import annotations

from collections.abc import Mapping

import boto3
import botocore.config
from botocore.exceptions import ClientError

from testbed.doris.broker_loads import FileDenied


def file_on_s3(address: str, properties: Mapping[str, str]) -> bytes | None:
    """Return the content of `s3://bucket/key`; None where there is no such object.

    docs/data-operate/import/import-way/broker-load-manual.md: `s3.endpoint`, `s3.region`, `s3.access_key`, `s3.secret_key`,
    `s3.session_token`, `use_path_style`.

    Raises:
        FileDenied: if the storage refuses.
    """
    bucket, _, key = address.removeprefix("s3://").partition("/")
    client = boto3.client(
        "s3",
        endpoint_url=_with_scheme(properties["s3.endpoint"]),
        region_name=properties["s3.region"],
        aws_access_key_id=properties["s3.access_key"],
        aws_secret_access_key=properties["s3.secret_key"],
        aws_session_token=properties.get("s3.session_token"),
        config=botocore.config.Config(
            s3={"addressing_style": "path" if properties.get("use_path_style") == "true" else "auto"}
        ),
    )
    try:
        content: bytes = client.get_object(Bucket=bucket, Key=key)["Body"].read()
    except ClientError as problem:
        if problem.response["Error"]["Code"] in ("NoSuchKey", "404"):
            return None
        raise FileDenied(problem.response["Error"]["Code"]) from None
    return content


def _with_scheme(endpoint: str) -> str:
    return endpoint if "://" in endpoint else f"https://{endpoint}"
